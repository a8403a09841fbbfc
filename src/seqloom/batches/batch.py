"""The tensors of one training step, as NamedTuples, the protocol of the classes that produce them, the order of examples, and the batches of
one long text: windows of a fixed width in random order, or contiguous blocks between which the state is carried.

Tensors are batch first. A mask is True at real tokens. The order of an epoch is a keyed permutation: a pure function of seed, epoch and
index, so that resuming is exact and costs no memory.

The token stream of a text is <eos>, or the token with which the tokenizer of a checkpoint begins a text, followed by the corpus. So every
token of the corpus is a target: none is lost, none counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.text.store import Store
from seqloom.text.tokenizer import EOS

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


def shard_rows(rows: np.ndarray, rank: int, world_size: int) -> tuple[np.ndarray, bool]:
    """Returns the rows of a batch that this rank processes, and whether they count in the loss.

    A rank that would have no row gets the first one, which then does not count.
    """
    local_rows = rows[rank::world_size]
    return (local_rows, True) if len(local_rows) else (rows[:1], False)


class Batches(Protocol):
    """A source of batches, as training and evaluation read it.

    A cursor is a tuple of ints that records the position of training in the data; () is the beginning.
    """

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[Batch, Cursor]]:
        """Yields batches without end, or this rank's rows of each, with the cursor after each batch."""

    def epoch_batches(self) -> int:
        """The number of batches of the first epoch, over all ranks; later epochs may have a few more or less."""

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[Batch]:
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


class TokenStream:
    """Random access to the first id followed by the tokens, without copying them."""

    def __init__(self, tokens: np.ndarray, first_id: int = EOS):
        self.tokens = tokens
        self.first_id = first_id

    def __len__(self) -> int:
        return len(self.tokens) + 1

    def rows(self, starts: np.ndarray, width: int) -> Tensor:
        """Returns (B, width) ids from each start; positions beyond the end repeat the last token."""
        index = starts[:, None] + np.arange(-1, width - 1)
        rows = self.tokens[np.clip(index, 0, len(self.tokens) - 1)].astype(np.int64)
        rows[index < 0] = self.first_id
        return torch.from_numpy(rows)


def require_tokens(store: Store, width: int, batch: int, stride: int) -> np.ndarray:
    """Returns the tokens of the text; raises if there are none or if an option is below 1."""
    tokens = store.fields[0].gathered().tokens
    if len(tokens) == 0:
        raise ConfigError("the text has no tokens: give a longer file")
    for name, value in (("width", width), ("batch", batch), ("stride", stride)):
        if value < 1:
            raise ConfigError(f"batches.{name} must be at least 1, not {value}")
    return tokens


