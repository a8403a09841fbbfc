"""Readers: files → records, each a tuple of fields, streamed in constant memory.

A reader is constructed with the paths of `--data` and can be iterated any number of times. It declares the
kind of each field (`kinds`, see `fields.py`) and whether <eos> follows each record (`adds_eos`, A16), knows
the location of the latest record (`location`), and identifies its content (`digest`). How bytes become lines,
and which bytes are refused, is in `lines.py`; readers of annotated sentences and questions are in
`annotated.py`.

Left out: sorting, filtering and sampling. A reader yields the content of the file in its order.
"""

import csv
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, Literal

from seqloom.errors import DataError
from seqloom.text.lines import blocks, lines, local_copy, strip_compression
from seqloom.text.quoted_cells import quotes_warning, row_remedy
from seqloom.text.tables import SAMPLE_ROWS, file_columns, has_header, is_header_row

Paths = Sequence[str | Path]
Kind = Literal["text", "words", "tags", "label", "number", "smiles", "document", "summary"]


class Blanks:
    """Which records are left out because one of their texts is blank; none if `kinds` is empty."""

    def __init__(self, kinds: Sequence[str]):
        self.texts = [index for index, kind in enumerate(kinds) if kind in ("text", "document", "summary")]
        self.clear()

    def options(self) -> tuple[str, ...]:
        """Returns what belongs to the options of a reader."""
        return ("drop_blank",) if self.texts else ()

    def clear(self) -> None:
        """Forgets the records of an earlier pass."""
        self.count = 0
        self.first: list[str] = []  # locations

    def drops(self, record: Sequence[str], location: str) -> bool:
        """Returns whether to leave a record out, and counts it."""
        if not any(not record[index].strip() for index in self.texts):
            return False
        self.count += 1
        if len(self.first) < 5:
            self.first.append(location)
        return True


class Reader:
    """Records of the files at `paths`, one file after the other.
    A subclass defines how one file becomes records.

    The class name and the options are part of `digest`, which names cached
    stores and is saved in runs: renaming a reader would invalidate them.
    """

    adds_eos = True  # a record is a complete sequence: the store appends <eos> to it
    kinds: tuple[str, ...] = ("text",)
    location = ""  # file:line of the latest record
    template: str | None = None  # how chats become text
    is_plain = False  # whether a record is one piece of the file's text, which is valid Unicode
    measure = "translation"  # how outputs are scored if records are pairs: translation, or pronunciation

    def __init__(self, paths: Paths):
        self.paths = [paths] if isinstance(paths, str | Path) else list(paths)
        self.blanks = Blanks(())  # the records that the latest pass left out
        if not self.paths:
            raise DataError("no file to read; give at least one path, or - for the standard input")
        for path in self.paths:
            self.check_path(path)

    def check_path(self, path: str | Path) -> None:
        """Raises if a path cannot be read."""
        local_copy(path)

    def __iter__(self) -> Iterator[tuple]:
        self.blanks.clear()
        return chain.from_iterable(map(self.records, self.paths))

    def records(self, path: str | Path) -> Iterator[tuple]:
        """Yields the records of one file."""
        raise NotImplementedError

    @classmethod
    def source_shape(cls, options: Mapping[str, Any]) -> tuple[int, ...]:
        """Returns the shape of one picture, (H, W, 3), or of one frame, (F,), that a reader with
        these options reads; () if it reads text."""
        return ()

    @classmethod
    def load_source(cls, path: Any, options: Mapping[str, Any]) -> Any:
        """Returns the array of a picture or sound, a file or the user's own array, as a reader with these options reads it."""
        raise DataError(f"{path}: this corpus holds text; give a text")

    def options(self) -> tuple:
        """Returns the options that the records depend on, besides the files."""
        return ()

    def digest(self) -> str:
        """Returns the SHA-256 of this reader's class name, its options and the content of its files."""
        total = hashlib.sha256(repr((type(self).__name__, self.options())).encode())
        for path in self.paths:
            with local_copy(path).open("rb") as file:
                total.update(hashlib.file_digest(file, "sha256").digest())
        return total.hexdigest()


class Text(Reader):
    """Raw text as one stream: a record is a line with its newline, so that all records joined are the file.

    CR LF is read as one newline, and a byte-order mark is dropped.
    A line longer than 1 MB is divided into several records.
    """

    adds_eos = False
    is_plain = True

    def records(self, path: str | Path) -> Iterator[tuple[str]]:
        return chain.from_iterable(self.records_in(text, path) for text in blocks(path))

    def records_in(self, text: str, path: str | Path) -> Iterator[tuple[str]]:
        """Yields the records of one block of a file."""
        self.location = str(path)
        *complete, rest = text.split("\n")
        lines = [line + "\n" for line in complete]
        return zip([*lines, rest] if rest else lines, strict=True)


