"""Masks, in which True is a real token or a visible key, and a softmax over visible keys that never gives
NaN.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def lengths(mask: Tensor) -> Tensor:
    """The number of real tokens in each row: (B, T) → (B,)."""
    return mask.sum(1)


def right_padded(mask: Tensor) -> bool:
    """Whether every row is real tokens followed by padding."""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


def none_if_full(mask: Tensor | None) -> Tensor | None:
    """The mask, or None if it hides nothing, so that callers can skip masking."""
    return None if mask is None or bool(mask.all()) else mask


def positions(mask: Tensor) -> Tensor:
    """The index of each real token among the real tokens of its row: (B, T) → (B, T). Padding repeats the
    previous index.
    """
    return (mask.cumsum(1) - 1).clamp(min=0)


def causal(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Query i of the last `queries` sees key j when j ≤ i  [F13]: (T, S)."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def concat_masks(
    past: Tensor | None, past_length: int, mask: Tensor | None, batch: int, length: int, device: torch.device
) -> Tensor | None:
    """The mask of past and present positions together; None if all are real."""
    if past is None and mask is None:
        return None
    if past is None:
        past = torch.ones(batch, past_length, dtype=torch.bool, device=device)
    if mask is None:
        mask = torch.ones(batch, length, dtype=torch.bool, device=device)
    return torch.cat([past, mask], 1) if past_length else mask


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """α = exp(s) / Σ exp(s) over the visible keys; all zeros if none is visible. Overwrites `scores`."""
    return scores.softmax(-1) if visible is None else MaskedSoftmax.apply(scores, visible)


class MaskedSoftmax(torch.autograd.Function):
    """The softmax over visible keys. A hidden key has weight 0, so the softmax's gradient for it is 0 as
    well, without a second mask.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, visible: Tensor) -> Tensor:
        weights = scores.masked_fill_(~visible, float("-inf")).softmax(-1)
        empty_rows = ~visible.any(-1, keepdim=True)
        if not empty_rows.is_meta and empty_rows.any():
            weights.masked_fill_(empty_rows, 0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return torch._softmax_backward_data(grad_output, weights, -1, weights.dtype), None


def left_align(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """x and its mask with each row's real tokens first, and the order that restores the outputs, None if
    nothing moved.
    """
    if mask is None or right_padded(mask):
        return x, mask, None
    order = real_first_order(x, mask, False)
    return gather_steps(x, order), mask.gather(1, order), order.argsort(1)


def gather_steps(x: Tensor, order: Tensor | None) -> Tensor:
    """The steps of x (B, S, D) at the indices `order` (B, T): (B, T, D)."""
    return x if order is None else x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def real_first_order(x: Tensor, mask: Tensor | None, backward: bool) -> Tensor:
    """The order in which a direction reads the positions: real tokens first, padding last: (B, T)."""
    batch, length, _ = x.shape
    position = torch.arange(length, device=x.device).expand(batch, length)
    key = length - 1 - position if backward else position
    if mask is not None:
        key = torch.where(mask, key, length + position)
    return key.argsort(1)
