"""Pairs of sentences in batches of similar length, as many as a budget of tokens holds."""

from __future__ import annotations

import numpy as np
import torch

from seqloom.batches.batch import PairBatch
from seqloom.batches.buckets import Buckets, pad, sizes
from seqloom.text.store import Store


class Pairs(Buckets):
    """Batches of pairs whose rows × longest side stay within `tokens`.

    An epoch is a random order cut into pools; a pool is sorted by length and cut into batches, which come in random order. Pairs longer
    than `longest` are left out of training; `once` keeps them all.
    """

    def __init__(self, store: Store, tokens: int = 2048, longest: int = 256, pool: int = 4096, seed: int = 0):
        if store.names != ("text", "text"):
            raise ValueError(
                f"pairs need records of two texts, and these have {', '.join(store.names)}: use corpus Parallel, Table or JSONLines"
            )
        super().__init__(store, tokens, longest, pool, seed)
        self.left_out = int((self.lengths(np.arange(len(store))) > longest).sum())
        if self.left_out == len(store):
            raise ValueError(f"every pair is longer than data.longest={longest} tokens: raise it")

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.max([sizes(field, index) for field in self.store.fields], axis=0)

    def cut(self, index: np.ndarray, real: bool = True) -> PairBatch:
        rows = [self.store[int(i)] for i in index]
        source, source_mask = pad([row[0] for row in rows])
        targets, mask = pad([row[1] for row in rows])
        first = torch.full((len(rows), 1), self.store.specials.bos)
        return PairBatch(source, source_mask, torch.cat([first, targets[:, :-1]], 1), targets, mask & real)