class WindowOrder:
    """The training order of windows that start every `stride` tokens, the last of them at `last_start`."""

    def __init__(self, last_start: int, stride: int, batch: int, seed: int):
        self.last_start = last_start
        self.stride = stride
        self.batch = batch
        self.seed = seed

    def epoch_offset_and_count(self, epoch: int) -> tuple[int, int]:
        """Returns the start of an epoch's first window and the number
        of windows, including the last, right-aligned one."""
        offset = hash_key(self.seed, epoch, 1) % min(self.stride, self.last_start + 1)
        return offset, -(-(self.last_start - offset) // self.stride) + 1

    def epoch_batches(self) -> int:
        """The number of batches of the first epoch."""
        count = self.epoch_offset_and_count(0)[1]
        return count // min(self.batch, count)

    def batches(self, cursor: Cursor) -> Iterator[tuple[np.ndarray, Cursor]]:
        """Yields, without end, the starts of the windows of each batch in random order, and the cursor after it."""
        epoch, first_batch = cursor or (0, 0)
        while True:
            offset, count = self.epoch_offset_and_count(epoch)
            size = min(self.batch, count)
            for i in range(first_batch, count // size):
                index = np.arange(i * size, (i + 1) * size)
                windows = permute(index, count, hash_key(self.seed, epoch))
                yield np.minimum(offset + windows * self.stride, self.last_start), (epoch, i + 1)
            epoch += 1
            first_batch = 0


class Windows:
    """Windows of `width` + 1 tokens: the first `width` are the input, the last `width` are the targets  [I5]

    In training, windows start every `stride` tokens from an offset that changes with the epoch, in random
    order. `sequential` yields them in order. The last window ends at the end of the text, so that no token is
    left out [X9]; a token that was a target of the previous window does not count again  [W10].
    """

    def __init__(
        self, store: Store, width: int = 256, batch: int = 12, stride: int | None = None, seed: int = 0
    ):
        tokens = require_tokens(store, width, batch, stride or width)
        self.stream = TokenStream(tokens, store.specials.first_id)
        self.batch = batch
        self.width = min(width, len(tokens))
        self.stride = min(stride or self.width, self.width)
        self.last_start = len(self.stream) - self.width - 1
        self.order = WindowOrder(self.last_start, self.stride, batch, seed)

    def without_start(self) -> Windows:
        """Returns the windows of the same text with nothing before it: its first token is context and no target."""
        tokens = self.stream.tokens
        if len(tokens) < 2:
            raise ConfigError("the text has one token and nothing precedes it: give a longer file")
        bare = copy(self)
        bare.stream = TokenStream(tokens[1:], int(tokens[0]))
        bare.width = min(self.width, len(tokens) - 1)
        bare.stride = min(self.stride, bare.width)
        bare.last_start = len(bare.stream) - bare.width - 1
        bare.order = WindowOrder(bare.last_start, bare.stride, self.batch, self.order.seed)
        return bare

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[TokenBatch, Cursor]]:
        for starts, next_cursor in self.order.batches(cursor):
            yield self.collate(*shard_rows(starts, rank, world_size)), next_cursor

    def epoch_batches(self) -> int:
        return self.order.epoch_batches()

    def collate(self, starts: np.ndarray, counted: bool = True) -> TokenBatch:
        """Builds the batch of the windows at `starts`; its mask is all False unless they are `counted`."""
        rows = self.stream.rows(starts, self.width + 1)  # (B, width + 1)
        return TokenBatch(rows[:, :-1], rows[:, 1:], torch.full((len(rows), self.width), counted))

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[TokenBatch]:
        count = -(-self.last_start // self.stride) + 1
        for first in range(rank * self.batch, count, world_size * self.batch):
            windows = np.arange(first, min(first + self.batch, count))
            starts = np.minimum(windows * self.stride, self.last_start)
            previous_ends = np.where(windows > 0, (windows - 1) * self.stride + self.width, 0)
            new = starts[:, None] + np.arange(self.width) >= previous_ends[:, None]
            yield self.collate(starts)._replace(mask=torch.from_numpy(new))


class Blocks:
    """The text divided into `batch` long rows, read `width`
    tokens at a time; the state is carried between batches.

    This is truncated back-propagation through time, in which h_{t-k} has no influence on the gradient  [D15].
    """

    def __init__(self, store: Store, width: int = 35, batch: int = 20, seed: int = 0):
        tokens = require_tokens(store, width, batch, 1)
        self.stream = TokenStream(tokens, store.specials.first_id)
        self.width = width
        self.batch = min(batch, len(tokens))
        self.length = -(-len(tokens) // self.batch)
        self.row_ends = np.minimum(np.arange(1, self.batch + 1) * self.length, len(tokens))

    def collate(self, index: int, rank: int, world_size: int) -> TokenBatch:
        """Builds this rank's rows of the batch with the given index."""
        if self.batch % world_size:
            raise ConfigError(
                f"{self.batch} rows cannot be divided among {world_size} processes: choose data.batch as a multiple of {world_size}"
            )
        starts = np.arange(self.batch)[rank::world_size] * self.length + index * self.width
        width = min(self.width, self.length - index * self.width)
        rows = self.stream.rows(starts, width + 1)
        mask = starts[:, None] + np.arange(width) < self.row_ends[rank::world_size, None]
        return TokenBatch(rows[:, :-1], rows[:, 1:], torch.from_numpy(mask), carry_state=index > 0)

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[TokenBatch, Cursor]]:
        epoch, first_batch = cursor or (0, 0)
        while True:
            for i in range(first_batch, self.epoch_batches()):
                yield self.collate(i, rank, world_size), (epoch, i + 1)
            epoch += 1
            first_batch = 0

    def epoch_batches(self) -> int:
        return -(-self.length // self.width)

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[TokenBatch]:
        for i in range(self.epoch_batches()):
            yield self.collate(i, rank, world_size)
