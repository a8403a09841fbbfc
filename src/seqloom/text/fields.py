"""Kinds of fields: what a reader gives, checked, and laid out as columns of the store.

    text      a string               text                       ids, with <eos> where records end
    words     a list of strings      pieces, begins, letters    ids; where each word's first piece stands; UTF-8 of each word and a NUL
    tags      a label for each word  tags                       places in the list of labels
    label     a string               label                      its place in the list of labels
    number    a number               number                     itself
    passage   a string               passage, edges, source     ids; where each begins and ends in characters; UTF-8
    span      [(start, text), …]     span, answers              characters from and to of the first, both 0 for none; UTF-8 of each and a NUL

A word is read as it stands inside a sentence, after a space, and its first piece that is more than the space speaks for it. Letters are
bytes, so that no word is unknown by its spelling and no alphabet must be learnt.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal

import numpy as np
from tokenizers import Tokenizer

from seqloom.text.corpus import Reader, is_valid_unicode
from seqloom.text.encoder import RecordEncoder
from seqloom.text.special_tokens import special_tokens

Name = Literal["text", "words", "tags", "label", "number", "passage", "span"]
Encoded = tuple[
    bytes, np.ndarray, np.ndarray
]  # values in a row; how many each record has; its bytes of UTF-8
CACHE_WORDS = 200_000  # words whose pieces are kept at hand
MAX_LABELS = 10_000  # labels; more are a wrong column
NONE = "none"  # the label of a question without an answer


class Field:
    """How values of one field become columns. `names` are the columns, `dtypes` their types."""

    names: tuple[str, ...]
    dtypes: tuple[np.dtype, ...]
    asked = True  # whether a model reads it; otherwise it is what a model says

    def __init__(self, tokenizer: Tokenizer, ends: bool, labels: dict[str, int]):
        self.tokenizer, self.labels = tokenizer, labels
        known = special_tokens(tokenizer)
        self.unknown = known.eos if known.unk is None else known.unk

    def check(self, value: Any, place: str) -> Any:
        """The value as `encode` takes it, or an error that names the place."""
        return value

    def encode(self, values: list) -> list[Encoded]:
        """The values of one field in many records, column by column."""
        raise NotImplementedError


class TextField(Field):
    """A string as ids."""

    names = ("text",)

    def __init__(self, tokenizer: Tokenizer, ends: bool, labels: dict[str, int]):
        super().__init__(tokenizer, ends, labels)
        self.encoder = RecordEncoder(tokenizer, ends)
        self.dtypes = (self.encoder.dtype,)

    def check(self, value: Any, place: str) -> str:
        if not isinstance(value, str):
            raise ValueError(f"{place}: a {type(value).__name__} where text should be; use another reader")
        return check_unicode(value, place)

    def encode(self, values: list[str]) -> list[Encoded]:
        return [(*self.encoder(values), utf8_lengths(values))]


class WordsField(Field):
    """Words, each as one or more ids, and as bytes."""

    names = ("pieces", "begins", "letters")

    def __init__(self, tokenizer: Tokenizer, ends: bool, labels: dict[str, int]):
        super().__init__(tokenizer, ends, labels)
        self.dtypes = (RecordEncoder(tokenizer, ends).dtype, np.dtype(np.uint32), np.dtype(np.uint8))
        self.known: dict[str, tuple[list[int], int]] = {}

    def check(self, value: Any, place: str) -> list[str]:
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list):
            raise ValueError(
                f"{place}: a {type(value).__name__} where words should be; write a list of words"
            )
        if not words:
            raise ValueError(f"{place}: a sentence without words; write some, or leave it out")
        for word in words:
            if not isinstance(word, str) or not word.strip():
                raise ValueError(f"{place}: {word!r} is no word; words are text that is not empty")
            if "\0" in check_unicode(word, place):
                raise ValueError(f"{place}: the word {word!r} has a NUL in it; leave it out")
        return words

    def pieces(self, word: str) -> tuple[list[int], int]:
        """The ids of a word after a space, and which of them is the first that is more than the space."""
        found = self.known.get(word)
        if found is None:
            encoding = self.tokenizer.encode(" " + word, add_special_tokens=False)
            ids = encoding.ids or [self.unknown]
            lead = sum(1 for _, end in encoding.offsets[:-1] if end <= 1)
            if len(self.known) >= CACHE_WORDS:
                self.known.clear()
            found = self.known[word] = ids, min(lead, len(ids) - 1)
        return found

    def encode(self, values: list[list[str]]) -> list[Encoded]:
        pieces, begins, counts, sizes = [], [], [], []
        for words in values:
            start = len(pieces)
            for word in words:
                ids, lead = self.pieces(word)
                begins.append(len(pieces) - start + lead)
                pieces += ids
            counts.append(len(pieces) - start)
        letters = ["\0".join([*words, ""]).encode() for words in values]
        sizes, words = integers(map(len, letters)), integers(map(len, values))
        ids, places = (
            np.array(column, dtype).tobytes()
            for column, dtype in zip((pieces, begins), self.dtypes, strict=False)
        )
        return [
            (ids, integers(counts), sizes - words),
            (places, words, 0 * words),
            (b"".join(letters), sizes, 0 * words),
        ]


class LabelField(Field):
    """One of the labels."""

    names, dtypes, asked = ("label",), (np.dtype(np.uint16),), False

    @classmethod
    def said(cls, value: Any, place: str) -> list[str]:
        """The labels that a value names."""
        if not isinstance(value, str) or not value.strip():
            raise ValueError(f"{place}: {value!r} is no label; labels are text that is not empty")
        return [value]

    def check(self, value: Any, place: str) -> list[int]:
        try:
            return [self.labels[name] for name in self.said(value, place)]
        except KeyError as error:
            raise ValueError(
                f"{place}: the label {error.args[0]!r} is not one that was learnt ({preview(self.labels)}); correct it"
            ) from None

    def encode(self, values: list[list[int]]) -> list[Encoded]:
        counts = integers(map(len, values))
        return [
            (np.array([place for row in values for place in row], np.uint16).tobytes(), counts, 0 * counts)
        ]


class TagsField(LabelField):
    """A label for each word."""

    names = ("tags",)

    @classmethod
    def said(cls, value: Any, place: str) -> list[str]:
        return [
            name
            for one in (value.split() if isinstance(value, str) else value)
            for name in LabelField.said(one, place)
        ]


class NumberField(Field):
    """A number."""

    names, dtypes, asked = ("number",), (np.dtype(np.float64),), False

    def check(self, value: Any, place: str) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"{place}: {value!r} is no number; write it like 3.5")
        return number

    def encode(self, values: list[float]) -> list[Encoded]:
        counts = np.ones(len(values), np.int64)
        return [(np.array(values, np.float64).tobytes(), counts, 0 * counts)]


class PassageField(TextField):
    """A text in which answers are looked for: ids, their places in it, and itself."""

    names = ("passage", "edges", "source")

    def __init__(self, tokenizer: Tokenizer, ends: bool, labels: dict[str, int]):
        super().__init__(tokenizer, False, labels)
        self.dtypes = (self.encoder.dtype, np.dtype(np.uint32), np.dtype(np.uint8))
        self.last: tuple[str, tuple[bytes, bytes, int]] = ("", (b"", b"", 0))

    def check(self, value: Any, place: str) -> str:
        if not super().check(value, place).strip():
            raise ValueError(f"{place}: the passage is empty; write one, or leave the question out")
        return value

    def read(self, text: str) -> tuple[bytes, bytes, int]:
        """Ids, edges and how many; questions on one passage follow each other, so the last is kept."""
        if self.last[0] != text:
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            ids, edges = encoding.ids or [self.unknown], encoding.offsets or [(0, len(text))]
            found = (
                np.array(ids, self.dtypes[0]).tobytes(),
                np.array(strip_edges(text, edges), np.uint32).tobytes(),
                len(ids),
            )
            self.last = text, found
        return self.last[1]

    def encode(self, values: list[str]) -> list[Encoded]:
        found = [self.read(text) for text in values]
        counts, sources = integers(count for _, _, count in found), [text.encode() for text in values]
        sizes = integers(map(len, sources))
        ids, edges = (b"".join(column) for column in ([one[0] for one in found], [one[1] for one in found]))
        return [(ids, counts, sizes), (edges, 2 * counts, 0 * counts), (b"".join(sources), sizes, 0 * counts)]


class SpanField(Field):
    """Where in the passage an answer stands, and every answer that is right."""

    names, dtypes, asked = ("span", "answers"), (np.dtype(np.uint32), np.dtype(np.uint8)), False

    @classmethod
    def said(cls, value: Any, place: str) -> list[str]:
        return [] if value else [NONE]

    def check(self, value: Any, place: str) -> list[tuple[int, str]]:
        for start, text in value:
            if start < 0 or not text.strip() or "\0" in check_unicode(text, place):
                raise ValueError(
                    f"{place}: an answer {text!r} at character {start}; answers are text that stands in the passage"
                )
        return value

    def encode(self, values: list[list[tuple[int, str]]]) -> list[Encoded]:
        spans = [(row[0][0], row[0][0] + len(row[0][1])) if row else (0, 0) for row in values]
        texts = ["\0".join([*(text for _, text in row), ""]).encode() if row else b"" for row in values]
        counts, sizes = np.full(len(values), 2, np.int64), integers(map(len, texts))
        return [
            (np.array(spans, np.uint32).tobytes(), counts, 0 * counts),
            (b"".join(texts), sizes, 0 * counts),
        ]


KINDS: dict[str, type[Field]] = {  # the names that configs use
    "text": TextField,
    "words": WordsField,
    "tags": TagsField,
    "label": LabelField,
    "number": NumberField,
    "passage": PassageField,
    "span": SpanField,
}


class RecordSchema:
    """The kinds of a record together. With `answered` false only what a model reads is expected."""

    def __init__(
        self,
        kinds: Sequence[str],
        tokenizers: Sequence[Tokenizer],
        ends: bool,
        labels: Sequence[str],
        answered: bool = True,
    ):
        names = [name for name in kinds if answered or KINDS[name].asked]
        if len(tokenizers) not in (1, len(names)):
            raise ValueError(
                f"{len(tokenizers)} tokenizers for records of {len(names)} fields; give one for all, or one for each"
            )
        known = {label: place for place, label in enumerate(labels)}
        each = tokenizers if len(tokenizers) > 1 else list(tokenizers) * len(names)
        self.kinds = [
            KINDS[name](tokenizer, ends, known) for name, tokenizer in zip(names, each, strict=True)
        ]
        self.names = tuple(name for kind in self.kinds for name in kind.names)
        self.learnt = not all(KINDS[name].asked for name in kinds)
        self.specials = special_tokens(each[-1])

    def check(self, record: Sequence, place: str) -> list:
        """A record's values as they are encoded; those that do not fit each other are an error too."""
        if isinstance(record, str):
            raise ValueError(
                f"{place}: one text where {len(self.kinds)} fields should be ({', '.join(self.names)}); give them together, as a pair"
            )
        if len(record) != len(self.kinds):
            raise ValueError(
                f"{place}: {len(record)} fields where {len(self.kinds)} should be ({', '.join(self.names)})"
            )
        values = [kind.check(value, place) for kind, value in zip(self.kinds, record, strict=True)]
        if self.learnt and any(isinstance(value, str) and not value.strip() for value in values):
            raise ValueError(f"{place}: an empty text; write one, or leave the record out")
        by_kind = {type(kind): value for kind, value in zip(self.kinds, values, strict=True)}
        if TagsField in by_kind and len(by_kind[TagsField]) != len(by_kind[WordsField]):
            raise ValueError(
                f"{place}: {len(by_kind[WordsField])} words and {len(by_kind[TagsField])} tags; give each word one tag"
            )
        for start, text in by_kind.get(SpanField, []):
            if by_kind[PassageField][start : start + len(text)] != text:
                raise ValueError(
                    f"{place}: the answer {text!r} does not stand at character {start} of the passage; correct answer_start"
                )
        return values


