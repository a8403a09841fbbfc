"""Turning pairs of numbers by angles, in as few passes over memory as torch allows: one product of complex numbers where the pairs stand side
by side, three fused passes where they stand in two halves."""

from __future__ import annotations

import torch
from torch import Tensor


def rotary_table(angle: Tensor, dtype: torch.dtype, halves: bool) -> tuple[Tensor, ...]:
    """What `turn` reads, from angles (…, K/2)."""
    if halves:
        return angle.cos().repeat(1, 2).to(dtype), angle.sin().to(dtype)
    return (
        torch.polar(torch.ones_like(angle), angle).to(
            torch.complex64 if dtype == torch.float32 else torch.complex128
        ),
    )


def apply_rotary(x: Tensor, rows: tuple[Tensor, ...]) -> Tensor:
    """Each pair (a, b) becomes (a cos - b sin, a sin + b cos): x (B, T, H, K), rows (T, K/2) or (B, T, K/2) of `table`."""
    rows = tuple(row.unsqueeze(-2) for row in rows)  # over heads
    if len(rows) == 2:
        return RotateHalves.apply(x, *rows)
    return torch.view_as_real(torch.view_as_complex(x.unflatten(-1, (-1, 2))) * rows[0]).flatten(-2)


class RotateHalves(torch.autograd.Function):
    """Pairs in two halves. The way back turns by the opposite angle."""

    @staticmethod
    def forward(ctx, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        ctx.save_for_backward(cos, sin)
        return rotate_halves(x, cos, sin, 1)

    @staticmethod
    def backward(ctx, gradient: Tensor) -> tuple[Tensor, None, None]:
        return rotate_halves(gradient, *ctx.saved_tensors, -1), None, None


def rotate_halves(x: Tensor, cos: Tensor, sin: Tensor, sign: int) -> Tensor:
    y = x * cos
    (a, b), (left, right) = x.chunk(2, -1), y.chunk(2, -1)
    left.addcmul_(b, sin, value=-sign)
    right.addcmul_(a, sin, value=sign)
    return y
