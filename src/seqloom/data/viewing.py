"""Shows what data files hold, read as training reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from seqloom.data.adapt import adapt_corpus
from seqloom.data.options import Data, as_list, resolve_data
from seqloom.errors import DataError
from seqloom.results import ProgressOption, Reporter
from seqloom.text import tables
from seqloom.text.corpus import Reader, Text, table_rows, table_separator
from seqloom.text.formats import FORMATS, check_format, detect_format
from seqloom.text.lines import first_lines
from seqloom.text.records import RecordSchema
from seqloom.text.summary import REPORTED, DataSummary, describe
from seqloom.text.tokenizer import Characters

CHECKED = {"text", "words", "tags", "label", "number", "passage", "span", "document", "summary"}  # kinds
SHOWN_REFUSALS = 3


def show(
    data: Data,
    *,
    format: str = "auto",
    columns: str | Sequence[int | str] | None = None,
    limit: int = 3,
    progress: ProgressOption = False,
) -> DataSummary:
    """What files hold: their form, fields, labels, doubles and the first `limit` records.

    `format` is one of text/formats.py; `columns` are columns of a table, or fields of JSON Lines, by name or number.

    >>> summary = seqloom.data.show("reviews.tsv")
    >>> summary.records, summary.labels
    (40, {'court': 17, 'animal': 16, 'land': 7})
    """
    reader = open_reader(data, format, columns)
    with Reporter("reading", None, progress) as report:
        summary = describe(reader, show=limit, advance=report.advance)
    with Reporter("checking", summary.records, progress) as report:
        warnings = [*summary.warnings, *refusals(reader, summary, report)]
    if isinstance(reader, Text) and (hint := labels_hint(reader)):
        warnings.append(hint)
    return replace(summary, warnings=warnings)


def refusals(reader: Reader, summary: DataSummary, report: Reporter) -> list[str]:
    """What a training refuses of the records, with the place of the first: an empty label, an empty text, a word without a tag."""
    if not summary.words and set(reader.kinds) <= CHECKED:
        return [f"{reader.paths[0]}: no words: there is nothing to learn; give a file with text"]
    if reader.is_plain or not set(reader.kinds) <= CHECKED:
        return []
    schema = RecordSchema(reader.kinds, [Characters(["a"])], reader.adds_eos, list(summary.labels))
    found: list[str] = []
    count = 0
    for number, record in enumerate(reader, 1):
        if number % REPORTED == 0:
            report.update(number)
        try:
            schema.check(record, reader.location)
        except DataError as error:
            count += 1
            if count <= SHOWN_REFUSALS:
                found.append(f"training refuses {error}")
    more = count - len(found)
    records = "1 more record" if more == 1 else f"{more:,} more records"
    return [*found, f"training refuses {records}"] if more else found


def labels_hint(reader: Text) -> str:
    """How to train on lines of a label and a text, if that is what they are; else empty."""
    path = reader.paths[0]
    lines = [
        line for line, _ in zip((record[0] for record in reader), range(tables.SAMPLE_ROWS), strict=False)
    ]
    if tables.label_words_are_texts_words(lines):
        return ""
    hint = tables.labelled_lines(lines, path)
    return f"{Path(path).name}: {hint}" if hint else ""


def open_reader(data: Data, format: str = "auto", columns: str | Sequence[int | str] | None = None) -> Reader:
    """The reader of files whose use is not known: texts, labels and numbers among the columns are guessed."""
    paths = resolve_data(data, ("text", "text"))
    if not paths:
        raise DataError("no files; give one or more")
    form = check_format(format)
    if form == "auto":
        form = "table" if columns is not None and detect_format(paths) == "text" else detect_format(paths)
    tree: dict[str, Any] = {"type": FORMATS[form].reader}
    fixed = {"type"}
    if form == "table":
        tree |= guess_table(paths[0], as_list(columns) if columns is not None else None)
        fixed.add("columns")
    elif form == "jsonl":
        tree |= guess_fields(paths[0], as_list(columns) if columns is not None else None)
        fixed.add("fields")
    elif columns is not None:
        raise DataError(f"{paths[0]}: {FORMATS[form].holds}, which has no columns; drop --columns")
    options = adapt_corpus(tree, paths, frozenset(fixed)).tree
    return FORMATS[form].reader_class(
        paths, **{key: value for key, value in options.items() if key != "type"}
    )


def guess_table(path: str | Path, columns: list[int | str] | None) -> dict[str, Any]:
    """The columns of a table and their kinds: those given, or the texts, labels and numbers that are found."""
    rows = [cells for _, cells in islice(table_rows(path, table_separator(path)), tables.SAMPLE_ROWS)]
    if not rows:
        raise DataError(f"{path}: no records; give a file with text")
    width = len(rows[0])
    rows = [row for row in rows if len(row) == width]
    named = any(isinstance(column, str) for column in columns or [])
    everything = [tables.guess_kind([row[column] for row in rows[1:] or rows]) for column in range(width)]
    header = named or tables.has_header(rows, range(width), everything)
    body = (rows[1:] if header else rows) or rows
    if columns is None:
        kinds = [
            tables.guess_kind([row[i] for row in body], rows[0][i] if header else "") for i in range(width)
        ]
        chosen = [index for index, kind in enumerate(kinds) if kind != "other"] or [0]
        return {
            "columns": chosen,
            "kinds": [kinds[i].replace("other", "text") for i in chosen],
            "header": header,
        }
    numbers = tables.column_numbers(columns, rows[0] if header else (), f"{path}:1")
    for number in numbers:
        if not -width <= number < width:
            raise DataError(f"{path}:1: no column {number} among {width}; count from 0")
    kinds = [tables.guess_kind([row[i] for row in body], rows[0][i] if header else "") for i in numbers]
    return {"columns": columns, "kinds": [kind.replace("other", "text") for kind in kinds], "header": header}


def guess_fields(path: str | Path, fields: list[int | str] | None) -> dict[str, Any]:
    """The fields of JSON Lines and their kinds: those given, or the texts, labels and numbers that are found."""
    import json

    records = []
    for number, line in enumerate(first_lines(path, tables.SAMPLE_ROWS), 1):
        if line.strip():
            try:
                records.append(json.loads(line))
            except (ValueError, RecursionError):
                if not records:
                    raise DataError(f"{path}:{number}: not JSON; write one object per line") from None
                break  # the block ends inside this line
    if not records or not isinstance(records[0], dict):
        raise DataError(f"{path}:1: no JSON object; write one object per line")
    names = [name for name, value in records[0].items() if isinstance(value, str | int | float | list)]
    kinds: dict[str, str] = {}
    for name in [str(field) for field in fields] if fields is not None else names:
        values = [record.get(name) for record in records if isinstance(record, dict)]
        if any(isinstance(value, list) for value in values):
            kinds[name] = "tags" if tables.is_name(name, "tags") else "words"
        else:
            kinds[name] = tables.guess_kind([str(value) for value in values if value is not None], name)
    if fields is None:
        kinds = {name: kind for name, kind in kinds.items() if kind != "other"} or kinds
    return {"fields": list(kinds), "kinds": [kind.replace("other", "text") for kind in kinds.values()]}
