"""Import and export of checkpoints. No file that is read can cause code to run."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from seqloom.interop import g2p, huggingface, import_run, llama2c, nanogpt
from seqloom.interop.import_run import ForeignCheckpoint
from seqloom.run import Run

READERS: dict[str, Callable[[Path, Path | None], ForeignCheckpoint]] = {
    ".bin": llama2c.read,
    ".npz": g2p.read,
    ".pt": nanogpt.read,
}
FORMATS = "give a folder of the Hugging Face layout, or a .bin, .pt or .npz file"

__all__ = ["export_checkpoint", "import_checkpoint"]


def import_checkpoint(source: str | Path, out: str | Path, tokenizer: str | Path | None = None) -> Run:
    """Writes a run folder at `out` from the checkpoint at `source`.

    The source is a folder of the Hugging Face layout (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian), or a
    file of llama2.c (.bin), of nanoGPT (.pt), or of letters to phonemes (.npz). `tokenizer` replaces its own
    tokenizer.
    """
    source = Path(source)
    tokenizer_path = None if tokenizer is None else Path(tokenizer)
    if source.is_dir():
        return import_run.write(huggingface.read(source, tokenizer_path), source, Path(out))
    if not source.is_file():
        raise ValueError(f"{source}: no such file or folder; {FORMATS}")
    if source.suffix not in READERS or source.name == "pytorch_model.bin":
        pickled = source.suffix in (".bin", ".pth", ".pkl", ".ckpt")
        if pickled:
            reason = "is pickled, a format that can hold any code, so it is not opened"
        else:
            reason = "is not a checkpoint of a known format"
        raise ValueError(f"{source}: {reason}; {FORMATS}")
    return import_run.write(READERS[source.suffix](source, tokenizer_path), source, Path(out))


def export_checkpoint(run: Run, folder: str | Path) -> str:
    """Writes a run as a folder that `transformers` loads; returns its model_type."""
    return huggingface.write(run, Path(folder))
