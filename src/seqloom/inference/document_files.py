"""Documents in tables and JSON Lines, whose summaries may be there or not."""

from __future__ import annotations

from pathlib import Path

from seqloom.run import Run
from seqloom.text.corpus import JSONLines, Reader, Table
from seqloom.text.formats import FORMATS
from seqloom.text.lines import strip_compression


def document_reader(run: Run, path: Path) -> Reader | None:
    """The reader of the documents in a table or in JSON Lines, by the columns of the training; None for a file of text."""
    suffix = strip_compression(path).suffix.lower()
    options = run.config.parts["corpus"].keywords
    trained = run.config.reader_class
    if suffix in FORMATS["table"].suffixes:
        if trained is not Table:
            return Table([path], (0,), header="auto", kinds=("document",))
        return Table(
            [path],
            tuple(options.get("columns", (0,)))[:1],
            options.get("separator"),
            options.get("header", False),
            ("document",),
            tuple(options.get("header_names", ())),
        )
    if suffix in FORMATS["jsonl"].suffixes:
        fields = tuple(options.get("fields", ("document",))) if trained is JSONLines else ("document",)
        return JSONLines([path], fields[:1], ("document",))
    return None
