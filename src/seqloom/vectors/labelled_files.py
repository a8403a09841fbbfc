"""Files of labelled texts: TSV, CSV, JSON lines, or `label text` lines as in SST and fastText (`__label__x text`).

The form is recognised by the first line. In a table the columns come from a header (label and text, sentence or review) or, without one, the
label is the column with fewer different values. Left out: several labels a text.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path

from seqloom.text.corpus import JSONLines, Table
from seqloom.text.lines import lines

LABEL = ("label", "labels", "class", "category", "sentiment", "target", "tag")
TEXT = ("text", "sentence", "review", "document", "content", "title", "phrase")


def read(path: str | Path) -> tuple[list[str], list[str]]:
    """(texts, labels) of a file."""
    first = next((line for line in lines(path) if line.strip()), "")
    if first.lstrip().startswith("{"):
        pairs = list(JSONLines([path], _named(path, first)))
    elif "\t" in first or str(path).removesuffix(".gz").endswith(".csv"):
        pairs = _table(path, first)
    else:
        pairs = list(_spaced(path))
    pairs = [(text, label.strip().removeprefix("__label__")) for text, label in pairs]
    if not pairs:
        raise ValueError(f"{path}: no labelled text; give lines of a label and a text")
    if len({label for _, label in pairs}) > max(20, len(pairs) // 2):
        raise ValueError(
            f"{path}: nearly every text has a label of its own, such as {pairs[0][1]!r}; give lines of a label and a text"
        )
    return [text for text, _ in pairs], [label for _, label in pairs]


def _named(path: str | Path, line: str) -> tuple[str, str]:
    """The names of the text's and the label's field in a JSON line."""
    try:
        fields = list(json.loads(line))
    except ValueError as error:
        raise ValueError(f"{path}:1: not JSON ({error}); write one object per line") from None
    found = [next((field for field in fields if field.lower() in names), None) for names in (TEXT, LABEL)]
    if None in found:
        raise ValueError(
            f"{path}:1: no fields 'text' and 'label' among {', '.join(map(repr, fields))}; name them so"
        )
    return found[0], found[1]


def _table(path: str | Path, first: str) -> list[tuple[str, str]]:
    separator = "\t" if "\t" in first else ","
    names = [cell.strip().lower() for cell in next(csv.reader([first], delimiter=separator))]
    label, text = (
        next((at for at, name in enumerate(names) if name in known), None) for known in (LABEL, TEXT)
    )
    if label is not None and text is not None:
        return list(Table([path], (text, label), separator, header=True))
    rows = list(Table([path], (0, 1), separator))
    if len({row[0] for row in rows}) <= len({row[1] for row in rows}):
        return [(text, label) for label, text in rows]
    return rows


def _spaced(path: str | Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(lines(path), 1):
        if line.strip():
            label, _, text = line.strip().partition(" ")
            if not text:
                raise ValueError(
                    f"{path}:{number}: {label[:40]!r} is one word, not a label and a text; write: label text"
                )
            yield text, label
