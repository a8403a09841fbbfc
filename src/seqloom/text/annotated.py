"""Readers of annotated text: sentences with a tag for each word (CoNLL-U, columns), questions with answers that stand in a passage (SQuAD)."""

import json
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seqloom.text.corpus import Paths, Reader, parse_answers
from seqloom.text.lines import blocks, lines

FIELDS = ("id", "form", "lemma", "upos", "xpos", "feats", "head", "deprel", "deps", "misc")


class CoNLLU(Reader):
    """(words, tags) of each sentence; multiword ranges and empty nodes are left out. `column` is what is learnt: universal parts of speech,
    a language's own, features (`_` where a word has none) or relations."""

    kinds = ("words", "tags")

    def __init__(self, paths: Paths, column: Literal["upos", "xpos", "feats", "deprel", "lemma"] = "upos"):
        super().__init__(paths)
        self.column = column

    def options(self) -> tuple:
        return () if self.column == "upos" else (self.column,)

    def records(self, path: str | Path) -> Iterator[tuple[list[str], list[str]]]:
        for self.at, _, rows in conllu_sentences(path):
            words, tags = zip(*((cells[1], cells[FIELDS.index(self.column)]) for cells in rows), strict=True)
            if self.column != "feats" and "_" in tags:
                raise ValueError(
                    f"{self.at}: the sentence from here has a word without {self.column}; fill the column, or choose another"
                )
            yield list(words), list(tags)


def conllu_sentences(path: str | Path) -> Iterator[tuple[str, list[str], list[list[str]]]]:
    """Of each sentence that has words: its place, its lines as they are, and the cells of each line that is a word."""
    for number, rows in sentences(lines(path)):
        if words := words_of(path, number, rows):
            yield f"{path}:{number}", rows, words


def words_of(path: str | Path, number: int, rows: list[str]) -> list[list[str]]:
    """The cells of each line of a CoNLL-U sentence that is a word. `number` is that of its first line."""
    words = []
    for line, row in enumerate(rows, number):
        if row.startswith("#"):
            continue
        cells = row.split("\t")
        kind = id_type(cells[0])
        if len(cells) != len(FIELDS) or kind is None or not all(cell.strip() for cell in cells):
            raise ValueError(
                f"{path}:{number}: the sentence from here is not CoNLL-U (line {line} is no row of 10 cells); repair it"
            )
        if kind == "word":
            words.append(cells)
    return words


def id_type(cell: str) -> str | None:
    """What a CoNLL-U id stands for: a word (3), a range (3-4), an empty node (3.1), or nothing."""
    for mark, kind in (("-", "range"), (".", "empty")):
        first, found, second = cell.partition(mark)
        if found:
            return (
                kind
                if first.isascii() and first.isdigit() and second.isascii() and second.isdigit()
                else None
            )
    return "word" if cell.isascii() and cell.isdigit() else None


class RowShape(NamedTuple):
    """How a row of columns is made: whether tabs stand between its cells, and how many there are."""

    tabs: bool
    cells: int


class Columns(Reader):
    """(words, tags) of each sentence in CoNLL-2003 columns: a token a line, a blank line after a sentence; -DOCSTART- and comments are skipped."""

    kinds = ("words", "tags")

    def __init__(self, paths: Paths, word: int = 0, tag: int = -1):
        super().__init__(paths)
        self.word, self.tag = word, tag

    def options(self) -> tuple:
        return self.word, self.tag, "tabs or spaces"  # what cells stand between

    def records(self, path: str | Path) -> Iterator[tuple[list[str], list[str]]]:
        first = file_shape(path)
        for number, rows in sentences(lines(path)):
            self.at = f"{path}:{number}"
            found = [
                pair
                for line, row in enumerate(rows, number)
                if (pair := self.pair(f"{path}:{line}", row, first))
            ]
            if found:
                words, tags = zip(*found, strict=True)
                yield list(words), list(tags)

    def pair(self, place: str, row: str, first: RowShape) -> tuple[str, str] | None:
        """The word and the tag of a row; None where it has none."""
        if not (cells := row_cells(row, first)):
            return None
        if len(cells) < first.cells:
            raise ValueError(
                f"{place}: {len(cells)} columns, but the first row has {first.cells}; repair the line"
            )
        try:
            word, tag = cells[self.word], cells[self.tag]
        except IndexError:
            raise ValueError(
                f"{place}: {len(cells)} columns, but columns {self.word} and {self.tag} are wanted; repair the line"
            ) from None
        if self.word % len(cells) == self.tag % len(cells) or not word or not tag:
            raise ValueError(f"{place}: a word without a tag, or a tag without a word; repair the line")
        return word, tag