class Lines(Reader):
    """Each line is a record, without its newline."""

    is_plain = True

    def records(self, path: str | Path) -> Iterator[tuple[str]]:
        for number, line in enumerate(lines(path), 1):
            self.location = f"{path}:{number}"
            yield (line,)


class Parallel(Reader):
    """Two files with the same number of lines: (source, target). `drop_blank` leaves out pairs with a blank side; `kinds` may be
    document and summary."""

    kinds: tuple[str, ...] = ("text", "text")

    def __init__(
        self,
        paths: Paths,
        drop_blank: bool = False,
        kinds: tuple[Literal["text", "document", "summary"], ...] | None = None,
    ):
        super().__init__(paths)
        self.kinds = check_kinds(kinds, 2, "files")
        self.blanks = Blanks(self.kinds if drop_blank else ())
        if len(self.paths) != 2:
            remedy = "give exactly two paths, or corpus.type=Table if one file has both in columns"
            raise DataError(f"parallel text is two files, source and target, not {len(self.paths)}; {remedy}")

    def options(self) -> tuple:
        return self.blanks.options()

    def __iter__(self) -> Iterator[tuple[str, str]]:
        self.blanks.clear()
        for number, (source, target) in enumerate(zip_longest(*map(lines, self.paths)), 1):
            if source is None or target is None:
                shorter = self.paths[0 if source is None else 1]
                sizes = [sum(1 for _ in lines(path)) for path in self.paths]
                raise DataError(
                    f"{shorter}:{number}: the file ends here: {self.paths[0]} has {sizes[0]} lines, "
                    f"{self.paths[1]} has {sizes[1]}; make them line up"
                )
            self.location = f"{self.paths[0]}:{number}"
            if not self.blanks.drops((source, target), self.location):
                yield source, target


class Table(Reader):
    """The cells of `columns` in each row of a TSV or CSV file.
    Quotes have a meaning unless the separator is a tab.

    `columns` are numbers from 0, or names of the header. `separator` None means a comma for .csv and a tab otherwise.
    `header` skips the first row, `auto` if it looks like a header. With `header_names`, those of the training file, it
    is skipped only if it is a header, whose names then choose the columns; a file without a header is read from its first
    row, by position. Blank lines are skipped. `kinds` is the kind of each column; the default is text. `drop_blank` leaves
    out rows in which a text is blank.
    """

    def __init__(
        self,
        paths: Paths,
        columns: tuple[int | str, ...] = (0, 1),
        separator: str | None = None,
        header: bool | Literal["auto"] = False,
        kinds: tuple[Kind, ...] | None = None,
        header_names: tuple[str, ...] = (),
        drop_blank: bool = False,
    ):
        super().__init__(paths)
        if separator is not None and len(separator) != 1:
            raise DataError(f"separator {separator!r} is not one character; give one, such as a comma")
        if not columns:
            raise DataError("no columns to read; give at least one, counted from 0")
        self.columns = tuple(columns)
        self.separator = separator
        self.header_names = tuple(header_names)
        self.kinds = check_kinds(kinds, len(self.columns), "columns")
        numbers = [column for column in self.columns if isinstance(column, int)]
        if len(numbers) < len(self.columns):
            self.header = True
        elif header == "auto":
            sample = islice(table_rows(self.paths[0], self._separator(self.paths[0])), SAMPLE_ROWS)
            self.header = has_header([cells for _, cells in sample], numbers, self.kinds)
        else:
            self.header = header
        self.blanks = Blanks(self.kinds if drop_blank else ())

    def options(self) -> tuple:
        kinds = () if set(self.kinds) == {"text"} else (self.kinds,)
        names = (self.header_names,) if self.header_names else ()
        separators = [self._separator(path) for path in self.paths]
        return self.columns, separators, self.header, *kinds, *names, *self.blanks.options()

    def quotes_warnings(self) -> list[str]:
        """Returns what to say of files with tabs that are quoted as CSV."""
        found = [quotes_warning(path) for path in self.paths if self._separator(path) == "\t"]
        return [warning for warning in found if warning]

    def _separator(self, path: str | Path) -> str:
        return self.separator or table_separator(path)

    def records(self, path: str | Path) -> Iterator[tuple[str, ...]]:
        width = None
        columns: list[int] = []
        for number, cells in table_rows(path, self._separator(path)):
            self.location = f"{path}:{number}"
            if width is None:
                width = len(cells)
                is_header = is_header_row(cells, self.header, self.header_names)
                columns = file_columns(self.columns, cells, is_header, self.header_names, self.location)
                for column in columns:
                    if not -width <= column < width:
                        separator = self._separator(path)
                        between = {",": "comma", "\t": "tab"}.get(separator, repr(separator))
                        found = (
                            f"among {width}; count from 0" if width > 1 else f"in a row without a {between}"
                        )
                        raise DataError(
                            f"{path}:{number}: no column {column} {found}; a table is expected, with a {between} between its cells"
                        )
                if is_header:
                    continue
            if len(cells) != width:
                remedy = row_remedy(cells, self._separator(path))
                raise DataError(
                    f"{path}:{number}: {len(cells)} cells, but the first row has {width}; {remedy}"
                )
            record = tuple(cells[column] for column in columns)
            if not self.blanks.drops(record, self.location):
                yield record


