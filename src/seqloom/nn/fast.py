"""The switch between a part's plain form and its fast one. Both stand under the same docstring; tests run both and compare."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

_plain = False


def fast() -> bool:
    """Whether fused paths may be taken."""
    return not _plain


@contextmanager
def plain() -> Iterator[None]:
    """Inside, every part computes its equation literally: for tests, for counting FLOPs, for reading values."""
    global _plain
    before, _plain = _plain, True
    try:
        yield
    finally:
        _plain = before
