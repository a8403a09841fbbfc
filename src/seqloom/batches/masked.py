"""Text with gaps: windows of which some tokens are hidden, to be restored from both sides; and pairs of segments that follow each other or not.

A gap is a pure function of the seed, the epoch and the place in the text: resuming, other batch sizes and more processes hide the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import Cursor, shard_rows
from seqloom.batches.masking import check, hashed_uniform, mask_tokens
from seqloom.batches.permutation import hash_key, permute
from seqloom.batches.windows import require_tokens
from seqloom.text.special_tokens import SPECIALS, SpecialTokens
from seqloom.text.store import Store


class MaskedBatch(NamedTuple):
    """Text with gaps."""

    ids: Tensor  # (B, T), as the model reads them
    targets: Tensor  # (B, T), as they were
    mask: Tensor  # (B, T): the picked ones, which alone count
    follows: Tensor | None = (
        None  # (B,): 1 where the second segment goes on from the first, 0 where it is from elsewhere
    )
    carry: bool = False

    @property
    def weight(self) -> int:
        return int(self.mask.sum())


def frame_ids(ids: SpecialTokens) -> tuple[int, int, int]:
    """What stands before a text, after it, and in its gaps."""
    if ids.mask is None or (ids.bos is None and not ids.before):
        raise ValueError(
            "the tokenizer has no token for a gap, or none to begin with, so nothing can be masked; use one of a masked language model"
        )
    return ids.before[-1] if ids.before else ids.bos, ids.after[0] if ids.after else ids.eos, ids.mask


class Masked:
    """Windows <bos> text <eos> of `width` tokens with gaps   [I1, I2, X17], or with `pairs` <bos> A <eos> B <eos>, where B goes on from A in one half
    of the rows and comes from anywhere in the other.

    Each word is picked with probability `rate`; of the picked a share `masked` reads as <mask>, a share `replaced` as a random word. While
    training windows come in random order from an offset that changes with the epoch, and so do the gaps; `once` walks them in order, the last flush
    right, and picks no token twice. A corpus without ends (Text) leaves <eos> to the segments. Special tokens are no words; a tokenizer that came
    with a checkpoint has its own.
    """

    def __init__(
        self,
        store: Store,
        width: int = 128,
        batch: int = 32,
        rate: float = 0.15,
        masked: float = 0.8,
        replaced: float = 0.1,
        pairs: bool = False,
        seed: int = 0,
    ):
        self.tokens = require_tokens(store, width, batch, 1)
        check(rate, masked, replaced)
        self.frame = 3 if pairs else 2  # tokens that are no text
        if width < self.frame + 2:
            raise ValueError(f"data.width {width} leaves no room for text: give {self.frame + 2} or more")
        self.length = min(width - self.frame, len(self.tokens))  # tokens of text in a window
        self.free = len(self.tokens) - self.length  # the last place where one can begin
        if pairs and not self.free:
            raise ValueError(
                f"{len(self.tokens)} tokens are too few for pairs of segments: lower data.width or give a longer text"
            )
        self.width, self.batch, self.pairs, self.seed = self.length + self.frame, batch, pairs, seed
        self.rate, self.masked, self.replaced = rate, masked, replaced
        self.opens, self.ends, self.mask = frame_ids(store.specials)
        self.vocabulary, self.first = (
            store.vocabulary,
            len(SPECIALS) if store.specials == SpecialTokens() else 0,
        )
        self.special = [one for one in store.specials[:5] if one is not None]

    def layout(self, epoch: int) -> tuple[int, int]:
        """The offset of an epoch's first window, and how many windows there are; the last one stands flush right."""
        offset = hash_key(self.seed, epoch, 1) % min(self.length, self.free + 1)
        return offset, -(-(self.free - offset) // self.length) + 1

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world: int = 1
    ) -> Iterator[tuple[MaskedBatch, Cursor]]:
        epoch, index = cursor or (0, 0)
        while True:
            offset, count = self.layout(epoch)
            size = min(self.batch, count)
            for number in range(index, count // size):
                windows = permute(
                    np.arange(number * size, (number + 1) * size), count, hash_key(self.seed, epoch)
                )
                begins = np.minimum(offset + windows * self.length, self.free)
                own, counts = shard_rows(begins, rank, world)
                yield (
                    self.cut(
                        own,
                        np.zeros_like(own) if counts else own + self.length,
                        hash_key(self.seed, epoch, 2),
                    ),
                    (epoch, number + 1),
                )
            epoch, index = epoch + 1, 0

    def once(self, rank: int = 0, world: int = 1) -> Iterator[MaskedBatch]:
        count = -(-self.free // self.length) + 1
        for number in range(rank * self.batch, count, world * self.batch):
            windows = np.arange(number, min(number + self.batch, count))
            yield self.cut(
                np.minimum(windows * self.length, self.free), windows * self.length, hash_key(self.seed, 3)
            )

    def cut(self, begins: np.ndarray, fresh: np.ndarray, draw: int) -> MaskedBatch:
        """The windows at `begins`; tokens before `fresh` are not picked."""
        places = begins[:, None] + np.arange(self.length)  # (B, L)
        split, follows = np.full((len(begins), 1), self.length), None
        if self.pairs:
            half, point, elsewhere = hashed_uniform(hash_key(draw, 1), begins, 3).T[..., None]
            split = self.length // 4 + 1 + (point * (self.length // 2)).astype(np.int64)  # in the middle half
            other = (begins[:, None] + 1 + (elsewhere * self.free).astype(np.int64)) % (
                self.free + 1
            )  # any window but this
            moved = (half < 0.5) & (np.arange(self.length) >= split)
            places = np.where(moved, other + np.arange(self.length), places)
            follows = torch.from_numpy((half[:, 0] >= 0.5).astype(np.int64))
        text = self.tokens[places].astype(np.int64)
        column = np.arange(self.width)
        inside = np.clip(
            column - 1 - (column > split + 1), 0, self.length - 1
        )  # (B, T): which token of the text stands where
        frame = (column == 0) | (column == split + 1) | (column == self.width - 1)
        ids = np.where(
            column == 0, self.opens, np.where(frame, self.ends, np.take_along_axis(text, inside, 1))
        )
        words = ~frame & ~np.isin(ids, self.special)
        words &= np.take_along_axis(places, inside, 1) >= fresh[:, None]
        chance = hashed_uniform(draw, begins, 3 * self.width).reshape(-1, 3, self.width).transpose(1, 0, 2)
        targets = torch.from_numpy(ids)
        found = mask_tokens(
            targets, torch.from_numpy(words), self.vocabulary, torch.from_numpy(np.ascontiguousarray(chance)),
            self.rate, self.masked, self.replaced, self.first, self.mask,
        )  # fmt: skip
        return MaskedBatch(found.ids, targets, found.picked, follows)
