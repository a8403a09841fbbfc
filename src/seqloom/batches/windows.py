"""Text as windows of a fixed width, in random order, or as contiguous blocks whose state is carried.

The stream is <eos>, or what a checkpoint's tokenizer opens a text with, and then the corpus, so every token of the corpus is the target of
something: none is lost, none counts twice.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from seqloom.batches.batch import Cursor, TokenBatch, shard_rows
from seqloom.batches.permutation import hash_key, permute
from seqloom.text.special_tokens import EOS
from seqloom.text.store import Store


class TokenStream:
    """Random access to the opening token + tokens without copying them."""

    def __init__(self, tokens: np.ndarray, opening: int = EOS):
        self.tokens, self.opening = tokens, opening

    def __len__(self) -> int:
        return len(self.tokens) + 1

    def rows(self, begins: np.ndarray, width: int) -> torch.Tensor:
        """(B, width) ids from each beginning; positions beyond the end repeat the last token."""
        index = begins[:, None] + np.arange(-1, width - 1)
        rows = self.tokens[np.clip(index, 0, len(self.tokens) - 1)].astype(np.int64)
        rows[index < 0] = self.opening
        return torch.from_numpy(rows)


def require_tokens(store: Store, width: int, batch: int, stride: int) -> np.ndarray:
    tokens = store.fields[0].tokens
    if len(tokens) == 0:
        raise ValueError("the text has no tokens: give a longer file")
    for name, value in (("width", width), ("batch", batch), ("stride", stride)):
        if value < 1:
            raise ValueError(f"data.{name} must be at least 1, not {value}")
    return tokens


class Windows:
    """Windows of `width` + 1 tokens: the first `width` are read, the last `width` are the labels  [I5]

    While training they begin every `stride` tokens from an offset that changes with the epoch, in random order. `once` walks them in
    order; the last stands flush right so that no token is left out [X9], and one that stood in the window before does not count again  [W10].
    """

    def __init__(
        self, store: Store, width: int = 256, batch: int = 12, stride: int | None = None, seed: int = 0
    ):
        tokens = require_tokens(store, width, batch, stride or width)
        self.stream, self.seed, self.batch = TokenStream(tokens, store.specials.opening), seed, batch
        self.width = min(width, len(tokens))
        self.stride = min(stride or self.width, self.width)

    def layout(self, epoch: int) -> tuple[int, int]:
        """The offset of an epoch's first window, and how many windows there are; the last one stands flush right."""
        free = len(self.stream) - self.width - 1
        offset = hash_key(self.seed, epoch, 1) % min(self.stride, free + 1)
        return offset, -(-(free - offset) // self.stride) + 1

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world: int = 1
    ) -> Iterator[tuple[TokenBatch, Cursor]]:
        epoch, index = cursor or (0, 0)
        while True:
            offset, count = self.layout(epoch)
            size = min(self.batch, count)
            for number in range(index, count // size):
                windows, real = shard_rows(
                    permute(np.arange(number * size, (number + 1) * size), count, hash_key(self.seed, epoch)),
                    rank,
                    world,
                )
                begins = np.minimum(offset + windows * self.stride, len(self.stream) - self.width - 1)
                yield self.cut(begins, real), (epoch, number + 1)
            epoch, index = epoch + 1, 0

    def cut(self, begins: np.ndarray, real: bool = True) -> TokenBatch:
        rows = self.stream.rows(begins, self.width + 1)  # (B, width + 1)
        return TokenBatch(rows[:, :-1], rows[:, 1:], torch.full((len(rows), self.width), real))

    def once(self, rank: int = 0, world: int = 1) -> Iterator[TokenBatch]:
        count = -(-(len(self.stream) - self.width - 1) // self.stride) + 1
        for number in range(rank * self.batch, count, world * self.batch):
            windows = np.arange(number, min(number + self.batch, count))
            begins = np.minimum(windows * self.stride, len(self.stream) - self.width - 1)
            before = np.where(
                windows > 0, (windows - 1) * self.stride + self.width, 0
            )  # where the window before this one ended
            batch = self.cut(begins)
            fresh = torch.from_numpy(begins[:, None] + np.arange(self.width) >= before[:, None])
            yield batch._replace(mask=fresh)


class Blocks:
    """The text cut into `batch` long rows, read `width` tokens at a time, the state carried from one batch to the next: truncated
    back-propagation through time, in which h_{t-k} has no influence on the gradient  [D15]."""

    def __init__(self, store: Store, width: int = 35, batch: int = 20, seed: int = 0):
        tokens = require_tokens(store, width, batch, 1)
        self.stream, self.width = TokenStream(tokens, store.specials.opening), width
        self.batch = min(batch, len(tokens))
        self.length = -(-len(tokens) // self.batch)
        self.ends = np.minimum(np.arange(1, self.batch + 1) * self.length, len(tokens))

    def cut(self, number: int, rank: int, world: int) -> TokenBatch:
        if self.batch % world:
            raise ValueError(
                f"{self.batch} rows cannot be shared among {world} processes: choose a data.batch that they divide"
            )
        begins = np.arange(self.batch)[rank::world] * self.length + number * self.width
        width = min(self.width, self.length - number * self.width)
        rows = self.stream.rows(begins, width + 1)
        real = torch.from_numpy(begins[:, None] + np.arange(width) < self.ends[rank::world, None])
        return TokenBatch(rows[:, :-1], rows[:, 1:], real, number > 0)

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world: int = 1
    ) -> Iterator[tuple[TokenBatch, Cursor]]:
        epoch, index = cursor or (0, 0)
        while True:
            for number in range(index, -(-self.length // self.width)):
                yield self.cut(number, rank, world), (epoch, number + 1)
            epoch, index = epoch + 1, 0

    def once(self, rank: int = 0, world: int = 1) -> Iterator[TokenBatch]:
        for number in range(-(-self.length // self.width)):
            yield self.cut(number, rank, world)
