"""Recordings: a sound file or ready features, which become frames when they are asked for."""

from __future__ import annotations

import zipfile
from functools import lru_cache
from os import fspath
from pathlib import Path

import numpy as np

from seqloom import files
from seqloom.errors import DataError
from seqloom.media.features import SoundFeatures
from seqloom.media.sounds import read_blocks

ARRAYS = (".npy", ".npz")
MAX_ARRAY_BYTES = 8 << 30  # of the arrays of one file
FRAMES, LENGTHS = (
    "frames",
    "lengths",
)  # the arrays of a file with the frames of many recordings, one after another


class Recording:
    """A recording of a table or of the user. `location` is the row that names it, for errors; empty if there is none."""

    def __init__(
        self,
        path: Path,
        features: SoundFeatures,
        location: str = "",
        ready: np.ndarray | None = None,
        name: str = "",
    ):
        self.path = path
        self.features = features
        self.location = location
        self.ready = ready
        self.name = name or path.name

    def __repr__(self) -> str:
        return self.name

    def frames(self) -> np.ndarray:
        """The frames, (T, dim) float32; raises one sentence with the row if the file cannot be read."""
        try:
            if self.ready is not None:
                return self.located_ready(self.ready)
            if self.path.suffix.lower() in ARRAYS:
                return self.located_ready(read_array(self.path))
            if self.features.kind == "ready":
                raise DataError(
                    f"{self.path}: a sound, but ready features are needed; give .npy or .npz of the same features"
                )
            stream = self.features.stream(read_blocks(self.path, self.features.rate))
            return self.features.finish(np.concatenate(list(stream)))
        except DataError as error:
            raise DataError(f"{self.location}: {error}" if self.location else str(error)) from None

    def located_ready(self, frames: np.ndarray) -> np.ndarray:
        try:
            return self.features.ready(frames)
        except DataError as error:
            raise DataError(f"{self.name}: {error}") from None

    def key(self) -> str:
        """The SHA-256 of the content, which decides its side when data is divided."""
        if self.ready is not None:
            return files.digest(np.ascontiguousarray(self.ready).tobytes())
        return file_digest(self.path, self.location)


def file_digest(path: Path, location: str = "") -> str:
    """The SHA-256 of a file; remembered while its size and time stay the same."""
    try:
        status = path.stat()
        return _digest(fspath(path), status.st_size, status.st_mtime_ns)
    except OSError:
        prefix = f"{location}: " if location else ""
        raise DataError(f"{prefix}{path}: no such file; correct the name, or leave the row out") from None


@lru_cache(1 << 20)
def _digest(path: str, size: int, modified: int) -> str:
    return files.sha256(path)


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """The arrays of a .npz file by name. Pickled objects are refused."""
    try:
        with zipfile.ZipFile(path) as archive:
            if sum(item.file_size for item in archive.infolist()) > MAX_ARRAY_BYTES:
                raise DataError(f"{path}: more than {MAX_ARRAY_BYTES >> 30} GB of arrays; divide the file")
        with np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (OSError, ValueError, EOFError, KeyError, NotImplementedError, zipfile.BadZipFile) as error:
        reason = str(error).splitlines()[0] if str(error) else "damaged"
        raise DataError(f"{path}: not readable as .npz ({reason}); write it with numpy.savez") from None


def read_array(path: Path) -> np.ndarray:
    """The one array of a .npy or .npz file."""
    if path.suffix.lower() == ".npz":
        arrays = read_arrays(path)
        if set(arrays) == {FRAMES, LENGTHS} and arrays[LENGTHS].size == 1:
            return arrays[FRAMES]
        if len(arrays) != 1:
            raise DataError(
                f"{path}: {len(arrays)} arrays, but one recording is needed; give a file with one array"
            )
        return next(iter(arrays.values()))
    try:
        return np.load(path, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        if not path.exists():
            raise DataError(f"{path}: no such file; give a file that can be read") from None
        reason = str(error).splitlines()[0] if str(error) else "damaged"
        raise DataError(f"{path}: not readable as .npy ({reason}); write it with numpy.save") from None


def split_frames(path: Path, names: list[str]) -> list[np.ndarray]:
    """The frames of each of the recordings `names` in a .npz file: `frames` and `lengths` in the order of the names, or one array for each
    name."""
    arrays = read_arrays(path)
    if {FRAMES, LENGTHS} <= set(arrays):
        lengths = arrays[LENGTHS]
        if lengths.ndim != 1 or lengths.dtype.kind not in "iu" or (lengths < 0).any():
            raise DataError(
                f"{path}: `{LENGTHS}` is not a list of counts; write the frames of each recording"
            )
        if len(lengths) != len(names) or lengths.sum() != len(arrays[FRAMES]):
            raise DataError(
                f"{path}: {len(lengths)} recordings of {int(lengths.sum()):,} frames, but the table has {len(names)} rows and there are "
                f"{len(arrays[FRAMES]):,} frames; make them line up"
            )
        return np.split(arrays[FRAMES], np.cumsum(lengths)[:-1])
    missing = [name for name in names if name not in arrays]
    if missing:
        raise DataError(
            f"{path}: no array {missing[0]!r}; give an array for each name of the table, or `{FRAMES}` and `{LENGTHS}`"
        )
    return [arrays[name] for name in names]
