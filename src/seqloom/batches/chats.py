"""Chats in batches: language modelling in which only the assistant's turns are targets.

ids     w₁ … w_{T-1}     what the model reads: the chat under its template
targets w₂ … w_T
mask    where the target is a token of the assistant, or the token that ends its turn
"""

from __future__ import annotations

import numpy as np

from seqloom.batches.batch import TokenBatch
from seqloom.batches.buckets import Buckets, pad, read_rows, row_lengths
from seqloom.batches.labelled import require_columns
from seqloom.errors import ConfigError
from seqloom.text.store import Column, ColumnView, Store


class Turns(Buckets):
    """Chats in batches in which rows × longest row is at most `batch_tokens`.

    Chats longer than `max_length` tokens are cut at the end; those without a turn of the assistant before the cut are skipped in
    training. With `pack`, complete chats are put one after the other into rows of at most `max_length` tokens, so that short chats
    waste no padding; a chat then sees those before it in its row, as in a text.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 2048,
        max_length: int = 512,
        shuffle_pool: int = 4096,
        pack: bool = False,
        seed: int = 0,
    ):
        require_columns(store, ("counted",), "Chats")
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        self.column = store.fields[0]
        self.counted = store.columns("counted")[0]
        self.pack = pack
        if not any(
            self.num_targets(np.arange(i, min(i + 4096, len(store)))).any()
            for i in range(0, len(store), 4096)
        ):
            raise ConfigError(
                f"no chat has a turn of the assistant in its first batches.max_length={max_length} tokens"
            )

    def full_lengths(self, index: np.ndarray) -> np.ndarray:
        return np.minimum(row_lengths(self.column, index), self.max_length)

    def num_targets(self, index: np.ndarray) -> np.ndarray:
        """The number of targets of each of the given chats."""
        return np.array([int(row[1 : self.max_length].sum()) for row in read_rows(self.counted, index)])

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.where(self.num_targets(index) > 0, self.full_lengths(index), self.max_length + 1)

    def pool_groups(self, epoch: int, pool: int) -> list[np.ndarray]:
        groups = super().pool_groups(epoch, pool)
        if not self.pack or not groups:
            return groups
        chats = np.concatenate(groups)
        packed = pack_rows(chats, self.full_lengths(chats), self.max_length)
        size = max(1, self.batch_tokens // self.max_length)
        return [object_array(packed[i : i + size]) for i in range(0, len(packed), size)]

    def collate(self, index: np.ndarray, counted: bool = True) -> TokenBatch:
        """Builds the batch of the given chats, or of the given rows of chats."""
        groups = [np.atleast_1d(row) for row in index]
        ids, mask = pad([self.row(self.column, group) for group in groups])
        is_target, _ = pad([self.row(self.counted, group) for group in groups])
        return TokenBatch(ids[:, :-1], ids[:, 1:], (is_target[:, 1:] > 0) & mask[:, 1:] & counted)

    def row(self, column: Column | ColumnView, group: np.ndarray) -> np.ndarray:
        """The values of the chats of a row, one after the other."""
        return np.concatenate([values[: self.max_length] for values in read_rows(column, group)])


def pack_rows(chats: np.ndarray, lengths: np.ndarray, width: int) -> list[np.ndarray]:
    """Puts chats into rows of at most `width` tokens: the longest first, each into the first row in which it fits."""
    free = np.zeros(0, np.int64)
    packed: list[list[int]] = []
    for i in np.argsort(-lengths, kind="stable"):
        fits = np.flatnonzero(free >= lengths[i])
        if len(fits):
            place = int(fits[0])
            packed[place].append(int(chats[i]))
            free[place] -= lengths[i]
        else:
            packed.append([int(chats[i])])
            free = np.append(free, width - lengths[i])
    return [np.array(row) for row in packed]


def object_array(items: list[np.ndarray]) -> np.ndarray:
    """An array whose elements are arrays."""
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array
