"""Batches of like length: what every kind of data has in common whose records are whole sequences.

An epoch is a random order cut into pools; a pool is sorted by length and cut into batches, which come in random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import Batch, Cursor, shard_rows
from seqloom.batches.permutation import hash_key, permute
from seqloom.text.store import Store


def pad(rows: Sequence[np.ndarray], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of unequal length as (B, T) ids, padded on the right, and their mask."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(mask.shape, fill, dtype=np.int64)
    ids[mask] = np.concatenate(rows) if len(rows) else []
    return torch.from_numpy(ids), torch.from_numpy(mask)


class Buckets:
    """Batches of records whose rows × longest row stay within `tokens`; a subclass says how long a record is and makes the batch."""

    def __init__(self, store: Store, tokens: int, longest: int, pool: int, seed: int):
        if len(store) == 0:
            raise ValueError("there are no records: give longer files")
        if tokens < 1 or longest < 1 or pool < 1:
            raise ValueError("data.tokens, data.longest and data.pool must be at least 1")
        self.store, self.tokens, self.longest, self.pool, self.seed = store, tokens, longest, pool, seed

    def lengths(self, index: np.ndarray) -> np.ndarray:
        """How long the given records are; those above `longest` are left out of training."""
        raise NotImplementedError

    def cut(self, index: np.ndarray, real: bool = True) -> Batch:
        """The batch of the given records; they count only where `real`."""
        raise NotImplementedError

    def whole(self, index: np.ndarray) -> np.ndarray:
        """How long the given records are where none is cut or left out."""
        return self.lengths(index)

    def groups(self, index: np.ndarray) -> list[np.ndarray]:
        """The given records, sorted by length and cut where the budget ends."""
        lengths = self.whole(index)
        order = np.argsort(lengths, kind="stable")
        groups, begin = [], 0
        for place in range(len(order)):
            if (place + 1 - begin) * lengths[order[place]] > self.tokens and place > begin:
                groups.append(index[order[begin:place]])
                begin = place
        return [*groups, index[order[begin:]]] if len(order) else groups

    def batches(self, cursor: Cursor = (), rank: int = 0, world: int = 1) -> Iterator[tuple[Batch, Cursor]]:
        epoch, pool, index = cursor or (0, 0, 0)
        while True:
            for number in range(pool, -(-len(self.store) // self.pool)):
                inside = np.arange(number * self.pool, min((number + 1) * self.pool, len(self.store)))
                chosen = permute(inside, len(self.store), hash_key(self.seed, epoch))
                groups = self.groups(chosen[self.lengths(chosen) <= self.longest])
                order = (
                    permute(np.arange(len(groups)), len(groups), hash_key(self.seed, epoch, number))
                    if groups
                    else []
                )
                for place in range(index, len(groups)):
                    yield self.cut(*shard_rows(groups[order[place]], rank, world)), (epoch, number, place + 1)
                index = 0
            epoch, pool = epoch + 1, 0

    def pools(self) -> Iterator[list[np.ndarray]]:
        """Every record once, in the order of the file from pool to pool, and grouped by length inside one; the groups stand in an order of chance,
        always the same, so that the first of them speak for all."""
        for begin in range(0, len(self.store), self.pool):
            groups = self.groups(np.arange(begin, min(begin + self.pool, len(self.store))))
            yield [groups[place] for place in permute(np.arange(len(groups)), len(groups), hash_key(0))]

    def once(self, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        for groups in self.pools():
            for place, group in enumerate(groups):
                if place % world == rank:
                    yield self.cut(group)


def sizes(field, index: np.ndarray) -> np.ndarray:
    """How many values each of the given records has in a column."""
    return field.offsets[index + 1] - field.offsets[index]


def rows(field, index: np.ndarray) -> list[np.ndarray]:
    """The values of the given records in a column."""
    return [field.tokens[field.offsets[i] : field.offsets[i + 1]] for i in index]
