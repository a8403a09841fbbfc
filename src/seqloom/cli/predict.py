"""Answers for whole files: tags, labels, numbers, spans."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from seqloom.cli.app import Threads, app, opened


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
    """Fill in what a run has learnt to say about each record of a file: tags, a label, a number, an answer.

    Parameters
    ----------
    run
        The run folder.
    file
        CoNLL-U (.conllu), columns (.conll), a table (.tsv, .csv), JSON Lines (.jsonl), SQuAD's form (.json) or lines of text; .gz is read too, and
        stdin (-). What is called .txt, .tsv, .json or anything else is read as in training if its first record can be, and stdin always.
        Columns with the right answers may be there; they are not read.
    form
        The form of the file, whatever it is called.
    out
        The file to write; it comes out in the form it went in.
    threads
        CPU threads.
    json
        One JSON object for each record, with probabilities.
    """
    from seqloom.files import writing
    from seqloom.tasks.forms import filled

    pieces = filled(opened(run, threads), file, json, form)
    if out is None:
        for piece in pieces:
            sys.stdout.write(piece)
        sys.stdout.flush()
        return
    with writing(out) as target:
        for piece in pieces:
            target.write(piece.encode())
