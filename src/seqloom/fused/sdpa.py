"""Fast forms of `DenseAttention` in `nn/attention_core.py`: attention through torch's kernel, in one call or
in chunks.

`SDPAttention` passes one mask to torch's kernel; `BandedAttention` splits the queries into chunks where what
a query sees depends on distance alone. Neither computes the weights, which only the plain form returns.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

SingleQueryMask = tuple[Tensor | None, int, int]
"""For a single query: a mask of four axes, boolean for all heads or added to the scores, and the range
[first, end) of the keys it may see."""


class SDPAttention(NamedTuple):
    """torch's kernel with one mask, boolean or added to the scores. `empty_rows` marks queries that see no
    key; they give 0.
    """

    mask: Tensor | None
    causal: bool
    empty_rows: Tensor | None

    @classmethod
    def create(cls, visible: Tensor | None, bias: Tensor | None, causal: bool) -> SDPAttention:
        empty_rows = None if visible is None else ~visible.any(-1, keepdim=True)
        return cls(combine_masks(visible, bias), causal, empty_rows)

    def single_query(self, keys: int) -> SingleQueryMask | None:
        """The mask for one query over `keys` keys; None where the decode kernel cannot read it."""
        mask = self.mask
        if mask is None or (mask.dim() == 4 and (mask.dtype is torch.float32 or mask.shape[1] == 1)):
            return mask, 0, keys
        return None

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """y of the scores scale · q·k."""
        y = sdpa(q, k, v, self.mask, self.causal, scale)
        return y if self.empty_rows is None else y.masked_fill(self.empty_rows, 0)


def combine_masks(visible: Tensor | None, bias: Tensor | None) -> Tensor | None:
    """One mask for both. torch's kernel is fast with four axes and slow with three."""
    if visible is None:
        mask = bias
    elif bias is None:
        mask = visible
    else:
        mask = bias.masked_fill(~visible, float("-inf"))
    return mask[None] if mask is not None and mask.dim() == 3 else mask


def sdpa(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float | None) -> Tensor:
    """torch's scaled dot-product attention. Pads keys or values with zeros to equal widths, which its fast
    kernel needs.
    """
    value_dim = v.shape[-1]
    if q.shape[-1] != value_dim and q.shape[2] > 1:  # a single query does not use the fast kernel
        width = max(q.shape[-1], value_dim)
        q, k, v = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in (q, k, v))
    if mask is not None and mask.is_floating_point():
        mask = mask.to(q.dtype)
    y = F.scaled_dot_product_attention(
        q, k, v, mask, is_causal=causal, scale=scale, enable_gqa=q.shape[1] != k.shape[1]
    )
    return y if y.shape[-1] == value_dim else y[..., :value_dim]


class BandedAttention(NamedTuple):
    """Queries in chunks, each with the keys it may see and a slice of one table, whose entry depends on the
    distance alone.

    A causal chunk leaves later keys out, a window costs time linear in T, and no (H, T, S) tensor is made.
    The mask of query a + i of a chunk at key j is table[…, i, left - past - a + j].
    """

    table: Tensor | None  # (1, H or 1, chunk, left + right), -inf where a key is not visible
    left: int
    chunk: int
    past: int
    window: tuple[int | None, int | None]  # how many keys before and after a query are visible; None for all

    def chunks(self, queries: int, keys: int) -> list[tuple[int, int, int, int]]:
        """For each chunk its queries [a, b) and its keys [low, high)."""
        before, after = self.window
        result = []
        for a in range(0, queries, self.chunk):
            b = min(a + self.chunk, queries)
            low = 0 if before is None else max(0, self.past + a - before)
            high = keys if after is None else min(keys, self.past + b + after)
            result.append((a, b, low, high))
        return result

    def single_query(self, keys: int) -> SingleQueryMask | None:
        """The mask for one query over `keys` keys."""
        _, _, low, high = self.chunks(1, keys)[0]
        shift = self.left - self.past
        mask = None if self.table is None else self.table[:, :, :1, low + shift : high + shift]
        return mask, low, high

    def attend(self, q: Tensor, k: Tensor, v: Tensor, scale: float | None) -> Tensor:
        """y of the scores scale · q·k."""
        chunks = self.chunks(q.shape[2], k.shape[2])
        spans = [(low, high) for _, _, low, high in chunks]
        outputs = []
        for (a, b, low, high), keys, values in zip(
            chunks, slice_keys(k, spans), slice_keys(v, spans), strict=True
        ):
            shift = self.left - self.past - a
            mask = None if self.table is None else self.table[:, :, : b - a, low + shift : high + shift]
            y = sdpa(q[:, :, a:b], keys, values, mask, False, scale)
            outputs.append(y.transpose(1, 2))  # (B, chunk, H, K')
        y = outputs[0] if len(outputs) == 1 else torch.cat(outputs, 1)
        return y.transpose(1, 2)


def slice_keys(x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
    """x[:, :, low:high] for each span."""
    if len(spans) == 1:
        return (x[:, :, slice(*spans[0])],)
    return SliceKeys.apply(x, spans)


class SliceKeys(torch.autograd.Function):
    """Overlapping slices whose gradients are added into one tensor; torch would make a full-size tensor for
    each slice.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, spans: list[tuple[int, int]]) -> tuple[Tensor, ...]:
        ctx.shape = x.shape
        ctx.spans = spans
        return tuple(x[:, :, low:high] for low, high in spans)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        batch, heads, length, size = ctx.shape
        # the memory layout of torch's kernel: (B, S, H, K)
        total = gradients[0].new_zeros(batch, length, heads, size).transpose(1, 2)
        for (low, high), gradient in zip(ctx.spans, gradients, strict=True):
            total[:, :, low:high] += gradient
        return total, None
