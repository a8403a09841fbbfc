"""Compiled code, and where it is kept between processes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from numba import config, njit

FILES = (
    "few",
    "kernels",
    "lattice",
    "look",
    "looks",
    "products",
    "ranks",
    "surprise_kernels",
    "sweeps",
    "tape",
    "threads",
    "tiles",
)


@cache
def folder() -> str:
    """Where compiled code is kept: by the contents of the files it comes from, since numba looks only at the age of a function's own file, and
    functions of one file call those of others."""
    digest = hashlib.sha256(
        b"".join((Path(__file__).parent / f"{name}.py").read_bytes() for name in FILES)
    ).hexdigest()
    return str(Path(config.CACHE_DIR or Path(__file__).parent / "__pycache__") / f"compiled-{digest[:16]}")


@contextmanager
def kept() -> Iterator[None]:
    """Inside, what numba compiles is kept there."""
    before, config.CACHE_DIR = config.CACHE_DIR, folder()
    try:
        yield
    finally:
        config.CACHE_DIR = before


def compiler(options: dict[str, object]) -> Callable[[Callable], Callable]:
    """What compiles a function with these options and keeps it."""

    def compiled(function: Callable) -> Callable:
        with kept():
            return njit(**options, cache=True)(function)

    return compiled
