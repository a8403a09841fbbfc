"""Divides data files into train, valid and test as training holds records out: by content, each label its share.

The parts have the form of the file, with its header. Running text is cut from its end.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.data.near import near_groups
from seqloom.data.options import Data
from seqloom.data.viewing import open_reader
from seqloom.errors import DataError
from seqloom.files import write_atomic
from seqloom.results import Result
from seqloom.text import annotated, tables
from seqloom.text.annotated import SQuAD
from seqloom.text.corpus import Parallel, Reader, Table, Text, table_rows, table_separator
from seqloom.text.dictionary import Dictionary, parse_entry
from seqloom.text.formats import format_of
from seqloom.text.lines import lines, strip_compression
from seqloom.text.split import assign_sides, input_text, key_fields, record_key

By = Literal["record", "word", "near"]


@dataclass(frozen=True)
class SplitFiles(Result):
    """The folder with the parts, the files of each part, and the number of its records and labels."""

    folder: Path
    files: dict[str, list[str]]
    records: dict[str, int]
    labels: dict[str, dict[str, int]]

    def lines(self) -> list[str]:
        """The result as text."""
        lines = []
        for part, count in self.records.items():
            labels = ", ".join(
                f"{label} {number:,}" for label, number in sorted(self.labels.get(part, {}).items())[:20]
            )
            lines.append(
                f"{part}: {count:,} records{': ' + labels if labels else ''}; {' '.join(self.files[part])}"
            )
        return lines


class Unit(NamedTuple):
    """A record as text, one for each file, its key values, and its label."""

    texts: tuple[str, ...]
    key: list[Any]
    label: str | None


def split(
    data: Data,
    out: str | Path,
    *,
    valid: float = 0.05,
    test: float = 0.05,
    by: By = "record",
    format: str = "auto",
    columns: str | None = None,
) -> SplitFiles:
    """Writes `out`/train, valid and test files. Equal inputs are in one part; `by` word: all records whose first field is the same; near: also
    inputs that differ in a fifth of their words, or are linked by such inputs.

    A share of 0 leaves a part out.

    >>> seqloom.data.split("reviews.tsv", out="parts", valid=0.1, test=0.1).records
    {'train': 32, 'valid': 4, 'test': 4}
    """
    reader = open_reader(data, format, columns)
    folder = Path(out)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise DataError(f"{folder}: exists and is not an empty folder; choose another --out")
    shares = {name: share for name, share in (("test", test), ("valid", valid)) if share}
    if not shares:
        raise DataError("nothing to split off; give --valid or --test a share, such as 0.1")
    units = list(iterate_units(reader))
    sides = sides_of(reader, units, list(shares.values()), by)
    suffixes = [unpacked_suffix(path) for path in reader.paths[: 2 if isinstance(reader, Parallel) else 1]]
    if isinstance(reader, Dictionary):
        suffixes = [".dict"]
    if len(suffixes) == 2 and suffixes[0] == suffixes[1]:
        suffixes = [f".source{suffixes[0]}", f".target{suffixes[1]}"]
    folder.mkdir(parents=True, exist_ok=True)
    header = header_of(reader)
    files: dict[str, list[str]] = {}
    records: dict[str, int] = {}
    labels: dict[str, dict[str, int]] = {}
    for side, name in [(0, "train"), *sorted(enumerate(shares, 1), reverse=True)]:
        chosen = [unit for unit, where in zip(units, sides, strict=True) if where == side]
        files[name] = [str(folder / f"{name}{suffix}") for suffix in suffixes]
        for index, path in enumerate(files[name]):
            write_atomic(path, render(reader, [unit.texts[index] for unit in chosen], header))
        records[name] = len(chosen)
        labels[name] = count_labels(chosen)
    return SplitFiles(folder, files, records, labels)


def sides_of(reader: Reader, units: Sequence[Unit], shares: list[float], by: By) -> np.ndarray:
    """The part of each record: 0 for train, then as the shares."""
    if not units:
        raise DataError(f"{reader.paths[0]}: no records; give a file with text")
    if isinstance(reader, Text):
        sizes = np.cumsum([len(unit.texts[0]) for unit in units])
        if len(units) <= len(shares):
            raise DataError(f"{reader.paths[0]}: {len(units)} lines cannot be split; give a longer text")
        sides = np.zeros(len(units), np.uint8)
        end = len(units)
        for side in range(1, len(shares) + 1):
            start = int(np.searchsorted(sizes, sizes[-1] * (1 - sum(shares[:side]))))
            start = min(max(start, len(shares) - side + 1), end - 1)
            sides[start:end] = side
            end = start
        return sides
    values = [unit.key[:1] if by == "word" else unit.key for unit in units]
    if by == "near":
        groups = near_groups(["\n".join(map(input_text, value)) for value in values])
        values = [values[group] for group in groups]
    keys = np.frombuffer(b"".join(map(record_key, values)), ">u8").astype(np.uint64)
    strata = None
    if units[0].label is not None:
        names = sorted({unit.label or "" for unit in units})
        numbers = {name: number for number, name in enumerate(names)}
        strata = np.array([numbers[unit.label or ""] for unit in units])
    return assign_sides(keys, shares, strata)


def iterate_units(reader: Reader) -> Iterator[Unit]:
    """The records of a reader with their text in the files."""
    fields = key_fields(reader.kinds)
    label = reader.kinds.index("label") if "label" in reader.kinds else None

    def unit(texts: tuple[str, ...], record: Sequence[Any]) -> Unit:
        return Unit(texts, [record[i] for i in fields], None if label is None else record[label])

    if isinstance(reader, Parallel):
        for source, target in Parallel(reader.paths):
            yield unit((source, target), (source, target))
        return
    for path in reader.paths:
        if isinstance(reader, Table):
            records = type(reader)([path], *table_options(reader))
            skip = 1 if has_header_row(reader, path) else 0
            rows = [cells for _, cells in table_rows(path, reader.separator or table_separator(path))][skip:]
            for cells, record in zip(rows, records, strict=True):
                yield unit((join_cells(cells, path, reader),), record)
        elif isinstance(reader, Dictionary):
            for number, line in enumerate(lines(path), 1):
                if pair := parse_entry(line, f"{path}:{number}"):
                    yield unit((line.rstrip(),), pair)
        elif isinstance(reader, SQuAD):
            for article in annotated.articles(path):
                for paragraph in article["paragraphs"]:
                    yield Unit((json.dumps(paragraph, ensure_ascii=False),), [paragraph["context"]], None)
        elif format_of(type(reader)) in ("conllu", "conll"):
            for (_, rows_of_sentence), record in zip(word_groups(path), one_file(reader, path), strict=True):
                yield unit(("\n".join(rows_of_sentence) + "\n",), record)
        else:  # one record a line
            texts = [line for line in lines(path) if line.strip() or not reader.adds_eos]
            if isinstance(reader, Text):
                yield from (Unit((line,), [line], None) for line in texts)
            else:
                records_of_file = (
                    record for record in one_file(reader, path) if any(map(has_content, record))
                )
                for line, record in zip(texts, records_of_file, strict=True):
                    yield unit((line,), record)


def has_content(value: Any) -> bool:
    return bool(value.strip()) if isinstance(value, str) else True


def one_file(reader: Reader, path: str | Path) -> Iterator[tuple]:
    """The records of one of a reader's files."""
    return reader.records(path)


