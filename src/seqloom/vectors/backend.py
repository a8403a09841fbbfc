"""Where word vectors meet their compiled loops: one function that returns the compiled form or the plain one.

`kernels/` holds the compiled modules and `vectors/plain/` modules of the same names with the same functions
in numpy. Nothing else in this package imports either, and importing this package does not load numba.
"""

from __future__ import annotations

import os
from importlib import import_module
from types import ModuleType
from typing import Literal

Name = Literal["analogies", "cooccurrence", "glove", "parse_floats", "word2vec"]


def kernels_available() -> bool:
    """Whether compiled loops can be used. The first call warns if they cannot."""
    available: bool = import_module("seqloom.kernels.available").AVAILABLE
    return available


def load_kernels(name: Name) -> ModuleType:
    """The compiled module `name`, or its plain form if numba is missing or broken (with one warning)."""
    return import_module(
        f"seqloom.kernels.{name}" if kernels_available() else f"seqloom.vectors.plain.{name}"
    )


def useful_threads(threads: int) -> int:
    """`threads` for the compiled form, which releases the GIL; 1 for the plain form, which does not."""
    return threads if kernels_available() else 1


def default_threads() -> int:
    """All cores that this process may use, or fewer if OMP_NUM_THREADS says so, as torch and numpy do."""
    text = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0]
    if text.isdigit() and int(text) > 0:
        return int(text)
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS and Windows
        return os.cpu_count() or 1
