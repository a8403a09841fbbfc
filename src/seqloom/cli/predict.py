"""Verbs: predict tags, labels, numbers or answers for a file; embed its lines."""

from __future__ import annotations

import json as jsons
import sys
from pathlib import Path
from typing import Literal

from seqloom.cli.app import Count, Kind, Threads, app, open_run

SAMPLE = 256  # lines that are also embedded in float32, to report the error of int8


@app.command
def predict(
    run: Path,
    file: str,
    /,
    *,
    form: Literal["CoNLLU", "Columns", "Table", "JSONLines", "SQuAD", "Lines"] | None = None,
    out: Path | None = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Predict tags, a label, a number or an answer for each record of a file, and write the file with them.

    Parameters
    ----------
    run
        The run folder.
    file
        CoNLL-U (.conllu), columns (.conll), a table (.tsv, .csv), JSON Lines (.jsonl), SQuAD's form (.json) or lines of text; .gz is read too, and
        stdin (-). What is called .txt, .tsv, .json or anything else is read as in training if its first record can be, and stdin always.
        Columns with the right answers may be there; they are not read.
    form
        The format of the file, whatever its name.
    out
        The file to write, in the format of the input.
    threads
        CPU threads.
    json
        One JSON object for each record, with probabilities.
    """
    from seqloom.files import open_atomic
    from seqloom.inference.file_formats import fill_file

    pieces = fill_file(open_run(run, threads), file, json, form)
    if out is None:
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    with open_atomic(out) as target:
        for piece in pieces:
            target.write(piece.encode())


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
        Maximum number of tokens of a line.
    quantize
        int8: one byte per weight, a quarter of the memory. Prints how close the vectors are to full precision.
    threads
        CPU threads.
    json
        Print one JSON object for each line.
    """
    import numpy as np

    from seqloom.inference.embeddings import embed as embed_texts
    from seqloom.text.corpus import Lines

    loaded = open_run(run, threads)
    texts = [line for (line,) in Lines([file])]
    if out is not None and out.suffix != ".npy":
        raise ValueError(f"{out}: vectors are written as .npy; choose a name with that suffix")
    exact = np.zeros((0, 0), np.float32)
    if quantize:
        from seqloom.inference.generation import quantize as quantize_run

        exact = embed_texts(loaded, texts[:SAMPLE], length=length)
        quantize_run(loaded, quantize)
    vectors = embed_texts(loaded, texts, length=length)
    if len(exact):
        cosines = (exact * vectors[:SAMPLE]).sum(1)
        print(
            f"{quantize}: cosine to full precision {cosines.mean():.5f}, lowest {cosines.min():.5f}, "
            f"over {len(cosines)} lines",
            file=sys.stderr,
        )
    if out is not None:
        np.save(out, vectors)
        print(f"{len(vectors)} vectors of {vectors.shape[1]}: {out}", file=sys.stderr)
        return
    for text, vector in zip(texts, vectors, strict=True):
        numbers = [round(float(value), 6) for value in vector]
        print(
            jsons.dumps({"text": text, "vector": numbers}, ensure_ascii=False)
            if json
            else " ".join(f"{value:.6f}" for value in numbers)
        )
