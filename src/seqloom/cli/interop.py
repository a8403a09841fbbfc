"""Import a checkpoint, export a run, embed sentences."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path

from seqloom.cli.app import Count, Kind, Threads, app, opened, show

SAMPLE = 256  # lines whose vectors are also made in full precision, to tell what bytes cost


@app.command(name="import")
def bring(source: Path, /, *, out: Path, tokenizer: Path | None = None, json: bool = False) -> None:
    """Make a run of a checkpoint: a Hugging Face folder (GPT-2, Llama, BERT, MiniLM, DistilBERT, Marian), or a file of llama2.c (.bin), nanoGPT
    (.pt) or letters to phonemes (.npz). Nothing in it is run.

    Parameters
    ----------
    source
        The folder with config.json, model.safetensors and tokenizer.json, or the file.
    out
        The run folder to make.
    tokenizer
        A tokenizer to use in place of the checkpoint's own.
    json
        Print what was made as JSON.
    """
    from seqloom.interop import bring as read

    run = read(source, out, tokenizer)
    found = run.results()
    kind, count = found["imported"]["kind"], found["parameters"]
    show(
        {"run": str(out), **found},
        [f"{kind}: {count:,} parameters, {run.tokenizer.get_vocab_size():,} tokens", f"run: {out}"],
        json,
    )


@app.command
def export(run: Path, folder: Path, /, *, to: str = "huggingface", json: bool = False) -> None:
    """Write a run as a folder that `transformers` loads: config.json, model.safetensors, tokenizer.json.

    Parameters
    ----------
    run
        The run folder: a GPT-2, Llama, BERT, DistilBERT or Marian in its shape, imported or trained here.
    folder
        The folder to make.
    to
        The layout; huggingface is the only one.
    json
        Print what was made as JSON.
    """
    from seqloom.interop import give

    if to != "huggingface":
        raise ValueError(f"--to {to}: the only layout that can be written is huggingface")
    kind = give(opened(run, None), folder)
    show({"run": str(run), "folder": str(folder), "kind": kind}, [f"{kind}: {folder}"], json)


@app.command
def embed(
    run: Path,
    file: str,
    /,
    *,
    out: Path | None = None,
    length: Count = 256,
    quantize: Kind | None = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """One vector for each line of a text: the mean of an encoder's features over its tokens, of length 1.

    Parameters
    ----------
    run
        The run folder of an encoder, such as an imported MiniLM.
    file
        A text, one sentence on a line; - is stdin.
    out
        A .npy file for the vectors; without it they are printed, one line of numbers for each.
    length
        Tokens that are read of a line.
    quantize
        Put the weights into bytes: a quarter of the memory. How near the vectors stay is told.
    threads
        CPU threads.
    json
        Print one JSON object for each line.
    """
    import numpy as np

    from seqloom.sentences import embed as vectors
    from seqloom.text.corpus import Lines

    loaded = opened(run, threads)
    texts = [line for (line,) in Lines([file])]
    if out is not None and out.suffix != ".npy":
        raise ValueError(f"{out}: vectors are written as .npy; choose such a name")
    if quantize:
        from seqloom.evaluate import quantize as put

        exact = vectors(loaded, texts[:SAMPLE], length=length)
        put(loaded, quantize)
    found = vectors(loaded, texts, length=length)
    if quantize and len(exact):
        near = (exact * found[:SAMPLE]).sum(1)
        print(
            f"{quantize}: cosine to full precision {near.mean():.5f}, lowest {near.min():.5f}, over {len(near)} lines",
            file=sys.stderr,
        )
    if out is not None:
        np.save(out, found)
        print(f"{len(found)} vectors of {found.shape[1]}: {out}", file=sys.stderr)
        return
    for text, vector in zip(texts, found, strict=True):
        numbers = [round(float(value), 6) for value in vector]
        print(
            jsons.dumps({"text": text, "vector": numbers}, ensure_ascii=False)
            if json
            else " ".join(f"{value:.6f}" for value in numbers)
        )
