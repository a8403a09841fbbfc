"""Verbs: import a checkpoint, export a run."""

from __future__ import annotations

from pathlib import Path

from seqloom.cli.app import app, open_run, print_result


@app.command(name="import")
def import_checkpoint(
    source: Path, /, *, out: Path, tokenizer: Path | None = None, json: bool = False
) -> None:
    """Convert a checkpoint to a run: a Hugging Face folder (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian), or a file of llama2.c (.bin), nanoGPT
    (.pt) or letters to phonemes (.npz). No code of the checkpoint is executed.

    Parameters
    ----------
    source
        The folder with config.json, model.safetensors and tokenizer.json, or the file.
    out
        The run folder to create.
    tokenizer
        A tokenizer to use instead of the checkpoint's.
    json
        Print the result as JSON.
    """
    from seqloom.interop import import_checkpoint as read

    run = read(source, out, tokenizer)
    results = run.results()
    summary = (
        f"{results['imported']['kind']}: {results['parameters']:,} parameters, "
        f"{run.tokenizer.get_vocab_size():,} tokens"
    )
    print_result({"run": str(out), **results}, [summary, f"run: {out}"], json)


@app.command
def export(run: Path, folder: Path, /, *, to: str = "huggingface", json: bool = False) -> None:
    """Write a run as a folder that `transformers` loads: config.json, model.safetensors, tokenizer.json.

    Parameters
    ----------
    run
        The run folder: a GPT-2, Llama, BERT, DistilBERT or Marian in its shape, imported or trained here.
    folder
        The folder to create.
    to
        The layout; huggingface is the only one.
    json
        Print the result as JSON.
    """
    from seqloom.interop import export_checkpoint

    if to != "huggingface":
        raise ValueError(f"--to {to}: the only layout is huggingface")
    kind = export_checkpoint(open_run(run, None), folder)
    print_result({"run": str(run), "folder": str(folder), "kind": kind}, [f"{kind}: {folder}"], json)
