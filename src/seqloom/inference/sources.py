"""Pictures and sounds that a user names, as the corpus of a run reads them."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.errors import DataError
from seqloom.run import Run
from seqloom.text.lazy_array import LazyArray

SOURCE_KINDS = ("image", "audio")


def read_file(path: str) -> bytes:
    """The bytes of a file."""
    try:
        return Path(path).read_bytes()
    except IsADirectoryError:
        raise DataError(f"{path}: a folder; give the files inside it") from None
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; give one that exists") from None
    except OSError as error:
        raise DataError(
            f"{path}: {(error.strerror or str(error)).lower()}; give a file that can be read"
        ) from None


def is_source(value: object) -> bool:
    """Whether a value is one picture or sound: a file, an array, or a record of a corpus."""
    return isinstance(value, str | os.PathLike | np.ndarray | LazyArray)


def source_of(run: Run, value: Any, location: str) -> LazyArray:
    """A file, an array or a `LazyArray` as a source that is decoded when it is needed."""
    if isinstance(value, LazyArray):
        return value
    options = run.config.parts["corpus"].keywords
    load = run.config.reader_class.load_source
    if isinstance(value, np.ndarray):
        return LazyArray(location, value.tobytes, lambda _: load(value, options))
    if not isinstance(value, str | os.PathLike):
        raise DataError(f"{location}: a {type(value).__name__} instead of a file; give its path")
    name = os.fspath(value)
    return LazyArray(name, partial(read_file, name), lambda _: load(name, options))