def collect_labels(reader: Reader) -> list[str]:
    """The labels of a corpus in the order of the alphabet; none where it has no labels."""
    fields = [
        (number, KINDS[name]) for number, name in enumerate(reader.kinds) if hasattr(KINDS[name], "said")
    ]
    found: set[str] = set()
    for record in reader if fields else ():
        for number, kind in fields:
            found.update(kind.said(record[number], reader.at))
        if len(found) > MAX_LABELS:
            raise ValueError(
                f"{reader.at}: more than {MAX_LABELS:,} different labels; is it the right column?"
            )
    return sorted(found)


def iter_texts(reader: Reader) -> Iterator[str]:
    """What a tokenizer learns from: every text, and the words of a sentence with spaces between."""
    for record in reader:
        for name, value in zip(reader.kinds, record, strict=True):
            if name in ("text", "passage"):
                yield check_unicode(value, reader.at)
            elif name == "words":
                yield check_unicode(value if isinstance(value, str) else " ".join(value), reader.at)


def check_unicode(text: str, place: str) -> str:
    """The text, which UTF-8 must be able to hold."""
    if not is_valid_unicode(text):
        raise ValueError(f"{place}: half a surrogate pair in the text; write the whole character")
    return text


def has_labels(kinds: Iterable[str]) -> bool:
    """Whether records of these kinds name labels."""
    return any(hasattr(KINDS[name], "said") for name in kinds)


def strip_edges(text: str, edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Edges without the white space that a piece may begin with."""
    return [
        (end - len(text[start:end].lstrip()), end) if text[start:end].strip() else (start, end)
        for start, end in edges
    ]


def utf8_lengths(values: list[str]) -> np.ndarray:
    return integers(
        map(len, values) if all(map(str.isascii, values)) else (len(text.encode()) for text in values)
    )


def integers(values: Iterable[int]) -> np.ndarray:
    return np.array(list(values), np.int64)


def preview(labels: Iterable[str]) -> str:
    """The first few labels, for a sentence."""
    known = list(labels)
    return ", ".join(known[:8]) + (", …" if len(known) > 8 else "")
