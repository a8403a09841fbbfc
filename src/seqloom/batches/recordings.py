"""Recordings with their texts or labels, in batches of similar length, and SpecAugment.

A recording is (T, F) frames. Augmentation changes training batches only; it is a function of seed, epoch and record.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch

from seqloom.batches.batch import SourceBatch, hash_key
from seqloom.batches.buckets import Buckets, pad, read_rows, row_lengths
from seqloom.batches.labelled import LabelledBatch, require_columns
from seqloom.batches.sources import stack_sources
from seqloom.errors import ConfigError
from seqloom.text.store import Store

MAX_MASKED = 0.2  # of the frames, by one mask


class SpecAugment(NamedTuple):
    """Masks over time and over the numbers of a frame (Park et al.), a change of speed, and noise.

    `stretch` 0.1 plays a recording 0.9 to 1.1 times as long; `noise` is the deviation of what is added to every number, of which
    the deviation over the recording is 1.
    """

    time_masks: int = 0
    time_width: int = 0
    bin_masks: int = 0
    bin_width: int = 0
    stretch: float = 0.0
    noise: float = 0.0

    def __call__(self, frames: np.ndarray, key: int) -> np.ndarray:
        """(T, F) → (T', F), as the key decides."""
        if not any(self):
            return frames
        random = np.random.default_rng(key)
        frames = (
            resized(frames, 1 + random.uniform(-self.stretch, self.stretch))
            if self.stretch
            else frames.copy()
        )
        mean = frames.mean(0)
        if self.noise:
            scale = self.noise * frames.std(0)
            frames += scale * random.standard_normal(frames.shape, np.float32)
        length, bins = frames.shape
        for _ in range(self.time_masks):
            width = int(random.integers(0, min(self.time_width, int(MAX_MASKED * length)) + 1))
            start = int(random.integers(0, length - width + 1))
            frames[start : start + width] = mean
        for _ in range(self.bin_masks):
            width = int(random.integers(0, min(self.bin_width, bins // 2) + 1))
            start = int(random.integers(0, bins - width + 1))
            frames[:, start : start + width] = mean[start : start + width]
        return frames


def resized(frames: np.ndarray, factor: float) -> np.ndarray:
    """Frames as if the recording were `factor` times as long, by linear interpolation: (T, F) → (⌈factor · T⌋, F)."""
    length = max(1, round(factor * len(frames)))
    places = np.linspace(0, len(frames) - 1, length, dtype=np.float32)
    left = places.astype(np.int64)
    right = np.minimum(left + 1, len(frames) - 1)
    share = (places - left)[:, None]
    return frames[left] * (1 - share) + frames[right] * share


class Recordings(Buckets):
    """Recordings with their texts or labels, in batches in which rows × longest row is at most `batch_tokens` frames.

    Training skips recordings of more than `max_length` frames. The masks of SpecAugment are at most `time_width` frames and `bin_width`
    numbers wide; `stretch` changes the speed, `noise` adds noise.
    """

    def __init__(
        self,
        store: Store,
        batch_tokens: int = 6000,
        max_length: int = 3000,
        shuffle_pool: int = 4096,
        seed: int = 0,
        time_masks: int = 0,
        time_width: int = 40,
        bin_masks: int = 0,
        bin_width: int = 8,
        stretch: float = 0.0,
        noise: float = 0.0,
    ):
        require_columns(store, ("audio", "audio_shape"), "Speech")
        super().__init__(store, batch_tokens, max_length, shuffle_pool, seed)
        if not 0 <= stretch < 1 or noise < 0 or min(time_masks, time_width, bin_masks, bin_width) < 0:
            raise ConfigError(
                "batches: stretch is at least 0 and below 1, and no mask, width or noise is below 0: correct them"
            )
        (self.audio,) = store.columns("audio")
        self.bins = int(store.columns("audio_shape")[0].row(0)[1])
        self.texts = store.columns("text")
        self.target_columns = store.columns("label")
        self.augment = SpecAugment(
            time_masks,
            time_width if time_masks else 0,
            bin_masks,
            bin_width if bin_masks else 0,
            stretch,
            noise,
        )
        self.num_skipped = int((self.lengths(np.arange(len(store))) > max_length).sum())
        if self.num_skipped == len(store):
            raise ConfigError(
                f"every recording is longer than batches.max_length={max_length} frames: raise it"
            )

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return row_lengths(self.audio, index) // self.bins

    def frames(self, record: int) -> np.ndarray:
        """The frames of a record, (T, F)."""
        return self.audio.row(int(record)).reshape(-1, self.bins)

    def collate(
        self, index: np.ndarray, counted: bool = True, full: bool = False
    ) -> SourceBatch | LabelledBatch:
        """Builds the batch of the given records; recordings are never cut, with or without `full`."""
        return self.batch([self.frames(i) for i in index], index, counted)

    def training_batch(self, index: np.ndarray, counted: bool, epoch: int) -> SourceBatch | LabelledBatch:
        """`collate` with augmented frames."""
        keys = [hash_key(self.seed, epoch, self.audio.number(int(i))) for i in index]
        frames = [self.augment(self.frames(i), key) for i, key in zip(index, keys, strict=True)]
        return self.batch(frames, index, counted)

    def batch(
        self, frames: list[np.ndarray], index: np.ndarray, counted: bool
    ) -> SourceBatch | LabelledBatch:
        source, source_mask = stack_sources(frames)
        if not self.texts:
            return self.labelled(source, source_mask, index, counted)
        targets, mask = pad(read_rows(self.texts[0], index))
        bos_id = self.store.specials.bos
        if bos_id is None:
            raise ConfigError("the tokenizer has no <bos>, with which a text begins: use another tokenizer")
        ids = torch.cat([torch.full((len(index), 1), bos_id), targets[:, :-1]], 1)
        return SourceBatch(source, source_mask, ids, targets, mask & counted)

    def labelled(
        self, source: torch.Tensor, source_mask: torch.Tensor | None, index: np.ndarray, counted: bool
    ) -> LabelledBatch:
        """Recordings with the label of each; 0 where the data has none."""
        targets = torch.zeros(len(index), dtype=torch.long)
        if self.target_columns:
            targets = torch.tensor([int(row[0]) for row in read_rows(self.target_columns[0], index)])
        mask = torch.ones(source.shape[:2], dtype=torch.bool) if source_mask is None else source_mask
        return LabelledBatch(source, mask, None, None, targets, torch.full((len(index),), counted))
