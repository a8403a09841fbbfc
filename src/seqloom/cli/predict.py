"""Verb: predict tags, labels, numbers or answers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from seqloom.cli.app import USE, app, json_text
from seqloom.cli.inputs import input_files, open_run
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Count,
    Files,
    Machine,
    MachineOptions,
    OutPath,
    Overwrite,
    RunPath,
)
from seqloom.cli.outputs import check_output, write_pieces
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.run import Run


@app.command(group=USE)
def predict(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    format: str = "auto",
    top: Count = 1,
    out: OutPath = None,
    overwrite: Overwrite = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Predict labels, tags, answers or numbers.

    Texts are printed with their predictions between tabs. A file is written as it is, with its predictions filled in.

    Examples:
      seqloom predict runs/reviews "a gripping , funny film"
      seqloom predict runs/reviews --file new.tsv --out labelled.tsv
      seqloom predict runs/tagger --file text.conllu --json

    Parameters
    ----------
    run
        The run folder.
    texts
        Texts; a tab between the two of a pair. Files, if the run labels pictures or sounds.
    file
        Files to fill in: CoNLL-U, columns, TSV, CSV, JSON Lines, SQuAD's form or lines of text; - or nothing is stdin. Right answers may be
        there; they are not read.
    format
        The form of the files: conllu, conll, table, jsonl, squad or lines; auto goes by their names, and by what the run was trained on.
    top
        How many labels to print, most probable first.
    out
        The file to write, in the form of the input.
    overwrite
        Replace the file that is already there.
    """
    from seqloom.inference.file_formats import check_filled, fill_file
    from seqloom.inference.prediction import require_task

    check_output(out, overwrite)
    check_filled(format)
    loaded = open_run(run, machine.threads)
    require_task(loaded)
    if top > 1 and loaded.model.task != "classification":
        raise UserError(f"--top {top}: only labels of texts have alternatives to print; drop --top")
    names_files = loaded.model.reads != "text" and bool(texts)  # pictures or sounds
    if file and loaded.model.reads != "text":
        raise UserError(
            f"--file: {loaded.folder} reads pictures or sounds, and no table of them is filled in; give the files as arguments, as in: "
            f"seqloom predict {loaded.folder} FILE …"
        )
    files = [] if names_files else input_files(texts, file, 'seqloom predict RUN "a fine film"')
    if files:
        pieces: Iterator[str] = (
            piece for path in files for piece in fill_file(loaded, path, common.json, format, top)
        )
    else:
        pieces = predict_texts(loaded, texts, top, common.json)
    write_pieces(pieces, out, "predicting", common.progress)


def predict_texts(run: Run, texts: Sequence[str], top: int, json: bool) -> Iterator[str]:
    """Each text with its prediction, as a line. The two texts of a pair are separated by a tab."""
    from seqloom.inference.file_format import input_names
    from seqloom.inference.prediction import input_fields, model_input, predict_stream

    fields = input_fields(run)
    records = []
    for number, text in enumerate(texts, 1):
        record = tuple(text.split("\t")) if len(fields) > 1 and "\t" in text else text
        records.append((f"text {number}", model_input(run, record, f"text {number}")))
    for text, (_, record), prediction in zip(
        texts, records, predict_stream(run, records, False), strict=True
    ):
        if json:
            inputs = {"file": text} if run.model.reads != "text" else input_names(fields, record)
            line = json_text({**inputs, **prediction.fields()})
        else:
            line = "\t".join([text, *prediction.cells(top)])
        yield line + "\n"
