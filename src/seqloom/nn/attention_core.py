"""Attention itself: score, weigh, average. Three views compute the same: `Dense` literally, `Fused` through torch's kernel, `Band` in pieces
where what a query sees depends on distance alone. Weights are made only in the first, so that nobody else pays for them."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fused.dispatch import fused_enabled
from seqloom.fused.sdpa import (
    BandedAttention,
    SDPAttention,
    SingleQueryMask,
)
from seqloom.nn import mask as masks
from seqloom.nn.collect import record_weights
from seqloom.nn.score import AttentionWeights, Score, Softmax

SOFTMAX = Softmax()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    weights: AttentionWeights = SOFTMAX,
) -> tuple[Tensor, Tensor | None]:
    """yₜ = Σⱼ αₜⱼ vⱼ,   αₜ = weightsⱼ(s(qₜ, kⱼ) + biasₜⱼ) over the visible j   [F9]

    q (B, H, T, K), k (B, G, S, K), v (B, G, S, K') → y (B, H, T, K') and, in the plain form, α (B, H, T, S); G divides H. `visible` and
    `bias` broadcast to (B, H, T, S). A query that sees nothing gives 0. `causal` says that query i sees keys up to i, for T = S.
    """
    known = can_use_sdpa(score, weights)
    if causal and not (known and visible is None and bias is None):
        order = masks.causal(q.shape[2], k.shape[2], q.device)
        visible, causal = order if visible is None else visible & order, False
    view = SDPAttention.create(visible, bias, causal) if known else DenseAttention(visible, bias)
    y, alpha = view.attend(q, k, v, score, weights)
    record_weights(alpha)
    return y, alpha


def can_use_sdpa(score: Score, weights: AttentionWeights) -> bool:
    """Whether torch's kernel computes this score and these weights."""
    return fused_enabled() and score.scale is not None and weights.in_sdpa


class DenseAttention(NamedTuple):
    """The equation as it stands."""

    visible: Tensor | None
    bias: Tensor | None

    def single_query(self, keys: int) -> SingleQueryMask | None:
        return None

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, score: Score, weights: AttentionWeights
    ) -> tuple[Tensor, Tensor]:
        if (times := q.shape[1] // k.shape[1]) > 1:
            k, v = (
                k.repeat_interleave(times, 1),
                v.repeat_interleave(times, 1),
            )  # heads of a group share keys and values
        scores = score(q, k)
        alpha = weights(scores if self.bias is None else scores + self.bias, self.visible)
        return torch.einsum("bhts,bhsk->bhtk", alpha, v), alpha


AttentionPlan = DenseAttention | SDPAttention | BandedAttention
