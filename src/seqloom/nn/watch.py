"""What a decoder looks at while it works: the weights over its memory, for whoever reads them. They pass through no attribute: `attend` notes
what it weighed, and outside of a `watch` nothing is kept. Each thread has its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from seqloom.nn.fast import plain

_open: ContextVar[list[Tensor] | None] = ContextVar("weights", default=None)


def note(weights: Tensor | None) -> None:
    """α (B, H, T, S) of one call of attention over a memory."""
    notes = _open.get()
    if notes is not None and weights is not None:
        notes.append(weights)


@contextmanager
def watch() -> Iterator[list[Tensor]]:
    """Inside, parts take their plain form, which makes weights, and the list has them in the order of the calls."""
    notes: list[Tensor] = []
    before = _open.set(notes)
    try:
        with plain():
            yield notes
    finally:
        _open.reset(before)


def heads(notes: list[Tensor], length: int) -> Tensor | None:
    """All heads of all parts that looked, (B, heads, T, S), T = `length`; None where nothing did. A part that asks step by step has noted
    each of its steps in turn."""
    parts, steps = [], []
    for weights in notes:
        steps.append(weights)
        if sum(step.shape[2] for step in steps) == length:
            parts.append(torch.cat(steps, 2))
            steps = []
    return torch.cat(parts, 1) if parts else None
