"""Attention itself: score, weigh, average; and which keys each query may see.

Three plans compute the same: `DenseAttention` literally, `SDPAttention` with torch's kernel, `BandedAttention` in chunks where visibility
depends on distance alone. Only the first produces attention weights. Causality, window, padding and position bias are combined into a plan
once for all layers of a stack (`VisibilityRule.build`).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fused.dispatch import fused_enabled
from seqloom.fused.sdpa import BandedAttention, SDPAttention, SingleQueryMask
from seqloom.nn import mask as masks
from seqloom.nn.layer import record_weights
from seqloom.nn.position import Position, Positions
from seqloom.nn.score import AttentionWeights, Score, Softmax
from seqloom.nn.state import Memo, next_power_of_two

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

CHUNK = 256  # queries per chunk: the block size of torch's kernel, below which chunks save nothing


class Visibility(NamedTuple):
    """The mask of real keys (B, S), None if all are; the queries' positions; how attention is computed."""

    key_mask: Tensor | None
    positions: Positions
    plan: DenseAttention | SDPAttention | BandedAttention


class VisibilityRule(NamedTuple):
    """Query t sees key j for j ≤ t if `causal`, and |t - j| < `window` if there is one [F13]; the position adds its bias."""

    position: Position
    causal: bool
    window: int | None
    memo: Memo

    def build(
        self,
        x: Tensor,
        past_length: int,
        past_mask: Tensor | None,
        mask: Tensor | None,
        visible: Tensor | None,
        fused: bool,
    ) -> Visibility:
        """For x (B, T, D) after `past_length` positions with the mask `past_mask`; `visible` (…, T, S) hides more."""
        batch, length, _ = x.shape
        total = past_length + length
        key_mask = masks.concat_masks(
            past_mask, past_length, masks.none_if_full(mask), batch, length, x.device
        )  # (B, S) or None
        right_padded = key_mask is not None and masks.right_padded(key_mask)
        context = self.position.context
        same_positions = key_mask is None or (right_padded and (context is None or total <= context))
        positions: Positions = (
            slice(past_length, total) if same_positions else masks.positions(key_mask)[:, past_length:]
        )
        needs_causal = self.causal and length > 1
        if fused and visible is None and length and (key_mask is None or (right_padded and self.causal)):
            return Visibility(
                key_mask, positions, self.shift_invariant_plan(x, past_length, total, needs_causal)
            )
        if key_mask is not None:
            visible = (
                key_mask[:, None, None] if visible is None else visible & key_mask[:, None, None]
            )  # (B, 1, 1, S)
        if needs_causal:
            later = masks.causal(length, total, x.device)
            visible = later if visible is None else visible & later
        queries = torch.arange(past_length, total, device=x.device) if same_positions else positions
        keys = torch.arange(total, device=x.device) if same_positions else masks.positions(key_mask)
        if self.window is not None:
            in_window = self.in_window(queries, keys)
            visible = in_window if visible is None else visible & in_window
        bias = self.position.bias(queries, keys)
        bias = None if bias is None else bias.to(x.dtype)
        return Visibility(
            key_mask,
            positions,
            SDPAttention.create(visible, bias, False) if fused else DenseAttention(visible, bias),
        )

    def in_window(self, queries: Tensor, keys: Tensor) -> Tensor:
        """(T, S) or (B, 1, T, S)"""
        in_window = (queries[..., :, None] - keys[..., None, :]).abs() < self.window
        return in_window if in_window.dim() == 2 else in_window[:, None]

    def shift_invariant_plan(
        self, x: Tensor, past_length: int, total: int, needs_causal: bool
    ) -> SDPAttention | BandedAttention:
        """The plan without padding, when visibility and bias depend on t - j alone."""
        length = total - past_length
        biased = type(self.position).bias is not Position.bias
        if not biased and self.window is None and (not needs_causal or not past_length):
            return SDPAttention(None, needs_causal, None)
        in_window = None if self.window is None else self.window - 1
        chunk = 1 if length == 1 else CHUNK
        reach = in_window, 0 if self.causal else in_window
        left = next_power_of_two(past_length + length) if in_window is None else in_window
        right = (
            chunk if self.causal else next_power_of_two(length) if in_window is None else chunk + in_window
        )
        if length == 1 and self.causal and not biased:
            return BandedAttention(None, left, chunk, past_length, reach)
        key = (chunk, left, right, x.dtype, x.device)
        return BandedAttention(self.memo(key, lambda: self.bias_table(*key)), left, chunk, past_length, reach)

    def bias_table(
        self, chunk: int, left: int, right: int, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        """The bias of the queries left … left + chunk over the keys 0 … left + right, -inf at hidden keys:
        (1, H or 1, chunk, left + right)."""
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
