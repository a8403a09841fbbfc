"""Fast form of `CRF` in `nn/crf.py`: ln Z with its gradient, marginals and Viterbi as compiled loops
(`kernels/crf.py`).

All take `scores` (B, T, K) with each row's real tokens first, `lengths` (B,), and `transitions` = (A (K, K),
start (K,), end (K,)). The loops compute in float64. For float32 and float64 on the CPU; otherwise each
function returns None.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels, supports

Transitions = tuple[Tensor, Tensor, Tensor]
"""A[j, k] from label j to k (K, K); the score of each label at the start and at the end (K,)."""


def log_partition(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor | None:
    """ln Z = ln Σ_y exp(s(y)) of each row, (B,), differentiable in scores and transitions."""
    if not supports(scores, *transitions):
        return None
    return LogPartition.apply(scores, lengths, *transitions)


def marginals(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor | None:
    """P(yₜ = k), the gradient of ln Z with respect to the scores: (B, T, K), 0 at padding."""
    if not supports(scores, *transitions):
        return None
    dscores = ForwardScores.create(scores, lengths, *transitions).backward(torch.ones(len(scores)))[0]
    return dscores.to(scores.dtype)


def viterbi(scores: Tensor, lengths: Tensor, transitions: Transitions) -> Tensor | None:
    """The best labels of each row, (B, T), 0 at padding."""
    if not supports(scores, *transitions):
        return None
    tags = torch.zeros(scores.shape[:2], dtype=torch.long)
    load_kernels("crf").viterbi(*to_float64(scores), lengths.numpy(), *to_float64(*transitions), tags.numpy())
    return tags


def to_float64(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.detach().double().contiguous().numpy() for tensor in tensors]


class ForwardScores(NamedTuple):
    """The forward pass: its inputs, α (B, T, K) and ln Z (B,)."""

    scores: np.ndarray
    lengths: np.ndarray
    transitions: np.ndarray
    end: np.ndarray
    alpha: np.ndarray
    log_z: np.ndarray

    @classmethod
    def create(
        cls, scores: Tensor, lengths: Tensor, transitions: Tensor, start: Tensor, end: Tensor
    ) -> ForwardScores:
        scores_, transitions_, start_, end_ = to_float64(scores, transitions, start, end)
        result = cls(
            scores_, lengths.numpy(), transitions_, end_, np.empty_like(scores_), np.empty(len(scores_))
        )
        load_kernels("crf").crf_forward(
            scores_, result.lengths, transitions_, start_, end_, result.alpha, result.log_z
        )
        return result

    def backward(self, grad_output: Tensor) -> list[Tensor]:
        """The gradients of Σ grad_output · ln Z with respect to scores, transitions, start and end."""
        gradients = [np.zeros_like(array) for array in (self.scores, self.transitions, self.end, self.end)]
        load_kernels("crf").crf_backward(*self, *to_float64(grad_output), *gradients)
        return [torch.from_numpy(gradient) for gradient in gradients]


class LogPartition(torch.autograd.Function):
    """ln Z = ln Σ_y exp(s(y)) of each row."""

    @staticmethod
    def forward(
        ctx: Any, scores: Tensor, lengths: Tensor, transitions: Tensor, start: Tensor, end: Tensor
    ) -> Tensor:
        ctx.forward_scores = ForwardScores.create(scores, lengths, transitions, start, end)
        ctx.dtype = scores.dtype
        return torch.from_numpy(ctx.forward_scores.log_z).to(scores.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor | None, ...]:
        gradients = ctx.forward_scores.backward(grad_output)
        scores, transitions, start, end = (gradient.to(ctx.dtype) for gradient in gradients)
        return scores, None, transitions, start, end
