"""Fast form of `Rotary.rotate` in `nn/position.py`: rotates pairs of features in as few passes over memory as
torch allows.

One product of complex numbers where the two features of a pair are adjacent, three fused passes where they
are in two halves. For float32 and float64, on any device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from seqloom.fused.dispatch import fused_enabled

RotaryTable = tuple[Tensor, ...]
"""Cosines (…, K) and sines (…, K/2) for pairs in halves; complex numbers (…, K/2) for adjacent pairs."""


def rotary_table(angle: Tensor, dtype: torch.dtype, halves: bool) -> RotaryTable:
    """The table that `rotary` reads, from angles (…, K/2)."""
    if halves:
        return angle.cos().repeat(1, 2).to(dtype), angle.sin().to(dtype)
    complex_dtype = torch.complex64 if dtype == torch.float32 else torch.complex128
    return (torch.polar(torch.ones_like(angle), angle).to(complex_dtype),)


def rotary(x: Tensor, rows: Callable[[], RotaryTable]) -> Tensor | None:
    """Each pair (a, b) becomes (a cos - b sin, a sin + b cos): x (B, T, H, K); `rows()` gives the rows (T, …)
    or (B, T, …) of the table.

    None where fast forms are off or x is not float32 or float64; `rows` is then not called.
    """
    if not fused_enabled() or x.dtype not in (torch.float32, torch.float64):
        return None
    table = tuple(row.unsqueeze(-2) for row in rows())  # broadcast over heads
    if len(table) == 2:
        return RotateHalves.apply(x, *table)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * table[0]).flatten(-2)


class RotateHalves(torch.autograd.Function):
    """Rotation of pairs in two halves; its gradient is the rotation by the opposite angle."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate_halves(x, cos, sin, 1)

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None, None]:
        cos, sin = ctx.saved_tensors
        return rotate_halves(grad_output, cos, sin, -1), None, None


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    """(a cos ∓ b sin, b cos ± a sin) for x = [a; b]; `sign` is 1 or -1."""
    y = x * cos
    a, b = x.chunk(2, -1)
    left, right = y.chunk(2, -1)
    left.addcmul_(b, sin, value=-sign)
    right.addcmul_(a, sin, value=sign)
    return y
