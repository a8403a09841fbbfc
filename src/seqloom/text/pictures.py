"""The reader of pictures with captions or labels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqloom.errors import DataError
from seqloom.media.images import Fit, decode_picture, fit_pixels, read_picture
from seqloom.text.corpus import Paths
from seqloom.text.media_reader import MediaReader

MAX_SIZE = 1024  # pixels of a side as a model reads it


class Pictures(MediaReader):
    """(picture, captions), or (picture, label), in the form that `kinds` says.

    Pictures are read as `size` × `size` pixels, or as size = [height, width]. `fit` says how a picture of another shape
    becomes so: crop, pad or stretch. `background` is the grey behind what is transparent or padded, 0 to 255.
    """

    kinds = ("image", "captions")
    list_names = ("captions.tsv", "captions.jsonl", "captions.json", "labels.tsv", "labels.jsonl")
    folders = ("images", "images.zip", "pictures", "pictures.zip")
    noun = "picture"

    def __init__(
        self,
        paths: Paths,
        size: int | list[int] = 64,
        kinds: tuple[Literal["image", "captions", "label"], ...] = ("image", "captions"),
        files: str | None = None,
        fit: Fit = "crop",
        background: int = 255,
    ):
        super().__init__(paths, kinds, files)
        if self.kinds not in (("image", "captions"), ("image", "label")):
            raise DataError(
                f"kinds {', '.join(self.kinds)}: pictures have captions or a label; set corpus.kinds=image,captions"
            )
        self.height, self.width = sides(size)
        self.fit: Fit = fit
        self.background = background

    def options(self) -> tuple:
        return self.height, self.width, self.kinds, self.fit, self.background

    def decode(self, data: bytes, location: str) -> np.ndarray:
        return decode_picture(data, location, self.height, self.width, self.fit, self.background)

    @classmethod
    def source_shape(cls, options: Mapping[str, Any]) -> tuple[int, ...]:
        return (*sides(options.get("size", 64)), 3)

    @classmethod
    def load_source(cls, path: str | Path | np.ndarray, options: Mapping[str, Any]) -> np.ndarray:
        height, width = sides(options.get("size", 64))
        fit, background = options.get("fit", "crop"), options.get("background", 255)
        if isinstance(path, np.ndarray):
            return fit_pixels(path, height, width, fit, background)
        return decode_picture(read_picture(path), str(path), height, width, fit, background)


def sides(size: int | list[int]) -> tuple[int, int]:
    """Returns height and width."""
    values = [size, size] if isinstance(size, int) else list(size)
    if len(values) != 2 or not all(isinstance(value, int) and 1 <= value <= MAX_SIZE for value in values):
        raise DataError(
            f"corpus.size={size}: give one number of pixels, or height and width, up to {MAX_SIZE}"
        )
    return values[0], values[1]
