"""Readers of annotated text: sentences with a tag for each word
(CoNLL-U, columns), questions with answers in a passage (SQuAD)."""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqloom.errors import DataError
from seqloom.text.corpus import Paths, Reader, parse_answers
from seqloom.text.lines import blocks, lines

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class CoNLLU(Reader):
    """(words, tags) of each sentence, without multiword ranges and empty nodes.

    `column` is the column of the tags: universal parts of speech, the language's
    own parts of speech, features (`_` for a word without any) or relations.
    """

    kinds = ("words", "tags")

    def __init__(self, paths: Paths, column: Literal["upos", "xpos", "feats", "deprel", "lemma"] = "upos"):
        super().__init__(paths)
        self.column = column

    def options(self) -> tuple:
        return () if self.column == "upos" else (self.column,)

    def records(self, path: str | Path) -> Iterator[tuple[list[str], list[str]]]:
        column = FIELDS.index(self.column)
        for location, _, rows in conllu_sentences(path):
            self.location = location
            words = [cells[1] for cells in rows]
            tags = [cells[column] for cells in rows]
            if self.column != "feats" and "_" in tags:
                raise DataError(
                    f"{location}: the sentence that starts here has a word without {self.column}; fill the column, or choose another"
                )
            yield words, tags


def conllu_sentences(path: str | Path) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Yields the location of each sentence that has words,
    its lines, and the cells of each line that is a word."""
    for number, rows in sentences(lines(path)):
        if words := words_of(path, number, rows):
            yield f"{path}:{number}", rows, words


def words_of(path: str | Path, number: int, rows: list[str]) -> list[list[str]]:
    """Returns the cells of each line of a CoNLL-U sentence that
    is a word. `number` is the number of its first line."""
    words = []
    for line, row in enumerate(rows, number):
        if row.startswith("#"):
            continue
        cells = row.split("\t")
        row_type = id_type(cells[0])
        if len(cells) != len(FIELDS) or row_type is None or not all(cell.strip() for cell in cells):
            raise DataError(
                f"{path}:{number}: the sentence that starts here is not CoNLL-U (line {line} is not a row of 10 cells); repair it"
            )
        if row_type == "word":
            words.append(cells)
    return words


def id_type(cell: str) -> str | None:
    """Returns what a CoNLL-U id means: a word (3), a range
    (3-4), an empty node (3.1), or None if it is invalid."""
    for separator, row_type in (("-", "range"), (".", "empty")):
        first, found, second = cell.partition(separator)
        if found:
            return row_type if _is_digits(first) and _is_digits(second) else None
    return "word" if _is_digits(cell) else None


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


class RowShape(NamedTuple):
    """The shape of a row of columns: whether tabs separate its cells, and the number of cells."""

    tabs: bool
    cells: int


class Columns(Reader):
    """(words, tags) of each sentence in CoNLL-2003 columns:
    a token per line, a blank line after each sentence.

    -DOCSTART- lines and comments are skipped.
    """

    kinds = ("words", "tags")

    def __init__(self, paths: Paths, word: int = 0, tag: int = -1):
        super().__init__(paths)
        self.word = word
        self.tag = tag

    def options(self) -> tuple:
        return self.word, self.tag, "tabs or spaces"  # the separators; a part of the digest, so it stays

    def records(self, path: str | Path) -> Iterator[tuple[list[str], list[str]]]:
        first = file_shape(path)
        for number, rows in sentences(lines(path)):
            self.location = f"{path}:{number}"
            pairs = [
                pair
                for line, row in enumerate(rows, number)
                if (pair := self.pair(f"{path}:{line}", row, first))
            ]
            if pairs:
                yield [word for word, _ in pairs], [tag for _, tag in pairs]

    def pair(self, location: str, row: str, first: RowShape) -> tuple[str, str] | None:
        """Returns the word and the tag of a row, or None if it has none."""
        if not (cells := row_cells(row, first)):
            return None
        if len(cells) < first.cells:
            raise DataError(
                f"{location}: {len(cells)} columns, but the first row has {first.cells}; repair the line"
            )
        try:
            word = cells[self.word]
            tag = cells[self.tag]
        except IndexError:
            raise DataError(
                f"{location}: {len(cells)} columns, but columns {self.word} and {self.tag} are needed; repair the line"
            ) from None
        if self.word % len(cells) == self.tag % len(cells) or not word or not tag:
            raise DataError(f"{location}: a word without a tag, or a tag without a word; repair the line")
        return word, tag


def split(row: str) -> list[str]:
    """Splits a row of columns into cells: at tabs if it has
    any, else at spaces. Other white space belongs to words."""
    row = row.rstrip(" \t")
    if "\t" in row:
        return [cell.strip(" ") for cell in row.split("\t")]
    return [cell for cell in row.split(" ") if cell]


def shape(row: str) -> RowShape:
    """Returns the shape of a row."""
    return RowShape("\t" in row.rstrip(" \t"), len(split(row)))


def file_shape(path: str | Path) -> RowShape:
    """Returns the shape of the first row that does not start as a comment."""
    rows = (row for row in lines(path) if row.strip() and not row.startswith(("#", "-DOCSTART-")))
    return shape(next(rows, ""))


def row_cells(row: str, first: RowShape) -> list[str]:
    """Returns the cells of a row, or none for -DOCSTART- and comments.

    A comment begins with # and has several cells, but not the shape of the first row.
    """
    cells = split(row)
    is_comment = row.startswith("#") and len(cells) > 1 and shape(row) != first
    return [] if cells[0] == "-DOCSTART-" or is_comment else cells


def sentences(stream: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, lines) of each group of lines between blank lines."""
    return ((number, rows) for number, rows in line_groups(stream) if rows[0].strip())


