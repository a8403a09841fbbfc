"""Fields of records other than plain text: words, tags, labels, numbers, passages and the spans of answers in them.

A word is encoded as inside a sentence, after a space; its first piece that is more than the space represents
it. Letters are bytes, so that every word has a spelling and no alphabet must be collected.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.text.encoder import (
    Encoded,
    Field,
    RecordEncoder,
    TextField,
    check_unicode,
    integers,
    preview,
)

CACHE_WORDS = 200_000  # words whose pieces are cached
NONE = "none"  # the label of a question without an answer


class WordsField(Field):
    """Words, each as one or more ids, and as bytes."""

    names = ("pieces", "begins", "letters")

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, adds_eos, labels)
        self.dtypes = (RecordEncoder(tokenizer, adds_eos).dtype, np.dtype(np.uint32), np.dtype(np.uint8))
        self.piece_cache: dict[str, tuple[list[int], int]] = {}

    def check(self, value: Any, location: str) -> list[str]:
        words = value.split() if isinstance(value, str) else value
        if not isinstance(words, list):
            raise DataError(f"{location}: a {type(value).__name__} instead of words; write a list of words")
        if not words:
            raise DataError(f"{location}: a sentence without words; write some, or remove it")
        for word in words:
            if not isinstance(word, str) or not word.strip():
                raise DataError(f"{location}: {word!r} is not a word; words are non-empty text")
            if "\0" in check_unicode(word, location):
                raise DataError(f"{location}: the word {word!r} contains a NUL; remove it")
        return words

    def pieces(self, word: str) -> tuple[list[int], int]:
        """Returns the ids of a word after a space, and the index of the first that is more than the space."""
        cached = self.piece_cache.get(word)
        if cached is None:
            encoding = self.tokenizer.encode(" " + word, add_special_tokens=False)
            ids = encoding.ids or [self.unk_id]
            first = sum(1 for _, end in encoding.offsets[:-1] if end <= 1)
            if len(self.piece_cache) >= CACHE_WORDS:
                self.piece_cache.clear()
            cached = self.piece_cache[word] = ids, min(first, len(ids) - 1)
        return cached

    def encode(self, values: list[list[str]]) -> list[Encoded]:
        pieces: list[int] = []
        word_starts: list[int] = []
        piece_counts: list[int] = []
        for words in values:
            start = len(pieces)
            for word in words:
                ids, first = self.pieces(word)
                word_starts.append(len(pieces) - start + first)
                pieces += ids
            piece_counts.append(len(pieces) - start)
        letters = ["\0".join([*words, ""]).encode() for words in values]
        letter_counts = integers(map(len, letters))
        word_counts = integers(map(len, values))
        pieces_dtype, starts_dtype, _ = self.dtypes
        return [
            (np.array(pieces, pieces_dtype).tobytes(), integers(piece_counts), letter_counts - word_counts),
            (np.array(word_starts, starts_dtype).tobytes(), word_counts, 0 * word_counts),
            (b"".join(letters), letter_counts, 0 * word_counts),
        ]


class LabelField(Field):
    """One of the labels."""

    names = ("label",)
    dtypes = (np.dtype(np.uint16),)
    is_input = False
    names_labels = True

    @classmethod
    def labels_in(cls, value: Any, location: str) -> list[str]:
        if not isinstance(value, str) or not value.strip():
            raise DataError(f"{location}: {value!r} is not a label; labels are non-empty text")
        return [value]

    def check(self, value: Any, location: str) -> list[int]:
        try:
            return [self.labels[name] for name in self.labels_in(value, location)]
        except KeyError as error:
            raise DataError(
                f"{location}: the label {error.args[0]!r} is not in the training data ({preview(self.labels)}); correct it"
            ) from None

    def encode(self, values: list[list[int]]) -> list[Encoded]:
        counts = integers(map(len, values))
        indices = [index for row in values for index in row]
        return [(np.array(indices, np.uint16).tobytes(), counts, 0 * counts)]


class TagsField(LabelField):
    """A label for each word."""

    names = ("tags",)

    @classmethod
    def labels_in(cls, value: Any, location: str) -> list[str]:
        tags = value.split() if isinstance(value, str) else value
        return [label for tag in tags for label in LabelField.labels_in(tag, location)]


class NumberField(Field):
    """A number."""

    names = ("number",)
    dtypes = (np.dtype(np.float64),)
    is_input = False

    def check(self, value: Any, location: str) -> float:
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise DataError(f"{location}: {value!r} is not a number; write it like 3.5")
        return number

    def encode(self, values: list[float]) -> list[Encoded]:
        counts = np.ones(len(values), np.int64)
        return [(np.array(values, np.float64).tobytes(), counts, 0 * counts)]


class PassageField(TextField):
    """A text that contains answers: its ids, the characters of each id, and its bytes."""

    names: tuple[str, ...] = ("passage", "edges", "source")

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, False, labels)
        self.dtypes = (self.encoder.dtype, np.dtype(np.uint32), np.dtype(np.uint8))
        self.last_text = ""
        self.last_encoded = (b"", b"", 0)

    def check(self, value: Any, location: str) -> str:
        if not super().check(value, location).strip():
            raise DataError(f"{location}: the passage is empty; write one, or remove the question")
        return value

    def encode_passage(self, text: str) -> tuple[bytes, bytes, int]:
        """Returns ids, edges and the number of ids. The last result
        is cached: questions on one passage are consecutive."""
        if self.last_text != text:
            encoding = self.tokenizer.encode(text, add_special_tokens=False)
            ids = encoding.ids or [self.unk_id]
            edges = strip_edges(text, encoding.offsets or [(0, len(text))])
            id_bytes = np.array(ids, self.dtypes[0]).tobytes()
            edge_bytes = np.array(edges, np.uint32).tobytes()
            self.last_text = text
            self.last_encoded = id_bytes, edge_bytes, len(ids)
        return self.last_encoded

    def encode(self, values: list[str]) -> list[Encoded]:
        encoded = [self.encode_passage(text) for text in values]
        ids = b"".join(id_bytes for id_bytes, _, _ in encoded)
        edges = b"".join(edge_bytes for _, edge_bytes, _ in encoded)
        counts = integers(count for _, _, count in encoded)
        sources = [text.encode() for text in values]
        sizes = integers(map(len, sources))
        return [(ids, counts, sizes), (edges, 2 * counts, 0 * counts), (b"".join(sources), sizes, 0 * counts)]


class SpanField(Field):
    """The start and the end of the first answer in the passage, and the text of every correct answer."""

    names = ("span", "answers")
    dtypes = (np.dtype(np.uint32), np.dtype(np.uint8))
    is_input = False
    names_labels = True

    @classmethod
    def labels_in(cls, value: Any, location: str) -> list[str]:
        return [] if value else [NONE]

    def check(self, value: Any, location: str) -> list[tuple[int, str]]:
        for start, text in value:
            if start < 0 or not text.strip() or "\0" in check_unicode(text, location):
                raise DataError(
                    f"{location}: an answer {text!r} at character {start}; answers are text of the passage"
                )
        return value

    def encode(self, values: list[list[tuple[int, str]]]) -> list[Encoded]:
        spans = [(row[0][0], row[0][0] + len(row[0][1])) if row else (0, 0) for row in values]
        texts = ["\0".join([*(text for _, text in row), ""]).encode() if row else b"" for row in values]
        counts = np.full(len(values), 2, np.int64)
        sizes = integers(map(len, texts))
        return [
            (np.array(spans, np.uint32).tobytes(), counts, 0 * counts),
            (b"".join(texts), sizes, 0 * counts),
        ]


def strip_edges(text: str, edges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Removes from each edge the white space that the piece may begin with."""
    return [
        (end - len(text[start:end].lstrip()), end) if text[start:end].strip() else (start, end)
        for start, end in edges
    ]
