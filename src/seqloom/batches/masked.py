"""Windows of text in which some tokens are hidden; with pairs,
two segments of which the second may continue the first.

Which tokens are hidden is a pure function of the seed, the epoch and the position
in the text: resuming, other batch sizes and more processes hide the same tokens.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import Cursor, WindowOrder, hash_key, require_tokens, shard_rows
from seqloom.batches.masking import check_fractions, hashed_uniform, mask_tokens
from seqloom.errors import ConfigError
from seqloom.text.store import Store
from seqloom.text.tokenizer import SPECIALS, SpecialTokens


class MaskedBatch(NamedTuple):
    """Text with hidden tokens."""

    ids: Tensor  # (B, T), as the model reads them
    targets: Tensor  # (B, T), the original ids
    mask: Tensor  # (B, T): the selected tokens; only these count
    is_next: Tensor | None = None  # (B,): 1 where the second segment continues the first, else 0
    carry_state: bool = False

    @property
    def num_targets(self) -> int:
        """The number of selected tokens."""
        return int(self.mask.sum())


def frame_ids(specials: SpecialTokens) -> tuple[int, int, int]:
    """Returns the ids of the first token of a text, of its last token, and of the mask token."""
    first_id = specials.before[-1] if specials.before else specials.bos
    last_id = specials.after[0] if specials.after else specials.eos
    if specials.mask is None or first_id is None:
        raise ConfigError(
            "the tokenizer has no mask token, or no token to begin a text with, so no token can be masked; "
            "use the tokenizer of a masked language model"
        )
    return first_id, last_id, specials.mask


class Masked:
    """Windows <bos> text <eos> of `width` tokens, some of them hidden   [I1, I2, X17].

    With `pairs`, a window is <bos> A <eos> B <eos>, where B continues A in half of the rows and comes from
    elsewhere in the other half. Each word is selected with probability `rate`; of the selected words a
    fraction `mask_fraction` is replaced by <mask>, a fraction `random_fraction` by a random word.

    In training, windows come in random order from an offset that changes with the epoch, and so does the
    selection. `sequential` yields them in order, the last one right-aligned, and selects no token twice. In a
    corpus without record ends (Text), <eos> appears only in the frame. Special tokens are never selected; a
    tokenizer that came with a checkpoint defines its own.
    """

    def __init__(
        self,
        store: Store,
        width: int = 128,
        batch: int = 32,
        rate: float = 0.15,
        mask_fraction: float = 0.8,
        random_fraction: float = 0.1,
        pairs: bool = False,
        seed: int = 0,
    ):
        self.tokens = require_tokens(store, width, batch, 1)
        check_fractions(rate, mask_fraction, random_fraction)
        num_frame_tokens = 3 if pairs else 2
        min_width = num_frame_tokens + 2
        if width < min_width:
            raise ConfigError(f"batches.width={width} is too small to hold text: give at least {min_width}")
        self.length = min(width - num_frame_tokens, len(self.tokens))  # tokens of text in a window
        self.last_start = len(self.tokens) - self.length
        if pairs and not self.last_start:
            raise ConfigError(
                f"{len(self.tokens)} tokens are too few for pairs of segments: lower data.width or give a longer text"
            )
        self.width = self.length + num_frame_tokens
        self.batch = batch
        self.pairs = pairs
        self.seed = seed
        self.order = WindowOrder(self.last_start, self.length, batch, seed)
        self.rate = rate
        self.mask_fraction = mask_fraction
        self.random_fraction = random_fraction
        self.first_id, self.last_id, self.mask_id = frame_ids(store.specials)
        self.vocabulary = store.vocabulary
        self.first_word = len(SPECIALS) if store.specials == SpecialTokens() else 0
        self.special_ids = [token_id for token_id in store.specials[:5] if token_id is not None]

    def batches(
        self, cursor: Cursor = (), rank: int = 0, world_size: int = 1
    ) -> Iterator[tuple[MaskedBatch, Cursor]]:
        for starts, next_cursor in self.order.batches(cursor):
            epoch = next_cursor[0]
            local_starts, counted = shard_rows(starts, rank, world_size)
            first_countable = np.zeros_like(local_starts) if counted else local_starts + self.length
            yield self.collate(local_starts, first_countable, hash_key(self.seed, epoch, 2)), next_cursor

    def epoch_batches(self) -> int:
        return self.order.epoch_batches()

    def sequential(self, rank: int = 0, world_size: int = 1) -> Iterator[MaskedBatch]:
        count = -(-self.last_start // self.length) + 1
        for first in range(rank * self.batch, count, world_size * self.batch):
            window_starts = np.arange(first, min(first + self.batch, count)) * self.length
            starts = np.minimum(window_starts, self.last_start)
            yield self.collate(starts, window_starts, hash_key(self.seed, 3))

    def collate(self, starts: np.ndarray, first_countable: np.ndarray, key: int) -> MaskedBatch:
        """Builds the batch of the windows at `starts`; tokens
        before position `first_countable` are not selected."""
        steps = np.arange(self.length)
        positions = starts[:, None] + steps  # (B, L)
        split = np.full((len(starts), 1), self.length)
        is_next = None
        if self.pairs:
            coin, split_point, distance = hashed_uniform(hash_key(key, 1), starts, 3).T[..., None]
            split = (
                self.length // 4 + 1 + (split_point * (self.length // 2)).astype(np.int64)
            )  # in the middle half
            # the start of any window but this one
            shift = 1 + (distance * self.last_start).astype(np.int64)
            other_starts = (starts[:, None] + shift) % (self.last_start + 1)
            from_elsewhere = (coin < 0.5) & (steps >= split)
            positions = np.where(from_elsewhere, other_starts + steps, positions)
            is_next = torch.from_numpy((coin[:, 0] >= 0.5).astype(np.int64))
        text = self.tokens[positions].astype(np.int64)
        column = np.arange(self.width)
        text_column = np.clip(column - 1 - (column > split + 1), 0, self.length - 1)  # (B, T)
        frame = (column == 0) | (column == split + 1) | (column == self.width - 1)
        text_ids = np.take_along_axis(text, text_column, 1)
        ids = np.where(column == 0, self.first_id, np.where(frame, self.last_id, text_ids))
        words = ~frame & ~np.isin(ids, self.special_ids)
        words &= np.take_along_axis(positions, text_column, 1) >= first_countable[:, None]
        uniform = hashed_uniform(key, starts, 3 * self.width).reshape(-1, 3, self.width).transpose(1, 0, 2)
        targets = torch.from_numpy(ids)
        masked = mask_tokens(
            targets,
            torch.from_numpy(words),
            self.vocabulary,
            torch.from_numpy(np.ascontiguousarray(uniform)),
            self.rate,
            self.mask_fraction,
            self.random_fraction,
            self.first_word,
            self.mask_id,
        )
        return MaskedBatch(masked.ids, targets, masked.selected, is_next)
