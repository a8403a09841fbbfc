"""Feed-forward parts: the same small network at every position."""

from __future__ import annotations

from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.layer import need

FUNCTIONS = {"relu": F.relu, "gelu": F.gelu, "sigmoid": torch.sigmoid, "tanh": torch.tanh}


class Forward(nn.Module):
    """Maps each position's features alone: (B, T, D) → (B, T, D). `mask` (B, T) is for those that count tokens."""

    last: nn.Linear  # the product that feeds the residual path

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError


class FeedForward(Forward):
    """y = W₂ f(W₁ x + b₁) + b₂,   f = GELU, ReLU, σ or tanh   [G5, D-19]. S2's ReLU(W x - B) is b₁ = -B; S1 has no bias."""

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        activation: Literal["relu", "gelu", "sigmoid", "tanh"] = "gelu",
        bias: bool = True,
    ):
        super().__init__()
        need(activation in FUNCTIONS, f"activation must be relu, gelu, sigmoid or tanh, not {activation!r}")
        dim = dim or 4 * size
        self.first = nn.Linear(size, dim, bias)
        self.last = nn.Linear(dim, size, bias)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.last(FUNCTIONS[self.activation](self.first(x)))


class SwiGLU(Forward):
    """y = W₂ (swish(W₁ x) ⊙ W₃ x),   swish(a) = a σ(a)"""

    def __init__(self, size: int, dim: int | None = None, bias: bool = False):
        super().__init__()
        dim = dim or -(-8 * size // 3)  # two thirds of 4 D: as many parameters as the plain form
        self.first = nn.Linear(size, 2 * dim, bias)
        self.last = nn.Linear(dim, size, bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        gate, value = self.first(x).chunk(2, dim=-1)  # each (B, T, dim)
        return self.last(F.silu(gate) * value)