def table_options(reader: Table) -> tuple[Any, ...]:
    """The options of a table without those that leave rows out."""
    return reader.columns, reader.separator, reader.header, reader.kinds, reader.header_names


def has_header_row(reader: Table, path: str | Path) -> bool:
    """Whether the first row of one of a table's files is a header."""
    first = next((cells for _, cells in table_rows(path, reader.separator or table_separator(path))), [])
    return tables.is_header_row(first, reader.header, reader.header_names)


def join_cells(cells: Sequence[str], path: str | Path, reader: Table) -> str:
    """A row as text."""
    separator = reader.separator or table_separator(path)
    if separator == "\t":
        return "\t".join(cells)
    row = io.StringIO()
    csv.writer(row, delimiter=separator, lineterminator="").writerow(cells)
    return row.getvalue()


def word_groups(path: str | Path) -> Iterator[tuple[int, list[str]]]:
    """The sentences of a file of columns that have words."""
    shape = annotated.file_shape(path)
    for number, rows in annotated.sentences(lines(path)):
        if any(annotated.row_cells(row, shape) for row in rows if not row.startswith("#")):
            yield number, rows


def header_of(reader: Reader) -> str:
    """The header of a table, with its line end; empty if there is none."""
    if not isinstance(reader, Table) or not has_header_row(reader, reader.paths[0]):
        return ""
    separator = reader.separator or table_separator(reader.paths[0])
    first = next(cells for _, cells in table_rows(reader.paths[0], separator))
    return join_cells(first, reader.paths[0], reader) + "\n"


def render(reader: Reader, texts: Sequence[str], header: str) -> str:
    """The content of a part."""
    if isinstance(reader, SQuAD):
        return '{"data": [{"title": "", "paragraphs": [' + ", ".join(texts) + "]}]}\n"
    return header + "".join(f"{text}\n" for text in texts)


def unpacked_suffix(path: str | Path) -> str:
    """The suffix of the parts of a file, which are not compressed."""
    return strip_compression(path).suffix or ".txt"


def count_labels(units: Sequence[Unit]) -> dict[str, int]:
    """How often each label occurs."""
    counts: dict[str, int] = {}
    for unit in units:
        if unit.label is not None:
            counts[unit.label] = counts.get(unit.label, 0) + 1
    return counts
