"""Auxiliary losses and attention weights, which parts hand to whoever collects them. No part stores them: outside a
collection they are dropped. Each thread and context has its own collection."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor

from seqloom.fused.dispatch import plain

_losses: ContextVar[list[Tensor] | None] = ContextVar("losses", default=None)


def collecting_losses() -> bool:
    """Whether auxiliary losses are being collected."""
    return _losses.get() is not None


def add_aux_loss(loss: Tensor) -> None:
    """Adds one loss per call of a part, a mean over tokens; the objective multiplies it by its number of tokens."""
    losses = _losses.get()
    if losses is not None:
        losses.append(loss)


@contextmanager
def collect_aux_losses() -> Iterator[list[Tensor]]:
    """Collects the losses that parts add into the list; the innermost collection receives them."""
    losses: list[Tensor] = []
    before = _losses.set(losses)
    try:
        yield losses
    finally:
        _losses.reset(before)


_weights: ContextVar[list[Tensor] | None] = ContextVar("weights", default=None)


def record_weights(weights: Tensor | None) -> None:
    """Records α (B, H, T, S) of one call of attention."""
    notes = _weights.get()
    if notes is not None and weights is not None:
        notes.append(weights)


@contextmanager
def capture_attention() -> Iterator[list[Tensor]]:
    """Runs parts in their plain form, which computes weights, and collects the weights in the order of the calls."""
    notes: list[Tensor] = []
    before = _weights.set(notes)
    try:
        with plain():
            yield notes
    finally:
        _weights.reset(before)


def concat_heads(notes: list[Tensor], length: int) -> Tensor | None:
    """All heads of all parts that looked, (B, heads, T, S), T = `length`; None where nothing did. A part that asks step by step has noted
    each of its steps in turn."""
    parts, steps = [], []
    for weights in notes:
        steps.append(weights)
        if sum(step.shape[2] for step in steps) == length:
            parts.append(torch.cat(steps, 2))
            steps = []
    return torch.cat(parts, 1) if parts else None