def line_groups(stream: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """Yields (number of the first line, lines) of each run
    of lines with text, and of each run of blank lines."""
    number = 1
    for _, group in groupby(stream, lambda line: bool(line.strip())):
        rows = list(group)
        yield number, rows
        number += len(rows)


class SQuAD(Reader):
    """(question, passage, answers) of each question in a SQuAD file,
    version 1 or 2: no answers for an impossible question."""

    kinds = ("text", "passage", "span")

    def records(self, path: str | Path) -> Iterator[tuple[str, str, list[tuple[int, str]]]]:
        for location, _, question, passage, answers in questions(path):
            self.location = location
            if answers is None:
                raise DataError(f"{location}: no answers; write them, or [] if there is none")
            yield question, passage, answers


def questions(path: str | Path) -> Iterator[tuple[str, str, str, str, list[tuple[int, str]] | None]]:
    """Yields (location, id, question, passage, answers), with one article in memory at a time.

    The answers are None if the file does not give them.
    """
    for number, article in enumerate(articles(path), 1):
        try:
            for paragraph in article["paragraphs"]:
                passage = paragraph["context"]
                for entry in paragraph["qas"]:
                    name = str(entry["id"])
                    question = entry["question"]
                    location = f"{path}: question {name}"
                    answers = None
                    if entry.get("is_impossible"):
                        answers = []
                    elif "answers" in entry:
                        answers = parse_answers(location, entry["answers"])
                    if not isinstance(question, str) or not isinstance(passage, str):
                        raise TypeError
                    yield location, name, question, passage, answers
        except (KeyError, TypeError):
            raise DataError(
                f"{path}: article {number} is not as in SQuAD (paragraphs, context, qas, id, question); correct it"
            ) from None


def articles(path: str | Path) -> Iterator[Any]:
    """Yields the items of the list `data` of a JSON object, each decoded by itself."""
    source = _JSONSource(path)
    source.expect("{")
    while True:
        name = source.value()
        source.expect(":")
        if name == "data":
            break
        source.value()
        source.expect(",")
    source.expect("[")
    while source.next_char() != "]":
        yield source.value()
        if source.next_char() != "]":
            source.expect(",")


class _JSONSource:
    """Reads a JSON file value by value, with only the current value in memory."""

    def __init__(self, path: str | Path):
        self.path = path
        self.decoder = json.JSONDecoder()
        self.stream = blocks(path)
        self.text = ""

    def error(self) -> DataError:
        example = '{"data": [{"paragraphs": …}, …]}'
        return DataError(f"{self.path}: not a SQuAD file; give {example}")

    def read_more(self) -> None:
        block = next(self.stream, None)
        if block is None:
            raise self.error()
        self.text += block

    def next_char(self) -> str:
        """Returns the next character that is not white space, without consuming it."""
        while not (text := self.text.lstrip(" \n\r\t")):
            self.text = text
            self.read_more()
        self.text = text
        return text[0]

    def expect(self, character: str) -> None:
        """Consumes the given character; raises if another one comes next."""
        if self.next_char() != character:
            raise self.error()
        self.text = self.text[1:]

    def value(self) -> Any:
        """Consumes the next value, which must be followed by another character."""
        self.next_char()
        while True:
            try:
                item, size = self.decoder.raw_decode(self.text)
            except (ValueError, RecursionError):
                size = len(self.text)
            if size < len(self.text):
                self.text = self.text[size:]
                return item
            self.read_more()
