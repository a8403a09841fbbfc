"""The tensors of one training step, as NamedTuples, the protocol of the classes that produce them, and the order of examples.

Tensors are batch first. A mask is True at real tokens. The order of an epoch is a keyed permutation: a pure function of seed, epoch and
index, so that resuming is exact and costs no memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple, Protocol, runtime_checkable

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


class SourceBatch(NamedTuple):
    """Pictures or sounds, and a text for each: a caption, a transcript."""

    source: Tensor  # (B, H, W, 3) uint8 pixels, or (B, S, F) features of frames
    source_mask: Tensor | None  # (B, S); None for pictures
    ids: Tensor  # (B, T): <bos>, then the text without its last token
    targets: Tensor  # (B, T)
    mask: Tensor  # (B, T)
    carry_state: bool = False

    @property
    def num_targets(self) -> int:
        """The number of target tokens that count in the loss."""
        return int(self.mask.sum())


REGION_PIXELS = 64  # a region of a picture is about 8 × 8 pixels
SHARED_FIELDS = ("char_ids",)  # tables that all rows refer to


@runtime_checkable
class Grouped(Protocol):
    """A batch in which several rows belong together."""

    def first_groups(self, rows: int) -> Batch: ...


def first_rows(batch: Batch, count: int) -> Batch:
    """The batch with its first rows only; of a batch whose rows belong together, with its first groups of rows."""
    if isinstance(batch, Grouped):
        return batch.first_groups(count)
    fields: dict[str, object] = batch._asdict()  # type: ignore[attr-defined]  # every batch is a NamedTuple
    cut = {
        name: value[:count] if isinstance(value, Tensor) and name not in SHARED_FIELDS else value
        for name, value in fields.items()
    }
    return type(batch)(**cut)


def num_positions(batch: Batch) -> int:
    """How many positions a model reads in a batch: tokens, frames of sounds, regions of pictures."""
    names = ("ids", "source", "pair_ids")
    sources = [getattr(batch, name, None) for name in names]
    return sum(source_positions(source) for source in sources if source is not None)


def source_positions(source: Tensor) -> int:
    """The positions of ids (B, T), frames (B, S, F) or pixels (B, H, W, 3)."""
    if source.dim() == 2:
        return source.numel()
    positions = source.numel() // source.shape[-1]
    return positions if source.dim() == 3 else max(positions // REGION_PIXELS, len(source))


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

    def epoch_batches(self) -> int:
        """The number of batches of the first epoch, over all ranks; later epochs may have a few more or less."""

    def sequential(self, rank: int = 0, world: int = 1) -> Iterator[Batch]:
        """Yields every example once, in order: every token counts exactly once over all ranks."""


def splitmix64(x: np.ndarray | int) -> np.ndarray:
    """Hashes 64-bit integers to 64-bit integers: the finaliser of splitmix64."""
    with np.errstate(over="ignore"):
        z: np.ndarray = np.asarray(x, dtype=np.uint64) + np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def hash_key(*numbers: int) -> int:
    """Hashes several integers, such as (seed, epoch), into one 64-bit key."""
    key = 0
    for number in numbers:
        key = int(splitmix64(key ^ int(splitmix64(number % 2**64))))
    return key


def permute(index: np.ndarray, count: int, key: int) -> np.ndarray:
    """Applies a keyed permutation of 0 … count-1 to each index, in O(1) memory for any count.

    A Feistel network permutes the integers of the next even number of bits;
    a result outside 0 … count-1 passes through it again until it is inside.
    """
    half_bits = max(1, ((max(count - 1, 1)).bit_length() + 1) // 2)
    low_bits = np.uint64((1 << half_bits) - 1)
    shift = np.uint64(half_bits)
    round_keys = [splitmix64(key ^ i) for i in range(1, 7)]

    def feistel(x: np.ndarray) -> np.ndarray:
        left, right = x >> shift, x & low_bits
        for round_key in round_keys:
            left, right = right, left ^ (splitmix64(right ^ round_key) & low_bits)
        return (left << shift) | right

    result = feistel(np.asarray(index, dtype=np.uint64))
    while (outside := result >= count).any():
        result[outside] = feistel(result[outside])
    return result.astype(np.int64)
