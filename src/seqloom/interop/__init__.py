"""Real checkpoints in and out. `bring` makes a run of one, `give` writes a run as one. Nothing in a file can name code to run."""

from __future__ import annotations

from pathlib import Path

from seqloom.interop import g2p, huggingface, import_run, llama2c, nanogpt
from seqloom.run import Run

READERS = {".bin": llama2c.read, ".npz": g2p.read, ".pt": nanogpt.read}

__all__ = ["export_checkpoint", "import_checkpoint"]


def import_checkpoint(source: str | Path, out: str | Path, tokenizer: str | Path | None = None) -> Run:
    """A run folder at `out` of the checkpoint at `source`: a folder of the Hugging Face layout (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian), or
    a file of llama2.c (.bin), of nanoGPT (.pt), or of letters to phonemes (.npz). `tokenizer` is a file to use in place of its own."""
    source, chosen = Path(source), None if tokenizer is None else Path(tokenizer)
    if source.is_dir():
        read = huggingface.read
    elif not source.is_file():
        raise ValueError(
            f"{source}: no such file or folder; give a folder of the Hugging Face layout, or a .bin, .pt or .npz file"
        )
    elif source.suffix not in READERS or source.name == "pytorch_model.bin":
        pickled = source.suffix in (".bin", ".pth", ".pkl", ".ckpt")
        reason = (
            "is pickled, a form that can hold any code, so it is not opened"
            if pickled
            else "is no checkpoint that can be read"
        )
        raise ValueError(
            f"{source}: {reason}; give a folder of the Hugging Face layout, or a .bin, .pt or .npz file"
        )
    else:
        read = READERS[source.suffix]
    return import_run.write(read(source, chosen), source, Path(out))


def export_checkpoint(run: Run, folder: str | Path) -> str:
    """Write a run as a folder that `transformers` loads, and say which kind it is."""
    return huggingface.write(run, Path(folder))
