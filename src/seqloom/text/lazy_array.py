"""A field of a record that is a file: its name and its array, which is decoded when it is needed.

Iterating a reader of pictures, to train a tokenizer on the captions for example, decodes none of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

import numpy as np


class LazyArray:
    """A picture or sound: `name` as the data names it, `read` returns its bytes, `decode` the array of bytes."""

    def __init__(self, name: str, read: Callable[[], bytes], decode: Callable[[bytes], np.ndarray]):
        self.name = name
        self.read = read
        self.decode = decode

    def array(self) -> np.ndarray:
        return self.decode(self.read())

    def key(self) -> str:
        """Returns the SHA-256 of the file, which decides its side when data is divided."""
        return hashlib.sha256(self.read()).hexdigest()

    def __repr__(self) -> str:
        return self.name
