"""Labelled records in batches of similar length: tagged sentences,
labelled texts or pairs, questions on passages.

A text is <bos> … <eos>. Records longer than `max_length` are truncated
in training and in the held-out loss; inference reads them in full.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import hash_key
from seqloom.batches.buckets import Buckets, pad, read_rows, row_lengths
from seqloom.errors import ConfigError
from seqloom.text.store import Store

MAX_WORD_BYTES = 32  # bytes of a word that the model reads

IdsWithMask = tuple[Tensor, Tensor]


class TaggedBatch(NamedTuple):
    """Sentences whose words have tags. A word is represented by its
    first token, and by its bytes: row `word_ids` of `char_ids`."""

    ids: Tensor  # (B, T)
    input_mask: Tensor  # (B, T)
    word_starts: Tensor  # (B, W): the position of each word's first token
    char_ids: Tensor  # (U, C): the bytes of each distinct word, 0 at padding
    word_ids: Tensor  # (B, W): which distinct word each word is
    targets: Tensor  # (B, W): tags; 0 where the data has none
    mask: Tensor  # (B, W): the words that count
    carry_state: bool = False

    @property
    def num_targets(self) -> int:
        """The number of words that count in the loss."""
        return int(self.mask.sum())


class LabelledBatch(NamedTuple):
    """Texts, or pairs of texts, with a label or a number each."""

    ids: Tensor  # (B, T)
    input_mask: Tensor  # (B, T)
    pair_ids: Tensor | None  # (B, S): the second texts
    pair_mask: Tensor | None  # (B, S)
    targets: Tensor  # (B,): labels, or numbers
    mask: Tensor  # (B,): the records that count
    carry_state: bool = False

    @property
    def num_targets(self) -> int:
        """The number of records that count in the loss."""
        return int(self.mask.sum())

    @property
    def inputs(self) -> tuple[IdsWithMask, IdsWithMask | None]:
        """The ids and the mask of the first texts, and those of the second texts if there are any."""
        if self.pair_ids is None or self.pair_mask is None:
            return (self.ids, self.input_mask), None
        return (self.ids, self.input_mask), (self.pair_ids, self.pair_mask)


class QABatch(NamedTuple):
    """Questions, each with a window of its passage. A target position
    is 0 for no answer, else 1 + a token of `pair_ids`."""

    ids: Tensor  # (B, T): questions
    input_mask: Tensor  # (B, T)
    pair_ids: Tensor  # (B, S): windows of the passages
    pair_mask: Tensor  # (B, S)
    targets: Tensor  # (B, 2): the positions of the answer's first and last token
    mask: Tensor  # (B,)
    carry_state: bool = False

    @property
    def num_targets(self) -> int:
        """The number of questions that count in the loss."""
        return int(self.mask.sum())

    @property
    def inputs(self) -> tuple[IdsWithMask, IdsWithMask]:
        """The ids and the mask of the questions, and those of the passages."""
        return (self.ids, self.input_mask), (self.pair_ids, self.pair_mask)


def require_columns(store: Store, expected: tuple[str, ...], corpora: str) -> None:
    """Raises if the store has not all the expected columns."""
    missing = [name for name in expected if name not in store.names]
    if missing:
        raise ConfigError(
            f"the records have {', '.join(store.names)} but no {missing[0]}: use corpus {corpora}"
        )


class Tagged(Buckets):
    """Sentences whose words have tags, in batches in which rows × longest row is at most `batch_tokens`."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 1024,
        max_length: int = 256,
        shuffle_pool: int = 4096,
        seed: int = 0,
    ):
        corpora = "CoNLLU, Columns, or JSONLines with kinds words and tags"
        require_columns(store, ("pieces", "begins", "letters"), corpora)
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        (self.pieces,) = store.columns("pieces")
        (self.word_starts,) = store.columns("begins")
        (self.letters,) = store.columns("letters")
        self.tags = store.columns("tags")

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(self.full_lengths(index), self.max_length)

    def full_lengths(self, index: np.ndarray) -> np.ndarray:
        return row_lengths(self.pieces, index)

    def collate(self, index: np.ndarray, counted: bool = True, full: bool = False) -> TaggedBatch:
        """Builds the batch of the given records, truncated to `max_length` unless `full`."""
        limit = None if full else self.max_length
        ids, input_mask = pad([row[:limit] for row in read_rows(self.pieces, index)])
        starts = [row if limit is None else row[row < limit] for row in read_rows(self.word_starts, index)]
        word_starts, words = pad(starts)
        counts = [len(row) for row in starts]
        spellings: list[bytes] = []
        for row, count in zip(read_rows(self.letters, index), counts, strict=True):
            spellings += row.tobytes().split(b"\0", count)[:count]
        distinct, word_ids = np.unique(np.array(spellings, f"S{MAX_WORD_BYTES}"), return_inverse=True)
        longest = np.char.str_len(distinct).max(initial=1)
        char_ids = distinct.view(np.uint8).reshape(len(distinct), MAX_WORD_BYTES)[:, :longest]
        if self.tags:
            tags = [row[:count] for row, count in zip(read_rows(self.tags[0], index), counts, strict=True)]
        else:
            tags = [np.zeros(count, np.int64) for count in counts]
        word_ids_by_row = np.split(word_ids, np.cumsum(counts)[:-1])
        return TaggedBatch(
            ids,
            input_mask,
            word_starts,
            torch.from_numpy(char_ids.astype(np.int64)),
            pad(word_ids_by_row)[0],
            pad(tags)[0],
            words & counted,
        )


