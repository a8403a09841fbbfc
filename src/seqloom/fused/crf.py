"""Paths of labels: how a score for each token and label becomes a distribution over whole sequences of labels. A tagger takes either part.

Both read `scores` (B, T, K), `tags` (B, T) and `mask` (B, T); padding may stand anywhere and hold anything. Left out: higher orders, and
segments as units (semi-Markov), which no lecture has.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels


def to_float64(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.detach().double().contiguous().numpy() for tensor in tensors]


class ForwardScores(NamedTuple):
    """All paths, summed by the compiled loops: what was given, α (B, T, K) and ln Z (B,)."""

    scores: np.ndarray
    lengths: np.ndarray
    steps: np.ndarray
    last: np.ndarray
    sums: np.ndarray
    totals: np.ndarray

    @classmethod
    def of(cls, scores: Tensor, lengths: Tensor, steps: Tensor, first: Tensor, last: Tensor) -> ForwardScores:
        given, count, (steps, first, last) = (
            *to_float64(scores),
            lengths.numpy(),
            to_float64(steps, first, last),
        )
        found = cls(given, count, steps, last, np.empty_like(given), np.empty(len(given)))
        load_kernels("crf").crf_forward(given, count, steps, first, last, found.sums, found.totals)
        return found

    def gradients(self, weights: Tensor) -> list[Tensor]:
        """Those of Σ weights · ln Z, with respect to scores, steps, first and last."""
        found = [np.zeros_like(like) for like in (self.scores, self.steps, self.last, self.last)]
        load_kernels("crf").crf_backward(*self, *to_float64(weights), *found)
        return [torch.from_numpy(one) for one in found]


class LogPartition(torch.autograd.Function):
    """ln Z = ln Σ_y exp(s(y)) of each row."""

    @staticmethod
    def forward(ctx, scores: Tensor, lengths: Tensor, steps: Tensor, first: Tensor, last: Tensor) -> Tensor:
        ctx.lattice, ctx.dtype = ForwardScores.of(scores, lengths, steps, first, last), scores.dtype
        return torch.from_numpy(ctx.lattice.totals).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, weights: Tensor) -> tuple[Tensor | None, ...]:
        scores, steps, first, last = (one.to(ctx.dtype) for one in ctx.lattice.gradients(weights))
        return scores, None, steps, first, last
