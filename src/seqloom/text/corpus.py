"""Readers: files → records, each a tuple of fields, streamed in constant memory.

A reader is made with the paths of `--data`. It can be iterated any number of times, says whether its records end (`ends`, A16) and
names its content (`digest`). How bytes become lines, and which bytes are refused, is in `lines.py`.

Left out: sorting, filtering and sampling. A reader gives what the file says, in its order.
"""

import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import zip_longest
from pathlib import Path

from seqloom.text.lines import blocks, lines, local

Paths = Sequence[str | Path]


class Reader:
    """Records of the files at `paths`, one file after the other. A subclass says how one file becomes records."""

    ends = True  # a record is a whole sequence: the store puts <eos> after it

    def __init__(self, paths: Paths):
        self.paths = [paths] if isinstance(paths, str | Path) else list(paths)
        if not self.paths:
            raise ValueError("no file to read; give at least one path, or - for the standard input")
        for path in self.paths:
            local(path)

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
            with local(path).open("rb") as file:
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
            for line in whole:
                yield (line + "\n",)
            if rest:
                yield (rest,)


class Lines(Reader):
    """Each line is a record, without its newline."""

    def records(self, path: str | Path) -> Iterator[tuple[str]]:
        return zip(lines(path), strict=True)


class Parallel(Reader):
    """Two files of equally many lines: (source, target)."""

    def __init__(self, paths: Paths):
        super().__init__(paths)
        if len(self.paths) != 2:
            raise ValueError(f"parallel text is two files, source and target, not {len(self.paths)}; give exactly two paths")

    def __iter__(self) -> Iterator[tuple[str, str]]:
        count, short = 0, 0
        for source, target in zip_longest(*map(lines, self.paths)):
            count += 1
            if source is None or target is None:
                short = short or (1 if source is None else 2)
            else:
                yield source, target
            if short:
                break
        if short:
            sizes = [sum(1 for _ in lines(path)) for path in self.paths]
            raise ValueError(f"{self.paths[short - 1]}:{count}: the file ends here: {self.paths[0]} has {sizes[0]} lines, "
                             f"{self.paths[1]} has {sizes[1]}; make them line up")


class Table(Reader):
    """The cells of `columns` in each row of a TSV or CSV file. Only where the separator is a tab do quotes mean nothing.

    `separator` None is a comma for .csv and a tab otherwise; `header` skips the first row. Blank lines are skipped.
    """

    def __init__(self, paths: Paths, columns: tuple[int, ...] = (0, 1), separator: str | None = None, header: bool = False):
        super().__init__(paths)
        if separator is not None and len(separator) != 1:
            raise ValueError(f"separator {separator!r} is not one character; give one, such as a comma")
        if not columns:
            raise ValueError("no columns to read; give at least one, counted from 0")
        self.columns, self.separator, self.header = tuple(columns), separator, header

    def options(self) -> tuple:
        return self.columns, [self._separator(path) for path in self.paths], self.header

    def _separator(self, path: str | Path) -> str:
        return self.separator or ("," if str(path).removesuffix(".gz").endswith(".csv") else "\t")

    def records(self, path: str | Path) -> Iterator[tuple[str, ...]]:
        width = None
        for number, cells in _rows(path, self._separator(path)):
            if width is None:
                width = len(cells)
                for column in self.columns:
                    if not -width <= column < width:
                        raise ValueError(f"{path}:{number}: no column {column} among {width}; count from 0, or give the right separator")
                if self.header:
                    continue
            if len(cells) != width:
                raise ValueError(f"{path}:{number}: {len(cells)} cells, but the first row has {width}; repair the row")
            yield tuple(cells[column] for column in self.columns)


def _rows(path: str | Path, separator: str) -> Iterator[tuple[int, list[str]]]:
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
    """The `fields` of one JSON object per line; numbers come as their text. Blank lines are skipped."""

    def __init__(self, paths: Paths, fields: tuple[str, ...] = ("text",)):
        super().__init__(paths)
        if not fields:
            raise ValueError("no fields to read; give at least one name")
        self.fields = (fields,) if isinstance(fields, str) else tuple(fields)

    def options(self) -> tuple:
        return self.fields

    def records(self, path: str | Path) -> Iterator[tuple[str, ...]]:
        for number, line in enumerate(lines(path), 1):
            if line.strip():
                yield self._record(f"{path}:{number}", line)

    def _record(self, place: str, line: str) -> tuple[str, ...]:
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{place}: not JSON ({error}); write one object per line") from error
        if not isinstance(record, dict):
            raise ValueError(f"{place}: a JSON {type(record).__name__}, not an object; write one object per line")
        for field in self.fields:
            if field not in record:
                raise ValueError(f"{place}: no field {field!r}; it has {', '.join(map(repr, record)) or 'none'}")
            value = record[field]
            if isinstance(value, bool) or not isinstance(value, str | int | float):
                raise ValueError(f"{place}: field {field!r} is neither text nor a number; choose another field")
            if isinstance(value, str) and not _whole(value):
                raise ValueError(f"{place}: field {field!r} holds half a surrogate pair; write the whole character")
        return tuple(str(record[field]) for field in self.fields)


def _whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


class CoNLLU(Reader):
    """(words, universal part-of-speech tags) of each sentence; multiword ranges and empty nodes are left out."""

    def records(self, path: str | Path) -> Iterator[tuple[list[str], list[str]]]:
        try:
            import conllu
        except ImportError:
            raise ValueError("reading CoNLL-U needs the conllu package: pip install 'seqloom[data]'") from None
        for number, rows in _sentences(lines(path)):
            try:
                sentences = conllu.parse("\n".join(rows) + "\n\n")
                tokens = [token for sentence in sentences for token in sentence if isinstance(token["id"], int)]
                words, tags = [token["form"] for token in tokens], [token["upos"] for token in tokens]
            except (conllu.exceptions.ParseException, KeyError, ValueError) as error:
                raise ValueError(f"{path}:{number}: the sentence from here is not CoNLL-U ({error}); repair it") from error
            if None in words or None in tags:
                raise ValueError(f"{path}:{number}: the sentence from here is not CoNLL-U (a word or tag is missing); repair it")
            if words:
                yield words, tags


class Columns(Reader):
    """(words, tags) of each sentence in CoNLL-2003 columns: a token a line, a blank line after a sentence, -DOCSTART- skipped."""

    def __init__(self, paths: Paths, word: int = 0, tag: int = -1):
        super().__init__(paths)
        self.word, self.tag = word, tag

    def options(self) -> tuple:
        return self.word, self.tag

    def records(self, path: str | Path) -> Iterator[tuple[list[str], list[str]]]:
        for number, rows in _sentences(lines(path)):
            words, tags = [], []
            for line, row in enumerate(rows, number):
                cells = row.split()
                if cells[0] == "-DOCSTART-":
                    continue
                try:
                    words.append(cells[self.word])
                    tags.append(cells[self.tag])
                except IndexError:
                    raise ValueError(f"{path}:{line}: {len(cells)} columns, but columns {self.word} and {self.tag} are wanted; "
                                     "repair the line") from None
            if words:
                yield words, tags


def _sentences(stream: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) between blank lines."""
    rows: list[str] = []
    number = 0
    for number, line in enumerate(stream, 1):
        if line.strip():
            rows.append(line)
        elif rows:
            yield number - len(rows), rows
            rows = []
    if rows:
        yield number + 1 - len(rows), rows
