"""Import and export of checkpoints. No file that is read can cause code to run."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path

from seqloom.errors import DataError
from seqloom.interop import (
    g2p,
    gguf_files,
    gguf_write,
    huggingface,
    import_run,
    llama2c,
    nanogpt,
    numpy_export,
)
from seqloom.interop.import_run import ForeignCheckpoint
from seqloom.run import Run, RunLike, as_run, default_folder

READERS: dict[str, Callable[[Path, Path | None], ForeignCheckpoint]] = {
    ".bin": llama2c.read,
    ".gguf": gguf_files.read,
    ".npz": g2p.read,
    ".pt": nanogpt.read,
}
FORMATS = "give a folder of the Hugging Face layout, or a .gguf, .bin, .pt or .npz file"

EXPORTS: dict[str, Callable[[Run, Path], object]] = {
    "huggingface": huggingface.write,
    "gguf": partial(gguf_write.write, precision="F32"),
    "gguf-f16": partial(gguf_write.write, precision="F16"),
    "gguf-q8_0": partial(gguf_write.write, precision="Q8_0"),
    "numpy": numpy_export.write,
}

__all__ = ["export_checkpoint", "import_checkpoint"]


def import_checkpoint(
    source: str | Path, out: str | Path | None = None, tokenizer: str | Path | None = None
) -> Run:
    """Writes a run folder from the checkpoint at `source`; default: runs/NAME.

    The source is a folder of the Hugging Face layout (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian, ViT), or a file of llama.cpp (.gguf,
    Llama and GPT-2), of llama2.c (.bin), of nanoGPT (.pt), or of letters to phonemes (.npz). `tokenizer` replaces its own
    tokenizer.

    >>> theirs = seqloom.export_checkpoint(masked, "theirs")
    >>> seqloom.import_checkpoint(theirs, "runs/theirs").task
    'masked language modelling'
    """
    source = Path(source)
    folder = default_folder() / Path(os.path.realpath(source)).stem if out is None else Path(out)
    tokenizer_path = None if tokenizer is None else Path(tokenizer)
    if source.is_dir():
        return import_run.write(huggingface.read(source, tokenizer_path), source, folder)
    if not source.is_file():
        raise DataError(f"{source}: no such file or folder; {FORMATS}")
    if source.suffix not in READERS or source.name == "pytorch_model.bin":
        pickled = source.suffix in (".bin", ".pth", ".pkl", ".ckpt")
        if pickled:
            reason = "is pickled, a format that can hold any code, so it is not opened"
        else:
            reason = "is not a checkpoint of a known format"
        raise DataError(f"{source}: {reason}; {FORMATS}")
    return import_run.write(READERS[source.suffix](source, tokenizer_path), source, folder)


def export_checkpoint(run: RunLike, out: str | Path, format: str = "huggingface") -> Path:
    """Writes a run for other programs, and returns the folder or file.

    `huggingface` is a folder that `transformers` loads. `gguf` is a file of llama.cpp in 32 bits, `gguf-f16` and `gguf-q8_0` in fewer. `numpy` is a
    folder with a program that needs no torch.

    >>> sorted(path.name for path in seqloom.export_checkpoint(masked, "exported").iterdir())[:2]
    ['config.json', 'model.safetensors']
    """
    if format not in EXPORTS:
        raise DataError(f"{format}: choose a format from {', '.join(EXPORTS)}")
    EXPORTS[format](as_run(run), Path(out))
    return Path(out)
