"""What the queries of one call may see of the keys: causality, window, padding and the positions' share of the scores, worked out once for
all layers of a stack. Left out: a cache that forgets what a window has passed."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fused.sdpa import BandedAttention, SDPAttention
from seqloom.nn import mask as masks
from seqloom.nn.attention_core import DenseAttention
from seqloom.nn.memo import Memo, next_power_of_two
from seqloom.nn.position import Position, Positions

CHUNK = 256  # queries: the kernel's own step, below which nothing is saved


class Visibility(NamedTuple):
    """Which keys are real (B, S), None where all are; the queries' positions; how attention is computed."""

    key_mask: Tensor | None
    positions: Positions
    plan: DenseAttention | SDPAttention | BandedAttention


class VisibilityRule(NamedTuple):
    """Query t sees key j for j ≤ t where `causal`, and |t - j| < `window` where there is one [F13]; the position adds its bias."""

    position: Position
    causal: bool
    window: int | None
    memo: Memo

    def build(
        self,
        x: Tensor,
        past: int,
        before: Tensor | None,
        mask: Tensor | None,
        visible: Tensor | None,
        fused: bool,
    ) -> Visibility:
        """For x (B, T, D) after `past` positions with the mask `before`; `visible` (…, T, S) hides more."""
        batch, length, _ = x.shape
        total = past + length
        key_mask = masks.concat_masks(
            before, past, masks.none_if_full(mask), batch, length, x.device
        )  # (B, S) or None
        tail = key_mask is not None and masks.right_padded(key_mask)  # padding stands after every real query
        context = self.position.context
        level = key_mask is None or (tail and (context is None or total <= context))
        positions: Positions = slice(past, total) if level else masks.positions(key_mask)[:, past:]
        order = self.causal and length > 1
        if fused and visible is None and length and (key_mask is None or (tail and self.causal)):
            return Visibility(key_mask, positions, self.shift_invariant_plan(x, past, total, order))
        if key_mask is not None:
            visible = (
                key_mask[:, None, None] if visible is None else visible & key_mask[:, None, None]
            )  # (B, 1, 1, S)
        if order:
            later = masks.causal(length, total, x.device)
            visible = later if visible is None else visible & later
        queries = torch.arange(past, total, device=x.device) if level else positions
        keys = torch.arange(total, device=x.device) if level else masks.positions(key_mask)
        if self.window is not None:
            near = self.in_window(queries, keys)
            visible = near if visible is None else visible & near
        bias = self.position.bias(queries, keys)
        bias = None if bias is None else bias.to(x.dtype)
        return Visibility(
            key_mask,
            positions,
            SDPAttention.create(visible, bias, False) if fused else DenseAttention(visible, bias),
        )

    def in_window(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(T, S) or (B, 1, T, S)"""
        near = (queries[..., :, None] - keys[..., None, :]).abs() < self.window
        return near if near.dim() == 2 else near[:, None]

    def shift_invariant_plan(
        self, x: Tensor, past: int, total: int, order: bool
    ) -> SDPAttention | BandedAttention:
        """Where padding does not matter, all depends on t - j alone."""
        length = total - past
        biased = type(self.position).bias is not Position.bias
        if not biased and self.window is None and (not order or not past):
            return SDPAttention(None, order, None)
        near = None if self.window is None else self.window - 1
        chunk = 1 if length == 1 else CHUNK
        reach = near, 0 if self.causal else near
        left = next_power_of_two(past + length) if near is None else near
        right = chunk if self.causal else next_power_of_two(length) if near is None else chunk + near
        if length == 1 and self.causal and not biased:
            return BandedAttention(None, left, chunk, past, reach)
        key = (chunk, left, right, x.dtype, x.device)
        return BandedAttention(self.memo(key, lambda: self.bias_table(*key)), left, chunk, past, reach)

    def bias_table(
        self, chunk: int, left: int, right: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The bias of the queries left … left + chunk over the keys 0 … left + right, -inf at what they do not see: (1, H or 1, chunk, …)."""
        queries, keys = (
            torch.arange(left, left + chunk, device=device),
            torch.arange(left + right, device=device),
        )
        bias = self.position.bias(queries, keys)
        bias = torch.zeros(1, 1, chunk, left + right, device=device) if bias is None else bias
        if self.causal:
            bias = bias.masked_fill(keys > queries[:, None], float("-inf"))
        if self.window is not None:
            bias = bias.masked_fill(~self.in_window(queries, keys), float("-inf"))
        return bias.to(dtype)
