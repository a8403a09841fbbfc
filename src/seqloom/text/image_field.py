"""Fields of pictures: pixels, and the captions of a picture.

image      a picture            pixel_shape, pixels       height and width; red, green and blue of each pixel, row by row
captions   a list of strings    caption_ends, captions    where each caption ends; the ids of all, each with <eos>
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.text.encoder import Encoded, Field, RecordEncoder, check_unicode, integers, utf8_lengths
from seqloom.text.lazy_array import LazyArray


class ImageField(Field):
    """A picture, as pixels."""

    names = ("pixel_shape", "pixels")
    dtypes = (np.dtype(np.uint16), np.dtype(np.uint8))

    def check(self, value: Any, location: str) -> np.ndarray:
        pixels = value.array() if isinstance(value, LazyArray) else value
        if (
            not isinstance(pixels, np.ndarray)
            or pixels.dtype != np.uint8
            or pixels.ndim != 3
            or pixels.shape[2] != 3
        ):
            raise DataError(f"{location}: not a picture; give pixels as uint8 of shape (height, width, 3)")
        return pixels

    def encode(self, values: list[np.ndarray]) -> list[Encoded]:
        shapes = np.array([pixels.shape[:2] for pixels in values], np.uint16)
        counts = integers(pixels.size for pixels in values)
        pixels = b"".join(np.ascontiguousarray(pixels).tobytes() for pixels in values)
        return [
            (shapes.tobytes(), np.full(len(values), 2, np.int64), 0 * counts),
            (pixels, counts, 0 * counts),
        ]


class CaptionsField(Field):
    """The captions of a picture, as ids."""

    names = ("caption_ends", "captions")
    is_input = False

    def __init__(self, tokenizer: Tokenizer, adds_eos: bool, labels: dict[str, int]):
        super().__init__(tokenizer, adds_eos, labels)
        self.encoder = RecordEncoder(tokenizer, adds_eos)
        self.dtypes = (np.dtype(np.uint32), self.encoder.dtype)

    def check(self, value: Any, location: str) -> list[str]:
        captions = [value] if isinstance(value, str) else value
        if not isinstance(captions, list | tuple) or not captions:
            raise DataError(f"{location}: no captions; give a text, or a list of texts")
        for caption in captions:
            if not isinstance(caption, str) or not check_unicode(caption, location).strip():
                raise DataError(f"{location}: {caption!r} is not a caption; captions are non-empty text")
        return list(captions)

    def encode(self, values: list[list[str]]) -> list[Encoded]:
        texts = [caption for captions in values for caption in captions]
        ids, lengths = self.encoder(texts)
        per_record = integers(map(len, values))
        first = np.concatenate([[0], np.cumsum(per_record)])
        ends = np.concatenate([[0], np.cumsum(lengths)])
        starts = np.repeat(ends[first[:-1]], per_record)
        sizes = np.concatenate([[0], np.cumsum(utf8_lengths(texts))])
        # a line end between two captions counts as a byte, as one after each record does
        bytes_per_record = np.diff(sizes[first]) + per_record - 1
        return [
            ((ends[1:] - starts).astype(np.uint32).tobytes(), per_record, 0 * per_record),
            (ids, np.diff(ends[first]), bytes_per_record),
        ]
