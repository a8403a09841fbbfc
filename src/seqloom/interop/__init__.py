"""Import and export of checkpoints. No file that is read can cause code to run."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

from seqloom.errors import DataError
from seqloom.files import draft_folder
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
from seqloom.run import Run, RunLike, as_run, default_folder, load
from seqloom.train.run_folder import require_replaceable

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
    source: str | Path,
    out: str | Path | None = None,
    tokenizer: str | Path | None = None,
    overwrite: bool = False,
) -> Run:
    """Writes a run folder from the checkpoint at `source`; default: runs/NAME. `overwrite` replaces a run that is there.

    The source is a folder of the Hugging Face layout (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian, ViT), or a file of llama.cpp (.gguf,
    Llama and GPT-2), of llama2.c (.bin), of nanoGPT (.pt), or of letters to phonemes (.npz). `tokenizer` replaces its own
    tokenizer.

    >>> theirs = seqloom.export_checkpoint(masked, "theirs")
    >>> seqloom.import_checkpoint(theirs, "runs/theirs").task
    'masked language modelling'
    """
    source = Path(source)
    folder = default_folder() / Path(os.path.realpath(source)).stem if out is None else Path(out)
    checkpoint = read_checkpoint(source, None if tokenizer is None else Path(tokenizer))
    if not overwrite or not folder.exists():
        return import_run.write(checkpoint, source, folder)
    require_replaceable(folder)
    with draft_folder(folder.parent) as draft:
        import_run.write(checkpoint, source, draft / folder.name)
        shutil.rmtree(folder)
        os.replace(draft / folder.name, folder)
    return load(folder)


def read_checkpoint(source: Path, tokenizer: Path | None) -> ForeignCheckpoint:
    """The checkpoint of a folder or a file, by its name."""
    if source.is_dir():
        check_nested(source)
        return huggingface.read(source, tokenizer)
    if not source.is_file():
        raise DataError(f"{source}: no such file or folder; {FORMATS}")
    if source.suffix not in READERS or source.name == "pytorch_model.bin":
        pickled = source.suffix in (".bin", ".pth", ".pkl", ".ckpt")
        if pickled:
            reason = "is pickled, a format that can hold any code, so it is not opened"
        else:
            reason = "is not a checkpoint of a known format"
        raise DataError(f"{source}: {reason}; {FORMATS}")
    return READERS[source.suffix](source, tokenizer)


def check_nested(folder: Path) -> None:
    """Raises for a folder that is no model but has some in folders below it, which are named."""
    if (folder / "config.json").exists():
        return
    inner = sorted(
        path.parent for depth in ("*", "*/*", "*/*/*") for path in folder.glob(f"{depth}/config.json")
    )
    if inner:
        others = f" (also: {', '.join(map(str, inner[1:4]))})" if inner[1:] else ""
        raise DataError(
            f"{folder}: has no config.json, but a folder below it has; use: seqloom import {inner[0]}{others}"
        )


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
