"""Prompts for which a policy samples texts, with the answers that the data have, if any."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import Cursor, hash_key, permute, shard_rows
from seqloom.batches.buckets import pad, read_rows, row_lengths
from seqloom.batches.labelled import require_columns
from seqloom.errors import ConfigError
from seqloom.text.store import Store


class PromptBatch(NamedTuple):
    """Prompts and their answers, padded on the right."""

    ids: Tensor  # (B, T)
    mask: Tensor  # (B, T): the real tokens
    answers: Tensor  # (B, S): the answers of the data, for rewards that compare with them
    answer_mask: Tensor  # (B, S)
    carry_state: bool = False

    @property
    def targets(self) -> Tensor:
        """The ids: prompts have nothing to predict."""
        return self.ids

    @property
    def num_targets(self) -> int:
        """The number of prompts."""
        return len(self.ids)

    @classmethod
    def of(cls, ids: Tensor, mask: Tensor) -> PromptBatch:
        """Prompts without answers."""
        none = torch.zeros(len(ids), 0)
        return cls(ids, mask, none.long(), none.bool())

    def repeated(self, times: int) -> PromptBatch:
        """Each prompt several times, one after the other."""
        ids, mask, answers, answer_mask = (tensor.repeat_interleave(times, 0) for tensor in self[:4])
        return PromptBatch(ids, mask, answers, answer_mask)


class PromptGroups:
    """`batch` prompts at a time, in a random order in each epoch. Prompts of more than `max_length` tokens are left out."""

    def __init__(self, store: Store, batch: int = 16, max_length: int = 256, seed: int = 0):
        require_columns(store, ("prompt",), "Prompts")
        for name, value in {"batch": batch, "max_length": max_length}.items():
            if value < 1:
                raise ConfigError(f"batches.{name} is {value}: give a number of at least 1")
        self.prompts = store.columns("prompt")[0]
        self.answers = store.columns("text")[0]
        self.batch = batch
        self.seed = seed
        lengths = row_lengths(self.prompts, np.arange(len(store)))
        self.index = np.flatnonzero((lengths > 0) & (lengths <= max_length))
        if not lengths.any():
            raise ConfigError("every prompt is empty: give prompts with text")
        if not len(self.index):
            raise ConfigError(f"every prompt is longer than batches.max_length={max_length} tokens: raise it")

    def epoch_batches(self) -> int:
        return -(-len(self.index) // self.batch)

    def collate(self, index: np.ndarray) -> PromptBatch:
        return PromptBatch(*pad(read_rows(self.prompts, index)), *pad(read_rows(self.answers, index)))

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[PromptBatch, Cursor]]:
        epoch, start = cursor or (0, 0)
        while True:
            for first in range(start, len(self.index), self.batch):
                places = np.arange(first, min(first + self.batch, len(self.index)))
                order = permute(places, len(self.index), hash_key(self.seed, epoch))
                local, _ = shard_rows(self.index[order], rank, world_size)
                yield self.collate(local), (epoch, first + self.batch)
            epoch += 1
            start = 0

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[PromptBatch]:
        for number, first in enumerate(range(0, len(self.index), self.batch)):
            if number % world_size == rank:
                yield self.collate(self.index[first : first + self.batch])