def split(row: str) -> list[str]:
    """The cells of a row of columns: between tabs where it has any, else between spaces. Other white space belongs to words."""
    row = row.rstrip(" \t")
    return (
        [cell.strip(" ") for cell in row.split("\t")]
        if "\t" in row
        else [cell for cell in row.split(" ") if cell]
    )


def shape(row: str) -> RowShape:
    return RowShape("\t" in row.rstrip(" \t"), len(split(row)))


def file_shape(path: str | Path) -> RowShape:
    """That of the first row that may be no comment."""
    rows = (row for row in lines(path) if row.strip() and not row.startswith(("#", "-DOCSTART-")))
    return shape(next(rows, ""))


def row_cells(row: str, first: RowShape) -> list[str]:
    """The cells of a row; none where it is -DOCSTART- or a comment, which begins with # and has several cells, but not those of the first row."""
    cells = split(row)
    aside = cells[0] == "-DOCSTART-" or (row.startswith("#") and len(cells) > 1 and shape(row) != first)
    return [] if aside else cells


def sentences(stream: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) between blank lines."""
    return ((number, rows) for number, rows in line_groups(stream) if rows[0].strip())


def line_groups(stream: Iterable[str]) -> Iterator[tuple[int, list[str]]]:
    """(number of the first line, lines) of each stretch of lines with text, and of each stretch of blank ones."""
    number = 1
    for _, stretch in groupby(stream, lambda line: bool(line.strip())):
        yield number, (rows := list(stretch))
        number += len(rows)


class SQuAD(Reader):
    """(question, passage, answers) of each question in a file of SQuAD's form, versions 1 and 2: no answers where there is none."""

    kinds = ("text", "passage", "span")

    def records(self, path: str | Path) -> Iterator[tuple[str, str, list[tuple[int, str]]]]:
        for self.at, _, question, passage, found in questions(path):
            if found is None:
                raise ValueError(f"{self.at}: no answers; write them, or [] where there is none")
            yield question, passage, found


def questions(path: str | Path) -> Iterator[tuple[str, str, str, str, list[tuple[int, str]] | None]]:
    """(place, id, question, passage, answers), one article in memory at a time. The answers are None where the file does not tell them."""
    for number, article in enumerate(articles(path), 1):
        try:
            for paragraph in article["paragraphs"]:
                passage = paragraph["context"]
                for asked in paragraph["qas"]:
                    name, question = str(asked["id"]), asked["question"]
                    place = f"{path}: question {name}"
                    found = (
                        []
                        if asked.get("is_impossible")
                        else parse_answers(place, asked["answers"])
                        if "answers" in asked
                        else None
                    )
                    if not isinstance(question, str) or not isinstance(passage, str):
                        raise TypeError
                    yield place, name, question, passage, found
        except (KeyError, TypeError):
            raise ValueError(
                f"{path}: article {number} is not as in SQuAD (paragraphs, context, qas, id, question); correct it"
            ) from None


def articles(path: str | Path) -> Iterator[Any]:
    """The items of the list `data` of a JSON object, each decoded by itself."""
    decoder, stream, text = json.JSONDecoder(), blocks(path), ""
    wrong = ValueError(f'{path}: not a file of SQuAD\'s form; give {{"data": [{{"paragraphs": …}}, …]}}')

    def more() -> None:
        nonlocal text
        piece = next(stream, None)
        if piece is None:
            raise wrong
        text += piece

    def sign() -> str:
        """The next character that is no white space."""
        nonlocal text
        while not (text := text.lstrip(" \n\r\t")):
            more()
        return text[0]

    def take(wanted: str) -> None:
        nonlocal text
        if sign() != wanted:
            raise wrong
        text = text[1:]

    def value() -> Any:
        """The next value, after which something must stand."""
        nonlocal text
        sign()
        while True:
            try:
                item, size = decoder.raw_decode(text)
            except (ValueError, RecursionError):
                size = len(text)
            if size < len(text):
                text = text[size:]
                return item
            more()

    take("{")
    while True:
        name = value()
        take(":")
        if name == "data":
            break
        value()
        take(",")
    take("[")
    while sign() != "]":
        yield value()
        if sign() != "]":
            take(",")
