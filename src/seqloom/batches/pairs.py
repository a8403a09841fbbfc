"""Pairs of sentences in batches of similar length."""

from __future__ import annotations

import numpy as np
import torch

from seqloom.batches.batch import PairBatch
from seqloom.batches.buckets import Buckets, pad, row_lengths
from seqloom.errors import ConfigError
from seqloom.text.store import Store


class Pairs(Buckets):
    """Batches of pairs in which rows × longest side is at most `batch_tokens`.

    An epoch is a random order of the pairs, divided into pools of `shuffle_pool`. A pool is sorted by length
    and divided into batches, which come in random order. Training skips pairs longer than `max_length`;
    `sequential` keeps them.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 2048,
        max_length: int = 256,
        shuffle_pool: int = 4096,
        seed: int = 0,
    ):
        if store.names != ("text", "text"):
            columns = ", ".join(store.names)
            raise ConfigError(
                f"pairs need records of two texts, but these have {columns}: use corpus Parallel, Table or JSONLines"
            )
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        self.num_skipped = int((self.lengths(np.arange(len(store))) > max_length).sum())
        if self.num_skipped == len(store):
            raise ConfigError(f"every pair is longer than batches.max_length={max_length} tokens: raise it")

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.max([row_lengths(column, index) for column in self.store.fields], axis=0)

    def collate(self, index: np.ndarray, counted: bool = True) -> PairBatch:
        records = [self.store[int(i)] for i in index]
        source, source_mask = pad([record[0] for record in records])
        targets, mask = pad([record[1] for record in records])
        bos = torch.full((len(records), 1), require_bos(self.store))
        ids = torch.cat([bos, targets[:, :-1]], 1)
        return PairBatch(source, source_mask, ids, targets, mask & counted)


def require_bos(store: Store) -> int:
    """The id that an output begins with; raises if the tokenizer has none."""
    if store.specials.bos is None:
        raise ConfigError(
            "the tokenizer has no <bos>, with which a translation begins: use another tokenizer"
        )
    return store.specials.bos
