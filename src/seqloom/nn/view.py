"""Attention itself: score, weigh, average. Three views compute the same: `Dense` literally, `Fused` through torch's kernel, `Band` in pieces
where what a query sees depends on distance alone. Weights are made only in the first, so that nobody else pays for them."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.nn import mask as masks
from seqloom.nn.fast import fast
from seqloom.nn.score import Score
from seqloom.nn.watch import note
from seqloom.nn.weights import Softmax, Weights

SOFTMAX = Softmax()


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    score: Score,
    visible: Tensor | None = None,
    bias: Tensor | None = None,
    causal: bool = False,
    weights: Weights = SOFTMAX,
) -> tuple[Tensor, Tensor | None]:
    """yₜ = Σⱼ αₜⱼ vⱼ,   αₜ = weightsⱼ(s(qₜ, kⱼ) + biasₜⱼ) over the visible j   [F9]

    q (B, H, T, K), k (B, G, S, K), v (B, G, S, K') → y (B, H, T, K') and, in the plain form, α (B, H, T, S); G divides H. `visible` and
    `bias` broadcast to (B, H, T, S). A query that sees nothing gives 0. `causal` says that query i sees keys up to i, for T = S.
    """
    known = fusable(score, weights)
    if causal and not (known and visible is None and bias is None):
        order = masks.causal(q.shape[2], k.shape[2], q.device)
        visible, causal = order if visible is None else visible & order, False
    view = Fused.of(visible, bias, causal) if known else Dense(visible, bias)
    y, alpha = view.attend(q, k, v, score, weights)
    note(alpha)
    return y, alpha


def fusable(score: Score, weights: Weights) -> bool:
    """Whether torch's kernel computes this score and these weights."""
    return fast() and score.scale is not None and weights.fused


Seen = tuple[Tensor | None, int, int]
"""For one query: a mask of four axes, boolean for all heads or to be added, and the first and the end of the keys that it may reach."""


class Dense(NamedTuple):
    """The equation as it stands."""

    visible: Tensor | None
    bias: Tensor | None

    def one(self, keys: int) -> Seen | None:
        return None

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, score: Score, weights: Weights
    ) -> tuple[Tensor, Tensor]:
        if (times := q.shape[1] // k.shape[1]) > 1:
            k, v = (
                k.repeat_interleave(times, 1),
                v.repeat_interleave(times, 1),
            )  # heads of a group share keys and values
        scores = score(q, k)
        alpha = weights(scores if self.bias is None else scores + self.bias, self.visible)
        return torch.einsum("bhts,bhsk->bhtk", alpha, v), alpha


class Fused(NamedTuple):
    """torch's kernel, with one mask, boolean or to be added. `blind` marks queries that see nothing."""

    mask: Tensor | None
    causal: bool
    blind: Tensor | None

    @classmethod
    def of(cls, visible: Tensor | None, bias: Tensor | None, causal: bool) -> Fused:
        blind = None if visible is None else ~visible.any(-1, keepdim=True)
        return cls(added(visible, bias), causal, blind)

    def one(self, keys: int) -> Seen | None:
        plain = self.mask is None or (
            self.mask.dim() == 4 and (self.mask.dtype is torch.float32 or self.mask.shape[1] == 1)
        )
        return (self.mask, 0, keys) if plain else None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, score: Score, weights: Weights) -> tuple[Tensor, None]:
        y = kernel(score.query(q), k, v, self.mask, self.causal, score.scale)
        return y if self.blind is None else y.masked_fill(self.blind, 0), None


def added(visible: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One mask that says both. The kernel is fast with four axes and slow with three."""
    mask = bias if visible is None else visible if bias is None else bias.masked_fill(~visible, float("-inf"))
    return mask[None] if mask is not None and mask.dim() == 3 else mask


def kernel(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
    size = v.shape[-1]
    if (
        q.shape[-1] != size and q.shape[2] > 1
    ):  # only equal sizes have a fast kernel, and zeros change no product; one query needs none
        wide = max(q.shape[-1], size)
        q, k, v = (x if x.shape[-1] == wide else F.pad(x, (0, wide - x.shape[-1])) for x in (q, k, v))
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    y = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y if y.shape[-1] == size else y[..., :size]


class Band(NamedTuple):
    """Queries in chunks, each with the keys it may reach and a slice of one table: what stands at (row, left - distance) holds for all.

    So a causal chunk leaves later keys out and a window is linear in T, and no (H, T, S) is ever made.
    """

    table: Tensor | None  # (1, H or 1, chunk, left + right), -inf at what is not visible
    left: int
    chunk: int
    past: int
    reach: tuple[int | None, int | None]  # how many keys before and after a query; None is all

    def bounds(self, queries: int, keys: int) -> list[tuple[int, int, int, int]]:
        """For each chunk its queries [a, b) and its keys [low, high)."""
        before, after = self.reach
        found = []
        for a in range(0, queries, self.chunk):
            b = min(a + self.chunk, queries)
            low = 0 if before is None else max(0, self.past + a - before)
            found.append((a, b, low, keys if after is None else min(keys, self.past + b + after)))
        return found

    def one(self, keys: int) -> Seen | None:
        _, _, low, high = self.bounds(1, keys)[0]
        shift = self.left - self.past
        return None if self.table is None else self.table[:, :, :1, low + shift : high + shift], low, high

    def attend(self, q: Tensor, k: Tensor, v: Tensor, score: Score, weights: Weights) -> tuple[Tensor, None]:
        q, bounds = score.query(q), self.bounds(q.shape[2], k.shape[2])
        spans = [(low, high) for _, _, low, high in bounds]
        pieces = []
        for (a, b, low, high), keys, values in zip(bounds, cut(k, spans), cut(v, spans), strict=True):
            shift = self.left - self.past - a
            mask = None if self.table is None else self.table[:, :, : b - a, low + shift : high + shift]
            pieces.append(
                kernel(q[:, :, a:b], keys, values, mask, False, score.scale).transpose(1, 2)
            )  # (B, chunk, H, K')
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)).transpose(1, 2), None


View = Dense | Fused | Band


def cut(x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """x[:, :, low:high] for each span."""
    return (x[:, :, slice(*spans[0])],) if len(spans) == 1 else Cut.apply(x, spans)


class Cut(torch.autograd.Function):
    """Overlapping slices whose gradients are added up in one place, where torch would make one whole tensor for each slice."""

    @staticmethod
    def forward(ctx, x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
        ctx.shape, ctx.spans = x.shape, spans
        return tuple(x[:, :, low:high] for low, high in spans)

    @staticmethod
    def backward(ctx, *gradients: Tensor) -> tuple[Tensor, None]:
        batch, heads, length, size = ctx.shape
        whole = (
            gradients[0].new_zeros(batch, length, heads, size).transpose(1, 2)
        )  # as the kernel lays it out
        for (low, high), gradient in zip(ctx.spans, gradients, strict=True):
            whole[:, :, low:high] += gradient
        return whole, None