class Labelled(Buckets):
    """Texts or pairs of texts with a label or a number, in batches
    in which rows × longest row is at most `batch_tokens`."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 2048,
        max_length: int = 256,
        shuffle_pool: int = 4096,
        seed: int = 0,
    ):
        require_columns(store, ("text",), "Table or JSONLines with kinds such as text and label")
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        self.texts = store.columns("text")
        if len(self.texts) > 2:
            raise ConfigError(f"the records have {len(self.texts)} texts: give records of one or two")
        self.target_columns = [*store.columns("label"), *store.columns("number")]
        self.max_text_tokens = max(max_length // len(self.texts) - 1, 1)  # of each text, without <bos>

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(self.full_lengths(index), self.max_length)

    def full_lengths(self, index: np.ndarray) -> np.ndarray:
        return np.sum([1 + row_lengths(column, index) for column in self.texts], axis=0)

    def collate(self, index: np.ndarray, counted: bool = True, full: bool = False) -> LabelledBatch:
        """Builds the batch of the given records, truncated to `max_length` unless `full`."""
        limit = None if full else self.max_text_tokens
        first = first_token(self.store)
        texts = [
            prepend_bos([truncate(row, limit) for row in read_rows(column, index)], first)
            for column in self.texts
        ]
        targets = torch.zeros(len(index), dtype=torch.long)
        if self.target_columns:
            targets = torch.from_numpy(np.array([row[0] for row in read_rows(self.target_columns[0], index)]))
        targets = targets.float() if targets.is_floating_point() else targets.long()
        pair_ids, pair_mask = texts[1] if len(texts) > 1 else (None, None)
        return LabelledBatch(*texts[0], pair_ids, pair_mask, targets, torch.full((len(index),), counted))


def truncate(row: np.ndarray, limit: int | None) -> np.ndarray:
    """Truncates a row to `limit` tokens, keeping its last one, which is <eos>."""
    return row if limit is None or len(row) <= limit else np.append(row[: limit - 1], row[-1])


def first_token(store: Store) -> int:
    """Returns the id that a text begins with: <bos>, or <eos> for a tokenizer without one."""
    return store.specials.eos if store.specials.bos is None else store.specials.bos


def prepend_bos(texts: list[np.ndarray], first_id: int) -> IdsWithMask:
    """Puts `first_id` before each text and pads them."""
    return pad([np.concatenate([[first_id], row]) for row in texts])


class Questions(Buckets):
    """Questions on passages, in batches in which rows × longest row is at most `batch_tokens`.

    Of a passage that does not fit into `max_length` together with its question, one window is read. In three
    of four records it contains the answer; its position is a function of the seed and the record.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 2048,
        max_length: int = 384,
        shuffle_pool: int = 2048,
        seed: int = 0,
    ):
        corpora = "SQuAD, or JSONLines with kinds text, passage and span"
        require_columns(store, ("text", "passage", "edges"), corpora)
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        (self.questions,) = store.columns("text")
        (self.passages,) = store.columns("passage")
        (self.edges,) = store.columns("edges")
        spans = store.columns("span")
        self.spans = spans[0] if spans else None

    def question_lengths(self, index: np.ndarray) -> np.ndarray:
        """Returns the number of tokens of each question, truncated to half of `max_length`."""
        return np.minimum(row_lengths(self.questions, index), self.max_length // 2)

    def passage_capacity(self, index: np.ndarray) -> np.ndarray:
        """Returns the number of passage tokens that fit beside each question."""
        return np.maximum(self.max_length - 1 - self.question_lengths(index), 1)

    def lengths(self, index: np.ndarray) -> np.ndarray:
        passage_lengths = np.minimum(row_lengths(self.passages, index), self.passage_capacity(index))
        return np.minimum(1 + self.question_lengths(index) + passage_lengths, self.max_length)

    def answer_tokens(self, record: int) -> tuple[int, int]:
        """Returns the first token of a record's answer and the
        token after its last; (0, 0) if it has no answer."""
        if self.spans is None:
            return 0, 0
        start, end = read_rows(self.spans, [record])[0].tolist()
        edges = read_rows(self.edges, [record])[0].reshape(-1, 2)
        # the first token that ends after the answer's start, and the first that starts at its end or later
        first = int(np.searchsorted(edges[:, 1], start, side="right"))
        last = int(np.searchsorted(edges[:, 0], end, side="left"))
        return (first, max(last, first + 1)) if end and first < len(edges) else (0, 0)

    def collate(self, index: np.ndarray, counted: bool = True) -> QABatch:
        capacities = self.passage_capacity(index).tolist()
        passage_lengths = row_lengths(self.passages, index).tolist()
        answers = np.array([self.answer_tokens(int(i)) for i in index])  # (B, 2)
        starts = []
        for record, length, capacity, (first, last) in zip(
            index, passage_lengths, capacities, answers, strict=True
        ):
            last_start = max(length - capacity, 0)
            draw = hash_key(self.seed, int(record))
            low, high = 0, last_start
            if last and draw % 4:
                low, high = max(last - capacity, 0), min(first, last_start)
            starts.append(low + (draw >> 8) % (max(high, low) - low + 1))
        return self.collate_windows(index, np.array(starts), answers, counted)

    def collate_windows(
        self, index: np.ndarray, starts: np.ndarray, answers: np.ndarray, counted: bool = True
    ) -> QABatch:
        """Builds the batch of the given records, whose passages are read from the token `starts` on."""
        capacities = self.passage_capacity(index)
        questions = [truncate(row, self.max_length // 2) for row in read_rows(self.questions, index)]
        ids, input_mask = prepend_bos(questions, first_token(self.store))
        passages = zip(read_rows(self.passages, index), starts, capacities, strict=True)
        pair_ids, pair_mask = pad([row[start : start + capacity] for row, start, capacity in passages])
        inside = (answers[:, 1] > 0) & (answers[:, 0] >= starts) & (answers[:, 1] <= starts + capacities)
        positions = np.where(inside[:, None], answers - starts[:, None] + [1, 0], 0)
        targets = torch.from_numpy(positions)
        return QABatch(ids, input_mask, pair_ids, pair_mask, targets, torch.full((len(index),), counted))
