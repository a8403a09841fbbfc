"""Batches: the named tensors of one step, batch first, mask True = real token, and the contract of what makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

Cursor = tuple[int, ...]


class TokenBatch(NamedTuple):
    """A stretch of text for a language model."""

    ids: Tensor  # (B, T)
    targets: Tensor  # (B, T): the next token of each
    mask: Tensor  # (B, T): the targets that count
    carry: bool = False  # whether each row goes on where the row of the batch before it ended

    @property
    def weight(self) -> int:
        return int(self.mask.sum())


class PairBatch(NamedTuple):
    """Sentences and their translations."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S)
    ids: Tensor  # (B, T): <bos>, then the target without its last token
    targets: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    carry: bool = False

    @property
    def weight(self) -> int:
        return int(self.mask.sum())


Batch = TokenBatch | PairBatch


def shard_rows(rows: np.ndarray, rank: int, world: int) -> tuple[np.ndarray, bool]:
    """This rank's part of a batch's rows, and whether they count: a rank that would have none repeats the first row, uncounted."""
    own = rows[rank::world]
    return (own, True) if len(own) else (rows[:1], False)


class Batches(Protocol):
    """What every kind of data offers. A cursor is a tuple of ints that says where training stands; () is the beginning."""

    def batches(self, cursor: Cursor = (), rank: int = 0, world: int = 1) -> Iterator[tuple[Batch, Cursor]]:
        """Without end: each batch, or this rank's rows of it, and the cursor after it."""

    def once(self, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Every example once, in order: every token counts exactly once."""
