"""Pictures with captions or labels in batches, and how training pictures are changed.

A picture of training is changed by a pure function of seed, epoch and picture, so that a resumed run sees the same pixels;
pictures of an evaluation are never changed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import SourceBatch, hash_key
from seqloom.batches.buckets import Buckets, pad, read_rows
from seqloom.batches.labelled import LabelledBatch, require_columns
from seqloom.batches.sources import stack_sources
from seqloom.errors import ConfigError
from seqloom.text.store import Store


class Augment:
    """Changes of training pictures, each drawn anew for every picture and epoch.

    `shift` moves a picture by up to so many pixels each way, `flip` mirrors one half of them, `light` and `contrast` change
    both by up to this share, `erase` covers a square of up to this share of the side with grey.
    """

    def __init__(
        self,
        shift: int = 0,
        flip: bool = False,
        light: float = 0.0,
        contrast: float = 0.0,
        erase: float = 0.0,
    ):
        if shift < 0 or not all(0 <= share < 1 for share in (light, contrast, erase)):
            raise ConfigError(
                "batches.augment: shift is at least 0; light, contrast and erase are from 0 to below 1"
            )
        self.shift = shift
        self.flip = flip
        self.light = light
        self.contrast = contrast
        self.erase = erase

    def __call__(self, pixels: np.ndarray, key: int) -> np.ndarray:
        """Returns the changed pixels, uint8 (H, W, 3); equal keys change equally."""
        random = np.random.Generator(np.random.Philox(key))
        height, width, _ = pixels.shape
        down, right = random.integers(-self.shift, self.shift, 2, endpoint=True)
        flip, light, contrast = random.random(3)
        if self.shift:
            framed = np.pad(pixels, ((self.shift,) * 2, (self.shift,) * 2, (0, 0)), "edge")
            pixels = framed[self.shift + down :, self.shift + right :][:height, :width]
        if self.flip and flip < 0.5:
            pixels = pixels[:, ::-1]
        if self.light or self.contrast:
            values = pixels.astype(np.float32)
            mean = values.mean()
            values = mean + (values - mean) * (1 + self.contrast * (2 * contrast - 1))
            pixels = (values + 255 * self.light * (2 * light - 1)).clip(0, 255).astype(np.uint8)
        if self.erase:
            side = int(random.random() * self.erase * min(height, width))
            top, left = random.integers(0, [height - side + 1, width - side + 1])
            pixels = pixels.copy()
            pixels[top : top + side, left : left + side] = 128
        return np.ascontiguousarray(pixels)


class PictureBuckets(Buckets):
    """Batches of `batch` pictures, changed in training by `augment`."""

    def __init__(
        self,
        store: Store,
        batch: int,
        max_length: int,
        shuffle_pool: int,
        augment: Callable[[], Augment] | None,
        seed: int,
    ):
        if batch < 1:
            raise ConfigError(f"batches.batch={batch}: give at least 1")
        super().__init__(store, batch, max_length, shuffle_pool, seed)
        self.batch = batch
        self.augment = None if augment is None else augment()
        (self.shapes,) = store.columns("pixel_shape")
        (self.pixels,) = store.columns("pixels")

    def length_groups(self, index: np.ndarray) -> list[np.ndarray]:
        """Groups of `batch` items of similar length."""
        ordered = index[np.argsort(self.full_lengths(index), kind="stable")]
        return [ordered[start : start + self.batch] for start in range(0, len(ordered), self.batch)]

    def pictures(self, records: np.ndarray, keys: list[int] | None = None) -> Tensor:
        """The pixels (B, H, W, 3) of the given records, changed by `augment` if there are keys."""
        shapes = read_rows(self.shapes, records)
        pixels = [
            row.reshape(*shape, 3) for row, shape in zip(read_rows(self.pixels, records), shapes, strict=True)
        ]
        if keys is not None and self.augment is not None:
            pixels = [self.augment(row, key) for row, key in zip(pixels, keys, strict=True)]
        return stack_sources(pixels)[0]

    def keys(self, index: np.ndarray, epoch: int) -> list[int]:
        """What the changes of each item depend on."""
        return [hash_key(self.seed, epoch, int(item)) for item in index]


class Captions(PictureBuckets):
    """Batches of `batch` pictures, each with one of its captions; an epoch has every caption once.

    Captions of similar length form a batch. Training skips captions of more than `max_length` tokens; `sequential` keeps
    them. `augment` changes the pictures of training.
    """

    def __init__(
        self,
        store: Store,
        batch: int = 32,
        max_length: int = 64,
        shuffle_pool: int = 2048,
        augment: Callable[[], Augment] | None = None,
        seed: int = 0,
    ):
        require_columns(store, ("pixels", "captions"), "Pictures")
        super().__init__(store, batch, max_length, shuffle_pool, augment, seed)
        (self.ends,) = store.columns("caption_ends")
        (self.captions,) = store.columns("captions")
        counts = self.ends.sizes(np.arange(len(store)))
        self.first_items = np.concatenate([[0], np.cumsum(counts)])  # of each record

    @property
    def num_items(self) -> int:
        return int(self.first_items[-1])

    def locate(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The record of each caption, and its number among the captions of the record."""
        records = np.searchsorted(self.first_items, index, side="right") - 1
        return records, index - self.first_items[records]

    def lengths(self, index: np.ndarray) -> np.ndarray:
        records, numbers = self.locate(index)
        ends = read_rows(self.ends, records)
        return np.array(
            [
                int(row[number]) - (int(row[number - 1]) if number else 0)
                for row, number in zip(ends, numbers, strict=True)
            ]
        )

    def collate(self, index: np.ndarray, counted: bool = True) -> SourceBatch:
        return self.build(index, counted, None)

    def training_batch(self, index: np.ndarray, counted: bool, epoch: int) -> SourceBatch:
        return self.build(index, counted, self.keys(index, epoch))

    def build(self, index: np.ndarray, counted: bool, keys: list[int] | None) -> SourceBatch:
        """The batch of the given captions."""
        records, numbers = self.locate(index)
        texts = []
        for text, ends, number in zip(
            read_rows(self.captions, records), read_rows(self.ends, records), numbers, strict=True
        ):
            texts.append(text[int(ends[number - 1]) if number else 0 : int(ends[number])])
        targets, mask = pad(texts)
        bos_id = self.store.specials.bos
        if bos_id is None:
            raise ConfigError(
                "the tokenizer has no <bos>, with which a caption begins: use another tokenizer"
            )
        ids = torch.cat([torch.full((len(index), 1), bos_id), targets[:, :-1]], 1)
        return SourceBatch(self.pictures(records, keys), None, ids, targets, mask & counted)


