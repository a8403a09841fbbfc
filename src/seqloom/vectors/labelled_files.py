"""Files of labelled texts: TSV, CSV, JSON lines, or `label text` lines as in SST and fastText.

The first line decides the format. The columns of a table come from a header (label and text, sentence or
review); without a header, the label is the column with fewer distinct values. Left out: several labels per
text.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from seqloom.errors import DataError
from seqloom.text.corpus import JSONLines, Table
from seqloom.text.lines import lines

LABEL = ("label", "labels", "class", "category", "sentiment", "target", "tag")
TEXT = ("text", "sentence", "review", "document", "content", "title", "phrase")


def read(path: str | Path) -> tuple[list[str], list[str]]:
    """The texts and the labels of a file."""
    first = next((line for line in lines(path) if line.strip()), "")
    if first.lstrip().startswith("{"):
        pairs = list(JSONLines([path], _field_names(path, first)))
    elif "\t" in first or str(path).removesuffix(".gz").endswith(".csv"):
        pairs = _read_table(path, first)
    else:
        pairs = list(_read_lines(path))
    pairs = [(text, label.strip().removeprefix("__label__")) for text, label in pairs]
    if not pairs:
        raise DataError(f"{path}: no labelled text; give lines of a label and a text")
    if len({label for _, label in pairs}) > max(20, len(pairs) // 2):
        raise DataError(
            f"{path}: nearly every text has a different label, such as {pairs[0][1]!r}; give lines of a label and a text"
        )
    return [text for text, _ in pairs], [label for _, label in pairs]


def _field_names(path: str | Path, line: str) -> tuple[str, str]:
    """The names of the text field and the label field of a JSON line."""
    try:
        fields = list(json.loads(line))
    except ValueError as error:
        raise DataError(f"{path}:1: not JSON ({error}); write one object per line") from None
    text = next((field for field in fields if field.lower() in TEXT), None)
    label = next((field for field in fields if field.lower() in LABEL), None)
    if text is None or label is None:
        names = ", ".join(map(repr, fields))
        raise DataError(f"{path}:1: no fields 'text' and 'label' among {names}; rename the fields")
    return text, label


def _read_table(path: str | Path, first: str) -> list[tuple[str, str]]:
    """The (text, label) pairs of a table with or without a header."""
    separator = "\t" if "\t" in first else ","
    names = [cell.strip().lower() for cell in next(csv.reader([first], delimiter=separator))]
    label_column = next((index for index, name in enumerate(names) if name in LABEL), None)
    text_column = next((index for index, name in enumerate(names) if name in TEXT), None)
    if label_column is not None and text_column is not None:
        return list(Table([path], (text_column, label_column), separator, header=True))
    rows = list(Table([path], (0, 1), separator))
    if len({row[0] for row in rows}) <= len({row[1] for row in rows}):
        return [(text, label) for label, text in rows]
    return rows


def _read_lines(path: str | Path) -> Iterator[tuple[str, str]]:
    """The (text, label) pairs of `label text` lines."""
    for line_number, line in enumerate(lines(path), 1):
        if line.strip():
            label, _, text = line.strip().partition(" ")
            if not text:
                raise DataError(
                    f"{path}:{line_number}: {label[:40]!r} is one word, not a label and a text; write: label text"
                )
            yield text, label
