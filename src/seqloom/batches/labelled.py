"""Labelled records as batches of like length: a tag for each word, a label or a number for a text or a pair, a span for a question.

A text is laid out as <bos> … <eos>. Records longer than `longest` are cut there, in training and in the held-out loss; who answers reads them whole.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.buckets import Buckets, pad, rows, sizes
from seqloom.batches.permutation import hash_key
from seqloom.text.store import Store

LETTERS = 32  # bytes of a word that are read


class TaggedBatch(NamedTuple):
    """Words with their tags. A word is read from its first piece, and spelt as row `spelt` of the letters."""

    ids: Tensor  # (B, T): pieces
    real: Tensor  # (B, T)
    begins: Tensor  # (B, W): where each word's first piece stands
    letters: Tensor  # (U, C): bytes of each distinct word, 0 at padding
    spelt: Tensor  # (B, W)
    targets: Tensor  # (B, W): tags; 0 where none are known
    mask: Tensor  # (B, W): the words that count
    carry: bool = False

    @property
    def weight(self) -> int:
        return int(self.mask.sum())


class LabelledBatch(NamedTuple):
    """Texts, or pairs of texts, with a label or a number each."""

    ids: Tensor  # (B, T)
    real: Tensor  # (B, T)
    second: Tensor | None  # (B, S)
    second_real: Tensor | None  # (B, S)
    targets: Tensor  # (B,): labels, or numbers
    mask: Tensor  # (B,): the records that count
    carry: bool = False

    @property
    def weight(self) -> int:
        return int(self.mask.sum())


class QABatch(NamedTuple):
    """Questions and the part of a passage that is looked at. A place is 0 for no answer, else 1 + a token of `second`."""

    ids: Tensor  # (B, T): questions
    real: Tensor  # (B, T)
    second: Tensor  # (B, S): tokens of the passages
    second_real: Tensor  # (B, S)
    targets: Tensor  # (B, 2): the places of the first and the last token
    mask: Tensor  # (B,)
    carry: bool = False

    @property
    def weight(self) -> int:
        return int(self.mask.sum())


def require_columns(store: Store, wanted: tuple[str, ...], corpora: str) -> None:
    missing = [name for name in wanted if name not in store.names]
    if missing:
        raise ValueError(
            f"the records have {', '.join(store.names)} and no {missing[0]}: use corpus {corpora}"
        )


class Tagged(Buckets):
    """Sentences whose words have tags, in batches whose rows × longest row stay within `tokens`."""

    def __init__(self, store: Store, tokens: int = 1024, longest: int = 256, pool: int = 4096, seed: int = 0):
        require_columns(
            store, ("pieces", "begins", "letters"), "CoNLLU, Columns, or JSONLines with kinds words and tags"
        )
        super().__init__(store, tokens, longest, pool, seed)
        (self.pieces,), (self.begins,), (self.letters,) = (
            store.columns(name) for name in ("pieces", "begins", "letters")
        )
        self.tags = store.columns("tags")

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(self.whole(index), self.longest)

    def whole(self, index: np.ndarray) -> np.ndarray:
        return sizes(self.pieces, index)

    def cut(self, index: np.ndarray, real: bool = True, whole: bool = False) -> TaggedBatch:
        most = None if whole else self.longest
        ids, mask = pad([row[:most] for row in rows(self.pieces, index)])
        places = [row if whole else row[row < self.longest] for row in rows(self.begins, index)]
        begins, words = pad(places)
        counts = [len(row) for row in places]
        spelt: list[bytes] = []
        for row, count in zip(rows(self.letters, index), counts, strict=True):
            spelt += row.tobytes().split(b"\0", count)[:count]
        distinct, which = np.unique(np.array(spelt, f"S{LETTERS}"), return_inverse=True)
        letters = distinct.view(np.uint8).reshape(len(distinct), LETTERS)[
            :, : np.char.str_len(distinct).max(initial=1)
        ]
        tags = (
            [row[:n] for row, n in zip(rows(self.tags[0], index), counts, strict=True)]
            if self.tags
            else [np.zeros(n, np.int64) for n in counts]
        )
        split = np.split(which, np.cumsum(counts)[:-1])
        return TaggedBatch(
            ids,
            mask,
            begins,
            torch.from_numpy(letters.astype(np.int64)),
            pad(split)[0],
            pad(tags)[0],
            words & real,
        )


class Labelled(Buckets):
    """Texts or pairs of texts with a label or a number, in batches whose rows × longest row stay within `tokens`."""

    def __init__(self, store: Store, tokens: int = 2048, longest: int = 256, pool: int = 4096, seed: int = 0):
        require_columns(store, ("text",), "Table or JSONLines with kinds such as text and label")
        super().__init__(store, tokens, longest, pool, seed)
        self.texts = store.columns("text")
        if len(self.texts) > 2:
            raise ValueError(f"the records have {len(self.texts)} texts: one or two can be read")
        self.said = [*store.columns("label"), *store.columns("number")]
        self.most = max(longest // len(self.texts) - 1, 1)  # tokens of each text, <bos> apart

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(self.whole(index), self.longest)

    def whole(self, index: np.ndarray) -> np.ndarray:
        return np.sum([1 + sizes(field, index) for field in self.texts], axis=0)

    def cut(self, index: np.ndarray, real: bool = True, whole: bool = False) -> LabelledBatch:
        most = None if whole else self.most
        sides = [
            prepend_bos([truncate(row, most) for row in rows(field, index)], first_token(self.store))
            for field in self.texts
        ]
        targets = torch.zeros(len(index), dtype=torch.long)
        if self.said:
            targets = torch.from_numpy(np.array([row[0] for row in rows(self.said[0], index)]))
        targets = targets.float() if targets.is_floating_point() else targets.long()
        return LabelledBatch(
            *sides[0],
            *(sides[1] if len(sides) > 1 else (None, None)),
            targets,
            torch.full((len(index),), real),
        )


def truncate(row: np.ndarray, most: int | None) -> np.ndarray:
    """At most so many tokens, the last kept, which is <eos>."""
    return row if most is None or len(row) <= most else np.append(row[: most - 1], row[-1])


def first_token(store: Store) -> int:
    """The id that a text begins with."""
    return store.specials.eos if store.specials.bos is None else store.specials.bos


def prepend_bos(texts: list[np.ndarray], first: int) -> tuple[Tensor, Tensor]:
    """<bos> before each text."""
    return pad([np.concatenate([[first], row]) for row in texts])


class Questions(Buckets):
    """Questions on passages, in batches whose rows × longest row stay within `tokens`.

    Of a passage that does not fit into `longest` with its question a part is read: in three of four records one with the answer in it, its place a
    function of the seed and the record.
    """

    def __init__(self, store: Store, tokens: int = 2048, longest: int = 384, pool: int = 2048, seed: int = 0):
        require_columns(
            store, ("text", "passage", "edges"), "SQuAD, or JSONLines with kinds text, passage and span"
        )
        super().__init__(store, tokens, longest, pool, seed)
        (self.questions,), (self.passages,), (self.edges,), spans = (
            store.columns(name) for name in ("text", "passage", "edges", "span")
        )
        self.spans = spans[0] if spans else None

    def room(self, index: np.ndarray) -> np.ndarray:
        """How many tokens of a passage fit beside the questions."""
        return np.maximum(self.longest - 1 - np.minimum(sizes(self.questions, index), self.longest // 2), 1)

    def lengths(self, index: np.ndarray) -> np.ndarray:
        asked = np.minimum(sizes(self.questions, index), self.longest // 2)
        return np.minimum(1 + asked + np.minimum(sizes(self.passages, index), self.room(index)), self.longest)

    def tokens_of(self, record: int) -> tuple[int, int]:
        """The first token of a record's answer, and the one after its last; (0, 0) without an answer."""
        if self.spans is None:
            return 0, 0
        begin, end = rows(self.spans, [record])[0].tolist()
        edges = rows(self.edges, [record])[0].reshape(-1, 2)
        first = int(
            np.searchsorted(edges[:, 1], begin, side="right")
        )  # the first that ends after the answer begins
        last = int(
            np.searchsorted(edges[:, 0], end, side="left")
        )  # the first that begins at its end or later
        return (first, max(last, first + 1)) if end and first < len(edges) else (0, 0)

    def cut(self, index: np.ndarray, real: bool = True) -> QABatch:
        room, begins = self.room(index), []
        answers = np.array([self.tokens_of(int(i)) for i in index])  # (B, 2)
        for record, space, (first, last) in zip(index, room, answers, strict=True):
            free = max(int(sizes(self.passages, np.array([record]))[0]) - int(space), 0)
            draw = hash_key(self.seed, int(record))
            low, high = (max(last - int(space), 0), min(first, free)) if last and draw % 4 else (0, free)
            begins.append(low + (draw >> 8) % (max(high, low) - low + 1))
        return self.parts(index, np.array(begins), answers, real)

    def parts(self, index: np.ndarray, begins: np.ndarray, answers: np.ndarray, real: bool = True) -> QABatch:
        """The batch in which the given records are read from the given tokens of their passages on."""
        room = self.room(index)
        ids, mask = prepend_bos(
            [truncate(row, self.longest // 2) for row in rows(self.questions, index)], first_token(self.store)
        )
        second, second_mask = pad(
            [row[b : b + r] for row, b, r in zip(rows(self.passages, index), begins, room, strict=True)]
        )
        inside = (answers[:, 1] > 0) & (answers[:, 0] >= begins) & (answers[:, 1] <= begins + room)
        places = np.where(inside[:, None], answers - begins[:, None] + [1, 0], 0)
        return QABatch(
            ids, mask, second, second_mask, torch.from_numpy(places), torch.full((len(index),), real)
        )
