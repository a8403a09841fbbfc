"""Attention itself: score, weigh, average. Three views compute the same: `Dense` literally, `Fused` through torch's kernel, `Band` in pieces
where what a query sees depends on distance alone. Weights are made only in the first, so that nobody else pays for them."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

SingleQueryMask = tuple[Tensor | None, int, int]
"""For one query: a mask of four axes, boolean for all heads or added to the scores, and the range [first, end) of keys that it may reach."""


class ScaledScore(Protocol):
    """A score that torch's kernel computes: scale · project_query(q) · k."""

    scale: float | None

    def query(self, q: Tensor) -> Tensor: ...


class SDPAttention(NamedTuple):
    """torch's kernel, with one mask, boolean or to be added. `blind` marks queries that see nothing."""

    mask: Tensor | None
    causal: bool
    blind: Tensor | None

    @classmethod
    def of(cls, visible: Tensor | None, bias: Tensor | None, causal: bool) -> SDPAttention:
        blind = None if visible is None else ~visible.any(-1, keepdim=True)
        return cls(combine_masks(visible, bias), causal, blind)

    def one(self, keys: int) -> SingleQueryMask | None:
        plain = self.mask is None or (
            self.mask.dim() == 4 and (self.mask.dtype is torch.float32 or self.mask.shape[1] == 1)
        )
        return (self.mask, 0, keys) if plain else None

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, score: ScaledScore, weights: object
    ) -> tuple[Tensor, None]:
        y = sdpa(score.query(q), k, v, self.mask, self.causal, score.scale)
        return y if self.blind is None else y.masked_fill(self.blind, 0), None


def combine_masks(visible: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One mask that says both. The kernel is fast with four axes and slow with three."""
    mask = bias if visible is None else visible if bias is None else bias.masked_fill(~visible, float("-inf"))
    return mask[None] if mask is not None and mask.dim() == 3 else mask


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float) -> Tensor:
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


class BandedAttention(NamedTuple):
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

    def one(self, keys: int) -> SingleQueryMask | None:
        _, _, low, high = self.bounds(1, keys)[0]
        shift = self.left - self.past
        return None if self.table is None else self.table[:, :, :1, low + shift : high + shift], low, high

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, score: ScaledScore, weights: object
    ) -> tuple[Tensor, None]:
        q, bounds = score.query(q), self.bounds(q.shape[2], k.shape[2])
        spans = [(low, high) for _, _, low, high in bounds]
        pieces = []
        for (a, b, low, high), keys, values in zip(
            bounds, slice_keys(k, spans), slice_keys(v, spans), strict=True
        ):
            shift = self.left - self.past - a
            mask = None if self.table is None else self.table[:, :, : b - a, low + shift : high + shift]
            pieces.append(
                sdpa(q[:, :, a:b], keys, values, mask, False, score.scale).transpose(1, 2)
            )  # (B, chunk, H, K')
        return (pieces[0] if len(pieces) == 1 else torch.cat(pieces, 1)).transpose(1, 2), None


def slice_keys(x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """x[:, :, low:high] for each span."""
    return (x[:, :, slice(*spans[0])],) if len(spans) == 1 else SliceKeys.apply(x, spans)


class SliceKeys(torch.autograd.Function):
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
