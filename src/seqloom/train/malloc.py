"""What the process does with memory that is freed: a training asks for the same sizes at every step."""

from __future__ import annotations

import ctypes

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # names of glibc's malloc.h
RETAIN_BYTES = 1 << 30


def keep_freed_memory() -> bool:
    """Keep freed memory for the next step instead of giving it back to the system, which must clear each page before it lends it
    again: up to a tenth of a step's time. The peak stays what it was. False where the C library has no such setting."""
    try:
        library = ctypes.CDLL(None)
        return all(library.mallopt(name, RETAIN_BYTES) == 1 for name in (TRIM_THRESHOLD, MMAP_THRESHOLD))
    except (AttributeError, OSError, TypeError):
        return False
