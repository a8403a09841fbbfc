"""The tensors of one training step, as NamedTuples, and the protocol of the classes that produce them.

Tensors are batch first. A mask is True at real tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
from torch import Tensor

Cursor = tuple[int, ...]


class Batch(Protocol):
    """The fields that every batch has."""

    @property
    def ids(self) -> Tensor:
        """Token ids that the model reads, (B, T)."""

    @property
    def targets(self) -> Tensor:
        """What the model must predict; its shape depends on the task."""

    @property
    def mask(self) -> Tensor:
        """Which targets count in the loss."""

    @property
    def carry_state(self) -> bool:
        """Whether each row continues the same row of the previous
        batch, so that the model's state is carried over."""

    @property
    def num_targets(self) -> int:
        """The number of targets that count in the loss."""


class TokenBatch(NamedTuple):
    """A piece of text for a language model."""

    ids: Tensor  # (B, T)
    targets: Tensor  # (B, T): the token after each input token
    mask: Tensor  # (B, T): the targets that count
    carry_state: bool = False  # whether each row continues the same row of the previous batch

    @property
    def num_targets(self) -> int:
        """The number of targets that count in the loss."""
        return int(self.mask.sum())


class PairBatch(NamedTuple):
    """Sentences and their translations."""

    source: Tensor  # (B, S)
    source_mask: Tensor  # (B, S)
    ids: Tensor  # (B, T): <bos>, then the target without its last token
    targets: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    carry_state: bool = False

    @property
    def num_targets(self) -> int:
        """The number of target tokens that count in the loss."""
        return int(self.mask.sum())


def shard_rows(rows: np.ndarray, rank: int, world: int) -> tuple[np.ndarray, bool]:
    """Returns the rows of a batch that this rank processes, and whether they count in the loss.

    A rank that would have no row gets the first one, which then does not count.
    """
    local_rows = rows[rank::world]
    return (local_rows, True) if len(local_rows) else (rows[:1], False)


class Batches(Protocol):
    """A source of batches, as training and evaluation read it.

    A cursor is a tuple of ints that records the position of training in the data; () is the beginning.
    """

    def batches(self, cursor: Cursor = (), rank: int = 0, world: int = 1) -> Iterator[tuple[Batch, Cursor]]:
        """Yields batches without end, or this rank's rows of each, with the cursor after each batch."""

    def sequential(self, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yields every example once, in order: every token counts exactly once over all ranks."""
