"""Losses that a part adds to the objective's own, such as the balance of a mixture of experts. They pass through no attribute: whoever
wants them opens a collection, and outside of one nothing is kept. Each thread has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from torch import Tensor

_open: ContextVar[list[Tensor] | None] = ContextVar("losses", default=None)


def wanted() -> bool:
    """Whether an added loss would reach anyone."""
    return _open.get() is not None


def add(loss: Tensor) -> None:
    """One number per call of the part, as a mean over tokens: the objective weighs it with its own count."""
    losses = _open.get()
    if losses is not None:
        losses.append(loss)


@contextmanager
def collect() -> Iterator[list[Tensor]]:
    """Inside, what parts add is in the list; the innermost collection gets it."""
    losses: list[Tensor] = []
    before = _open.set(losses)
    try:
        yield losses
    finally:
        _open.reset(before)
