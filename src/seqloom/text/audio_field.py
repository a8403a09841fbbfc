"""The field `audio`: the frames of a recording as two columns, `audio` (its numbers) and `audio_shape` (frames, numbers of a frame)."""

from __future__ import annotations

from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.media.recordings import Recording
from seqloom.text.encoder import Encoded, Field
from seqloom.text.lazy_array import LazyArray


class AudioField(Field):
    """Frames (T, F) of float32, from a recording or from an array."""

    names = ("audio", "audio_shape")
    dtypes = (np.dtype(np.float32), np.dtype(np.uint32))

    def check(self, value: Any, location: str) -> np.ndarray:
        frames = value.frames() if isinstance(value, Recording) else value
        frames = frames.array() if isinstance(frames, LazyArray) else frames
        if not isinstance(frames, np.ndarray) or frames.ndim != 2 or frames.dtype != np.float32:
            raise DataError(f"{location}: a {type(value).__name__} instead of a recording; use corpus Speech")
        return frames

    def encode(self, values: list[np.ndarray]) -> list[Encoded]:
        sizes = np.array([frames.size for frames in values], np.int64)
        shapes = np.array([frames.shape for frames in values], np.uint32)
        data = b"".join(np.ascontiguousarray(frames).tobytes() for frames in values)
        return [
            (data, sizes, sizes * np.dtype(np.float32).itemsize),
            (shapes.tobytes(), np.full(len(values), 2, np.int64), 0 * sizes),
        ]
