"""Pairs of sentences in batches of similar length, as many as a budget of tokens holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from seqloom.data.batch import Cursor, Pair, share
from seqloom.data.order import key, permute
from seqloom.text.store import Store
from seqloom.text.tokenizer import BOS


def padded(rows: Sequence[np.ndarray], fill: int = 0) -> tuple[Tensor, Tensor]:
    """Rows of unequal length as (B, T) ids, padded on the right, and their mask."""
    lengths = np.array([len(row) for row in rows])
    mask = np.arange(lengths.max(initial=0)) < lengths[:, None]
    ids = np.full(mask.shape, fill, dtype=np.int64)
    ids[mask] = np.concatenate(rows) if len(rows) else []
    return torch.from_numpy(ids), torch.from_numpy(mask)


class Pairs:
    """Batches of pairs whose rows × longest side stay within `tokens`.

    An epoch is a random order cut into pools; a pool is sorted by length and cut into batches, which come in random order. Pairs longer
    than `longest` are left out of training; `once` keeps them all.
    """

    def __init__(self, store: Store, tokens: int = 2048, longest: int = 256, pool: int = 4096, seed: int = 0):
        if len(store.fields) != 2:
            raise ValueError(f"pairs need records of two texts, and these have {len(store.fields)}: use corpus Parallel, Table or JSONLines")
        if len(store) == 0:
            raise ValueError("there are no sentence pairs: give longer files")
        if tokens < 1 or longest < 1 or pool < 1:
            raise ValueError("data.tokens, data.longest and data.pool must be at least 1")
        self.store, self.tokens, self.longest, self.pool, self.seed = store, tokens, longest, pool, seed
        lengths = self.lengths(np.arange(len(store)))
        self.left_out = int((lengths > longest).sum())
        if self.left_out == len(store):
            raise ValueError(f"every pair is longer than data.longest={longest} tokens: raise it")

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.max([field.offsets[index + 1] - field.offsets[index] for field in self.store.fields], axis=0)

    def groups(self, index: np.ndarray) -> list[np.ndarray]:
        """The given pairs, sorted by length and cut where the budget ends."""
        lengths = self.lengths(index)
        order = np.argsort(lengths, kind="stable")
        groups, begin = [], 0
        for place in range(len(order)):
            if (place + 1 - begin) * lengths[order[place]] > self.tokens and place > begin:
                groups.append(index[order[begin:place]])
                begin = place
        return [*groups, index[order[begin:]]] if len(order) else groups

    def batches(self, cursor: Cursor = (), rank: int = 0, world: int = 1) -> Iterator[tuple[Pair, Cursor]]:
        epoch, pool, index = cursor or (0, 0, 0)
        while True:
            for number in range(pool, -(-len(self.store) // self.pool)):
                inside = np.arange(number * self.pool, min((number + 1) * self.pool, len(self.store)))
                chosen = permute(inside, len(self.store), key(self.seed, epoch))
                groups = self.groups(chosen[self.lengths(chosen) <= self.longest])
                order = permute(np.arange(len(groups)), len(groups), key(self.seed, epoch, number)) if groups else []
                for place in range(index, len(groups)):
                    yield self.cut(*share(groups[order[place]], rank, world)), (epoch, number, place + 1)
                index = 0
            epoch, pool = epoch + 1, 0

    def once(self, rank: int = 0, world: int = 1) -> Iterator[Pair]:
        for number in range(0, len(self.store), self.pool):
            for place, group in enumerate(self.groups(np.arange(number, min(number + self.pool, len(self.store))))):
                if place % world == rank:
                    yield self.cut(group)

    def cut(self, index: np.ndarray, real: bool = True) -> Pair:
        rows = [self.store[int(i)] for i in index]
        source, source_mask = padded([row[0] for row in rows])
        targets, mask = padded([row[1] for row in rows])
        first = torch.full((len(rows), 1), BOS)
        return Pair(source, source_mask, torch.cat([first, targets[:, :-1]], 1), targets, mask & real)