class LabelledPictures(PictureBuckets):
    """Batches of `batch` pictures with a label each. `augment` changes those of training."""

    def __init__(
        self,
        store: Store,
        batch: int = 32,
        shuffle_pool: int = 4096,
        augment: Callable[[], Augment] | None = None,
        seed: int = 0,
    ):
        require_columns(store, ("pixels",), "Pictures with kinds image and label")
        super().__init__(store, batch, 1, shuffle_pool, augment, seed)
        self.target_columns = store.columns("label")

    def lengths(self, index: np.ndarray) -> np.ndarray:
        return np.ones(len(index), np.int64)

    def collate(self, index: np.ndarray, counted: bool = True, full: bool = False) -> LabelledBatch:
        """Builds the batch of the given records; a picture is always read in full."""
        return self.build(index, counted, None)

    def training_batch(self, index: np.ndarray, counted: bool, epoch: int) -> LabelledBatch:
        return self.build(index, counted, self.keys(index, epoch))

    def build(self, index: np.ndarray, counted: bool, keys: list[int] | None) -> LabelledBatch:
        targets = torch.zeros(len(index), dtype=torch.long)
        if self.target_columns:
            targets = torch.tensor([int(row[0]) for row in read_rows(self.target_columns[0], index)])
        mask = torch.full((len(index),), counted)
        input_mask = torch.ones(len(index), 1, dtype=torch.bool)
        return LabelledBatch(self.pictures(index, keys), input_mask, None, None, targets, mask)
