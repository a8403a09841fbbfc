"""Documents and their summaries in batches of similar length; long ones are cut."""

from __future__ import annotations

import numpy as np
import torch

from seqloom.batches.batch import PairBatch
from seqloom.batches.buckets import pad, read_rows, row_lengths
from seqloom.batches.labelled import truncate
from seqloom.batches.pairs import Pairs, require_bos
from seqloom.errors import ConfigError
from seqloom.text.store import Store

MAX_SOURCE = 400


class Summaries(Pairs):
    """Batches of documents and summaries in which rows × longest side is at most `batch_tokens`.

    A document is cut to its first `max_source` tokens, a summary to its first `max_target`, in training and in the held-out loss; both keep
    <eos>. `num_cut` says how many documents were. Words that the tokenizer does not know keep ids of their own.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 4096,
        max_source: int = MAX_SOURCE,
        max_target: int = 100,
        shuffle_pool: int = 4096,
        seed: int = 0,
    ):
        if max_source < 2 or max_target < 2:
            raise ConfigError("batches.max_source and batches.max_target must be at least 2")
        self.max_source = max_source
        self.max_target = max_target
        super().__init__(store, batch_tokens, max(max_source, max_target), shuffle_pool, seed)
        self.num_cut = int((row_lengths(store.fields[0], np.arange(len(store))) > max_source).sum())

    def lengths(self, index: np.ndarray) -> np.ndarray:
        source, target = (row_lengths(column, index) for column in self.store.fields)
        return np.maximum(source.clip(max=self.max_source), target.clip(max=self.max_target))

    def collate(self, index: np.ndarray, counted: bool = True) -> PairBatch:
        documents, summaries = self.store.fields
        source, source_mask = pad([truncate(row, self.max_source) for row in read_rows(documents, index)])
        targets, mask = pad([truncate(row, self.max_target) for row in read_rows(summaries, index)])
        bos = torch.full((len(index), 1), require_bos(self.store))
        return PairBatch(source, source_mask, torch.cat([bos, targets[:, :-1]], 1), targets, mask & counted)
