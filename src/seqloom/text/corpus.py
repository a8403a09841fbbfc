"""Readers: files → records, each a tuple of fields, streamed in constant memory.

A reader is made with the paths of `--data`. It can be iterated any number of times, says what its fields are (`kinds`, see `kinds.py`), whether
its records end (`ends`, A16) and where the latest stands (`at`), and names its content (`digest`). How bytes become lines, and which bytes are
refused, is in `lines.py`; annotated sentences and questions are in `annotated.py`.

Left out: sorting, filtering and sampling. A reader gives what the file says, in its order.
"""

import csv
import hashlib
import json
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from seqloom.text.lines import blocks, lines, local_copy

Paths = Sequence[str | Path]


class Reader:
    """Records of the files at `paths`, one file after the other. A subclass says how one file becomes records."""

    ends = True  # a record is a whole sequence: the store puts <eos> after it
    kinds: tuple[str, ...] = ("text",)
    at = ""  # file:line of the record that came last
    measure = "translation"  # how outputs are scored where records are pairs: translation, or pronunciation

    def __init__(self, paths: Paths):
        self.paths = [paths] if isinstance(paths, str | Path) else list(paths)
        if not self.paths:
            raise ValueError("no file to read; give at least one path, or - for the standard input")
        for path in self.paths:
            local_copy(path)

    def __iter__(self) -> Iterator[tuple]:
        for path in self.paths:
            yield from self.records(path)

    def records(self, path: str | Path) -> Iterator[tuple]:
        """The records of one file."""
        raise NotImplementedError

    def options(self) -> tuple:
        """What besides the files decides the records."""
        return ()

    def digest(self) -> str:
        """SHA-256 of this reader's kind, its options and the content of its files."""
        total = hashlib.sha256(repr((type(self).__name__, self.options())).encode())
        for path in self.paths:
            with local_copy(path).open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()


class Text(Reader):
    """Raw text as one stream: a record is a line with its newline, so the records in a row are the file.

    CR LF reads as one newline and a byte-order mark is dropped. A line above 1 MB comes in pieces.
    """

    ends = False

    def records(self, path: str | Path) -> Iterator[tuple[str]]:
        for text in blocks(path):
            *whole, rest = text.split("\n")
            self.at = str(path)
            for line in whole:
                yield (line + "\n",)
            if rest:
                yield (rest,)


class Lines(Reader):
    """Each line is a record, without its newline."""

    def records(self, path: str | Path) -> Iterator[tuple[str]]:
        for number, line in enumerate(lines(path), 1):
            self.at = f"{path}:{number}"
            yield (line,)


class Parallel(Reader):
    """Two files of equally many lines: (source, target)."""

    kinds = ("text", "text")

    def __init__(self, paths: Paths):
        super().__init__(paths)
        if len(self.paths) != 2:
            way = "give exactly two paths, or corpus.type=Table where one file has both in columns"
            raise ValueError(f"parallel text is two files, source and target, not {len(self.paths)}; {way}")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        count, short = 0, 0
        for source, target in zip_longest(*map(lines, self.paths)):
            count += 1
            if source is None or target is None:
                short = short or (1 if source is None else 2)
            else:
                self.at = f"{self.paths[0]}:{count}"
                yield source, target
            if short:
                break
        if short:
            sizes = [sum(1 for _ in lines(path)) for path in self.paths]
            raise ValueError(
                f"{self.paths[short - 1]}:{count}: the file ends here: {self.paths[0]} has {sizes[0]} lines, "
                f"{self.paths[1]} has {sizes[1]}; make them line up"
            )


class Table(Reader):
    """The cells of `columns` in each row of a TSV or CSV file. Only where the separator is a tab do quotes mean nothing.

    `separator` None is a comma for .csv and a tab otherwise; `header` skips the first row. Blank lines are skipped. `kinds` says what each of
    the columns is; text where not said.
    """

    def __init__(
        self,
        paths: Paths,
        columns: tuple[int, ...] = (0, 1),
        separator: str | None = None,
        header: bool = False,
        kinds: tuple[Literal["text", "words", "tags", "label", "number"], ...] | None = None,
    ):
        super().__init__(paths)
        if separator is not None and len(separator) != 1:
            raise ValueError(f"separator {separator!r} is not one character; give one, such as a comma")
        if not columns:
            raise ValueError("no columns to read; give at least one, counted from 0")
        self.columns, self.separator, self.header = tuple(columns), separator, header
        self.kinds = check_kinds(kinds, len(self.columns), "columns")

    def options(self) -> tuple:
        more = () if set(self.kinds) == {"text"} else (self.kinds,)
        return self.columns, [self._separator(path) for path in self.paths], self.header, *more

    def _separator(self, path: str | Path) -> str:
        return self.separator or ("," if str(path).removesuffix(".gz").endswith(".csv") else "\t")

    def records(self, path: str | Path) -> Iterator[tuple[str, ...]]:
        width = None
        for number, cells in table_rows(path, self._separator(path)):
            if width is None:
                width = len(cells)
                for column in self.columns:
                    if not -width <= column < width:
                        raise ValueError(
                            f"{path}:{number}: no column {column} among {width}; count from 0, or give the right separator"
                        )
                if self.header:
                    continue
            if len(cells) != width:
                raise ValueError(
                    f"{path}:{number}: {len(cells)} cells, but the first row has {width}; repair the row"
                )
            self.at = f"{path}:{number}"
            yield tuple(cells[column] for column in self.columns)