def table_separator(path: str | Path) -> str:
    """Returns the character between the cells of a file: a comma for .csv, else a tab."""
    return "," if strip_compression(path).suffix == ".csv" else "\t"


def check_kinds(kinds: tuple[str, ...] | None, count: int, unit: str) -> tuple[str, ...]:
    """Returns the kinds of `count` fields; text for all of them if `kinds` is None."""
    kinds = ("text",) * count if kinds is None else tuple(kinds)
    if len(kinds) != count:
        raise DataError(f"{len(kinds)} kinds ({', '.join(kinds)}) for {count} {unit}; give each one kind")
    return kinds


def table_rows(path: str | Path, separator: str) -> Iterator[tuple[int, list[str]]]:
    """Yields (line number, cells) of each row that is not blank."""
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
        raise DataError(f"{path}:{start}: not CSV ({error}); look for a quote that is not closed") from error


class JSONLines(Reader):
    """The `fields` of one JSON object per line; numbers are read as their text. Blank lines are skipped.

    `kinds` is the kind of each field; the default is text. Words and tags are lists, a span is
    {"answer_start": [n, …], "text": [answer, …]}. `drop_blank` leaves out objects in which a text is blank.
    """

    def __init__(
        self,
        paths: Paths,
        fields: tuple[str, ...] = ("text",),
        kinds: tuple[Kind | Literal["passage", "span"], ...] | None = None,
        drop_blank: bool = False,
    ):
        super().__init__(paths)
        if not fields:
            raise DataError("no fields to read; give at least one name")
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)
        self.kinds = check_kinds(kinds, len(self.fields), "fields")
        self.blanks = Blanks(self.kinds if drop_blank else ())

    def options(self) -> tuple:
        options = self.fields if set(self.kinds) == {"text"} else (self.fields, self.kinds)
        return *options, *self.blanks.options()

    def records(self, path: str | Path) -> Iterator[tuple]:
        for number, line in enumerate(lines(path), 1):
            if line.strip():
                self.location = f"{path}:{number}"
                record = self._record(self.location, line)
                if not self.blanks.drops(record, self.location):
                    yield record

    def _record(self, location: str, line: str) -> tuple:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{location}: not JSON ({error}); write one object per line") from error
        if not isinstance(record, dict):
            raise DataError(
                f"{location}: a JSON {type(record).__name__}, not an object; write one object per line"
            )
        for field in self.fields:
            if field not in record:
                names = ", ".join(map(repr, record)) or "none"
                raise DataError(f"{location}: no field {field!r}; the fields are {names}")
        return tuple(
            _value(location, field, record[field], kind)
            for field, kind in zip(self.fields, self.kinds, strict=True)
        )


def _value(location: str, field: str, value: Any, kind: str) -> Any:
    """Converts a field of a JSON object to the form of its kind."""
    if kind in ("words", "tags") and isinstance(value, list):
        return [_value(location, field, item, "text") for item in value]
    if kind == "span":
        return parse_answers(location, value)
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise DataError(f"{location}: field {field!r} is neither text nor a number; choose another field")
    if isinstance(value, str) and not is_valid_unicode(value):
        raise DataError(
            f"{location}: field {field!r} contains half a surrogate pair; write the complete character"
        )
    return str(value)


def parse_answers(location: str, value: Any) -> list[tuple[int, str]]:
    """Returns (start, text) of each answer in {"answer_start": [n, …], "text": [answer, …]} or in a list of
    {"answer_start": n, "text": answer}."""
    try:
        if isinstance(value, dict):
            rows = list(zip(value["answer_start"], value["text"], strict=True))
        else:
            rows = [(answer["answer_start"], answer["text"]) for answer in value]
        if all(
            isinstance(start, int) and isinstance(text, str) and is_valid_unicode(text)
            for start, text in rows
        ):
            return rows
    except (KeyError, TypeError, ValueError):
        pass
    raise DataError(
        f'{location}: answers are {{"answer_start": [n, …], "text": [answer, …]}} or a list of such; correct them'
    )


def is_valid_unicode(text: str) -> bool:
    """Returns whether UTF-8 can encode the text, which is not so if it contains half a surrogate pair."""
    try:
        text.isascii() or text.encode()
    except UnicodeEncodeError:
        return False
    return True
