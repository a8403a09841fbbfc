"""Verb: summarize documents."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom.cli.app import USE, app, json_text
from seqloom.cli.decoding_options import Translating, TranslatingOptions
from seqloom.cli.inputs import check_texts, input_files, iterate_files, open_run
from seqloom.cli.options import (
    Common,
    CommonOptions,
    Files,
    Machine,
    MachineOptions,
    OutPath,
    Overwrite,
    RunPath,
)
from seqloom.cli.outputs import check_output, write_pieces

if TYPE_CHECKING:
    from seqloom.run import Run

EXAMPLE = 'seqloom summarize RUN "The bridge in Jasiham was grey until Friday. Now it is blue."'


@app.command(group=USE)
def summarize(
    run: RunPath,
    /,
    *texts: str,
    file: Files = None,
    lines: bool = False,
    decoding: TranslatingOptions = Translating(),
    out: OutPath = None,
    overwrite: Overwrite = False,
    machine: MachineOptions = Machine(),
    common: CommonOptions = Common(),
) -> None:
    """Summarize documents: one line for each.

    A text file is one document; a table or JSON Lines has one in each row. Of documents that are longer than those of the training, the
    beginning is read, and a warning says how many were cut.

    Examples:
      seqloom summarize runs/pointer --file article.txt
      seqloom summarize runs/pointer --file articles.tsv --out summaries.txt
      seqloom summarize runs/pointer --file article.txt --max-tokens 40 --json

    Parameters
    ----------
    run
        The run folder.
    texts
        Documents.
    file
        Files: a text is one document, .tsv, .csv and .jsonl have one in each row; - or nothing is stdin, one document.
    lines
        Each line of a text file is a document.
    out
        The file to write; stdout by default.
    overwrite
        Replace the file that is already there.
    """
    from seqloom.inference.one_or_many import in_blocks
    from seqloom.inference.summarization import check_summarizes, summarize_texts, summary_plan
    from seqloom.inference.unknown_text import UnknownText

    check_output(out, overwrite)
    files = input_files(texts, file, EXAMPLE)
    loaded = open_run(run, machine.threads)
    check_summarizes(loaded)
    plan = summary_plan(loaded, decoding.options(machine.seed))
    if texts:
        check_texts(texts, "a document")
    documents = read_documents(loaded, files, lines) if files else iter(texts)
    unknown = UnknownText(loaded)
    work = unknown.watch(partial(summarize_texts, loaded, plan))
    summaries = in_blocks(documents, work, unknown.warn)
    pieces = (
        json_text(summary.to_dict()) + "\n"
        if common.json
        else "\t".join(" ".join(output.text.split()) for output in summary.outputs) + "\n"
        for summary in summaries
    )
    write_pieces(pieces, out, "summarizing", common.progress)


def read_documents(run: Run, files: list[str], lines: bool) -> Iterator[str]:
    """The documents of files."""
    from seqloom.errors import DataError
    from seqloom.inference.document_files import document_reader

    for name in files:
        reader = document_reader(run, Path(name)) if name != "-" else None
        if reader is not None:
            yield from (record[0] for record in reader)
        elif lines:
            yield from iterate_files([name])
        else:
            text = "\n".join(iterate_files([name]))
            if not text.strip():
                raise DataError(f"{name}: an empty document; give a text")
            yield text
