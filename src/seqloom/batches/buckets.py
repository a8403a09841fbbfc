"""Batches of records of similar length: the base class of all data whose records are complete sequences.

An epoch is a random order of the records, divided into pools. A pool is
sorted by length and divided into batches, which come in random order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import Batch, Cursor, hash_key, permute, shard_rows
from seqloom.errors import ConfigError
from seqloom.text.store import Column, ColumnView, Store


def pad(rows: Sequence[np.ndarray], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Stacks rows of different lengths into (B, T) ids, padded
    on the right, and returns them with their mask."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(mask.shape, fill, dtype=np.int64)
    ids[mask] = np.concatenate(rows) if len(rows) else []
    return torch.from_numpy(ids), torch.from_numpy(mask)


class Buckets:
    """Batches of records in which rows × longest row is at most `batch_tokens`.

    A subclass defines the length of a record (`lengths`) and builds the batch (`collate`).
    """

    def __init__(self, store: Store, batch_tokens: int, max_length: int, shuffle_pool: int, seed: int):
        if len(store) == 0:
            raise ConfigError("the data has no records: give longer files")
        if batch_tokens < 1 or max_length < 1 or shuffle_pool < 1:
            raise ConfigError(
                "batches.batch_tokens, batches.max_length and batches.shuffle_pool must be at least 1"
            )
        self.store = store
        self.batch_tokens = batch_tokens
        self.max_length = max_length
        self.shuffle_pool = shuffle_pool
        self.seed = seed

    def lengths(self, index: np.ndarray) -> np.ndarray:
        """Returns the lengths of the given records in training; records above `max_length` are skipped."""
        raise NotImplementedError

    def collate(self, index: np.ndarray, counted: bool = True) -> Batch:
        """Builds the batch of the given records; its mask is all False unless they are `counted`."""
        raise NotImplementedError

    def full_lengths(self, index: np.ndarray) -> np.ndarray:
        """Returns the lengths of the given records without truncation."""
        return self.lengths(index)

    def length_groups(self, index: np.ndarray) -> list[np.ndarray]:
        """Sorts the given records by length and divides them into groups of at most `batch_tokens`."""
        lengths = self.full_lengths(index)
        order = np.argsort(lengths, kind="stable")
        groups: list[np.ndarray] = []
        start = 0
        for end in range(len(order)):
            if (end + 1 - start) * lengths[order[end]] > self.batch_tokens and end > start:
                groups.append(index[order[start:end]])
                start = end
        return [*groups, index[order[start:]]] if len(order) else groups

    @property
    def num_items(self) -> int:
        """How many items batches are made of: records, or their texts where a record has several."""
        return len(self.store)

    def training_batch(self, index: np.ndarray, counted: bool, epoch: int) -> Batch:
        """Builds a batch of training: as `collate` does, or with augmentations, a function of seed, epoch and item."""
        return self.collate(index, counted)

    @property
    def num_pools(self) -> int:
        return -(-self.num_items // self.shuffle_pool)

    def pool_groups(self, epoch: int, pool: int) -> list[np.ndarray]:
        """The batches of a pool of an epoch, by their records."""
        start = pool * self.shuffle_pool
        index = np.arange(start, min(start + self.shuffle_pool, self.num_items))
        records = permute(index, self.num_items, hash_key(self.seed, epoch))
        return self.length_groups(records[self.lengths(records) <= self.max_length])

    def epoch_batches(self) -> int:
        return sum(len(self.pool_groups(0, pool)) for pool in range(self.num_pools))

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[Batch, Cursor]]:
        epoch, first_pool, first_group = cursor or (0, 0, 0)
        while True:
            for pool in range(first_pool, self.num_pools):
                groups = self.pool_groups(epoch, pool)
                order = np.arange(len(groups))
                if groups:
                    order = permute(order, len(groups), hash_key(self.seed, epoch, pool))
                for i in range(first_group, len(groups)):
                    batch = self.training_batch(*shard_rows(groups[order[i]], rank, world_size), epoch)
                    yield batch, (epoch, pool, i + 1)
                first_group = 0
            epoch += 1
            first_pool = 0

    def ordered_groups(self) -> Iterator[list[np.ndarray]]:
        """Yields the length groups of each pool; the pools follow
        the order of the file and hold every record once.

        The groups of a pool are shuffled, always in the same
        way, so that the first few groups are representative.
        """
        for start in range(0, self.num_items, self.shuffle_pool):
            index = np.arange(start, min(start + self.shuffle_pool, self.num_items))
            groups = self.length_groups(index)
            yield [groups[i] for i in permute(np.arange(len(groups)), len(groups), hash_key(0))]

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
        for groups in self.ordered_groups():
            for i, group in enumerate(groups):
                if i % world_size == rank:
                    yield self.collate(group)


def row_lengths(column: Column | ColumnView, index: np.ndarray) -> np.ndarray:
    """Returns the number of values that each of the given records has in a column."""
    return column.sizes(index)


def read_rows(column: Column | ColumnView, index: Sequence[int] | np.ndarray) -> list[np.ndarray]:
    """Returns the values of the given records in a column."""
    return [column.row(int(i)) for i in index]
