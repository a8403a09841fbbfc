"""Verbs: import a checkpoint, export a run."""

from __future__ import annotations

import json as jsons
import logging
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from seqloom.cli.app import FILES, app, print_result
from seqloom.cli.options import OUTPUT, Common, CommonOptions, OutPath, RunPath
from seqloom.errors import UserError

logger = logging.getLogger("seqloom.cli")
ExportFormat = Literal["huggingface", "gguf", "gguf-f16", "gguf-q8_0", "numpy"]
OldFolder = Annotated[Path | None, Parameter(show=False)]  # earlier versions took the folder as an argument


@app.command(name="import", group=FILES)
def import_checkpoint(
    source: Path,
    /,
    *,
    out: OutPath = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT)] = False,
    tokenizer: Path | None = None,
    common: CommonOptions = Common(),
) -> None:
    """Turn a checkpoint of another program into a run.

    A Hugging Face folder (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian, ViT), or a file of llama.cpp (.gguf, Llama and GPT-2), llama2.c
    (.bin), nanoGPT (.pt) or letters to phonemes (.npz). No code of the checkpoint is run.

    Examples:
      seqloom import all-MiniLM-L6-v2
      seqloom import SmolLM2-135M-Instruct.Q4_1.gguf --out runs/smollm2
      seqloom import stories15M.bin --tokenizer tokenizer.bin

    Parameters
    ----------
    source
        The folder with config.json, model.safetensors and tokenizer.json, or the file.
    out
        The run folder to create; default: runs/NAME.
    overwrite
        Replace the run that is in the folder.
    tokenizer
        A tokenizer to use instead of the checkpoint's.
    """
    from seqloom.inference.verbs import VERBS
    from seqloom.interop import import_checkpoint as read

    run = read(source, out, tokenizer, overwrite)
    results = run.results
    outputs = f"{len(run.labels):,} labels" if run.labels else f"{run.tokenizer.get_vocab_size():,} tokens"
    does, verb = VERBS[run.task]
    logger.info("the run %s; use it with: seqloom %s %s", does, verb, run.folder)
    summary = f"{(results.base or {})['format']}: {results.parameters.total:,} parameters, {outputs}"
    print_result({"run": str(run.folder), **results.to_dict()}, [summary, f"run: {run.folder}"], common.json)


@app.command(group=FILES)
def export(
    run: RunPath,
    folder: OldFolder = None,
    /,
    *,
    out: OutPath = None,
    format: ExportFormat = "huggingface",
    common: CommonOptions = Common(),
) -> None:
    """Write a run as files that other programs load.

    A GPT-2, Llama, BERT, DistilBERT, Marian or ViT in its shape, imported or trained here, becomes a folder that `transformers` loads; a GPT-2 or
    Llama a file of llama.cpp; a GPT, Llama or RNN language model a folder with a numpy program that needs no torch.

    Examples:
      seqloom export runs/gpt2 --out gpt2-tuned
      seqloom export runs/gpt-input@best --out best
      seqloom export runs/smollm2 --out smollm2.gguf --format gguf-q8_0

    Parameters
    ----------
    run
        The run folder.
    out
        The folder or file to create.
    format
        huggingface; gguf, gguf-f16 or gguf-q8_0; numpy.
    """
    from seqloom.cli.inputs import open_run
    from seqloom.interop import export_checkpoint

    if folder is not None:
        logger.warning("export RUN FOLDER is now: seqloom export RUN --out FOLDER")
    target = out or folder
    if target is None:
        raise UserError("no folder: name the one to create, as in: seqloom export RUN --out FOLDER")
    written = export_checkpoint(open_run(run, None), target, format)
    report = {"run": str(run), "out": str(written), "format": format}
    if format == "huggingface":
        report["model_type"] = jsons.loads((written / "config.json").read_text("utf-8"))["model_type"]
    print_result(report, [f"{report.get('model_type', format)}: {written}"], common.json)