def check_kinds(kinds: tuple[str, ...] | None, count: int, what: str) -> tuple[str, ...]:
    """The kinds of so many fields; text where none are said."""
    kinds = ("text",) * count if kinds is None else tuple(kinds)
    if len(kinds) != count:
        raise ValueError(f"{len(kinds)} kinds ({', '.join(kinds)}) for {count} {what}; give each one kind")
    return kinds


def table_rows(path: str | Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """(line number, cells) of each row that is not blank."""
    if separator == "\t":
        for number, line in enumerate(lines(path), 1):
            if line.strip():
                yield number, line.split("\t")
        return
    rows = csv.reader((line + "\n" for line in lines(path)), delimiter=separator, strict=True)
    start = 1
    try:
        for cells in rows:
            if cells:
                yield start, cells
            start = rows.line_num + 1
    except csv.Error as error:
        raise ValueError(f"{path}:{start}: not CSV ({error}); look for a quote that is not closed") from error


class JSONLines(Reader):
    """The `fields` of one JSON object per line; numbers come as their text. Blank lines are skipped.

    `kinds` says what each field is, text where not said: words and tags are lists, a span is {"answer_start": [n, …], "text": [answer, …]}.
    """

    def __init__(
        self,
        paths: Paths,
        fields: tuple[str, ...] = ("text",),
        kinds: tuple[Literal["text", "words", "tags", "label", "number", "passage", "span"], ...]
        | None = None,
    ):
        super().__init__(paths)
        if not fields:
            raise ValueError("no fields to read; give at least one name")
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
        self.kinds = check_kinds(kinds, len(self.fields), "fields")

    def options(self) -> tuple:
        return self.fields if set(self.kinds) == {"text"} else (self.fields, self.kinds)

    def records(self, path: str | Path) -> Iterator[tuple]:
        for number, line in enumerate(lines(path), 1):
            if line.strip():
                self.at = f"{path}:{number}"
                yield self._record(self.at, line)

    def _record(self, place: str, line: str) -> tuple:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: not JSON ({error}); write one object per line") from error
        if not isinstance(record, dict):
            raise ValueError(
                f"{place}: a JSON {type(record).__name__}, not an object; write one object per line"
            )
        for field in self.fields:
            if field not in record:
                raise ValueError(
                    f"{place}: no field {field!r}; it has {', '.join(map(repr, record)) or 'none'}"
                )
        return tuple(
            _value(place, field, record[field], kind)
            for field, kind in zip(self.fields, self.kinds, strict=True)
        )


def _value(place: str, field: str, value: Any, kind: str) -> Any:
    """A field of a JSON object as its kind wants it."""
    if kind in ("words", "tags") and isinstance(value, list):
        return [_value(place, field, one, "text") for one in value]
    if kind == "span":
        return parse_answers(place, value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise ValueError(f"{place}: field {field!r} is neither text nor a number; choose another field")
    if isinstance(value, str) and not is_valid_unicode(value):
        raise ValueError(f"{place}: field {field!r} holds half a surrogate pair; write the whole character")
    return str(value)


def parse_answers(place: str, value: Any) -> list[tuple[int, str]]:
    """(start, text) of each answer: of {"answer_start": [n, …], "text": [answer, …]} or a list of {"answer_start": n, "text": answer}."""
    try:
        rows = (
            zip(value["answer_start"], value["text"], strict=True)
            if isinstance(value, dict)
            else [(a["answer_start"], a["text"]) for a in value]
        )
        found = [
            (start, text)
            for start, text in rows
            if isinstance(start, int) and isinstance(text, str) and is_valid_unicode(text)
        ]
        if len(found) == len(value["text"] if isinstance(value, dict) else value):
            return found
    except (KeyError, TypeError, ValueError):
        pass
    raise ValueError(
        f'{place}: answers are {{"answer_start": [n, …], "text": [answer, …]}} or a list of such; correct them'
    )


def is_valid_unicode(text: str) -> bool:
    """Whether no half of a surrogate pair is in a text."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True
