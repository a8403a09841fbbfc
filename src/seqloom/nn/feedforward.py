"""Feed-forward parts: the same small network at every position."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.basic import Linear
from seqloom.nn.layer import require

Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "sigmoid", "tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


class FFN(nn.Module):
    """Maps each position by itself: (B, T, D) → (B, T, D). `mask` (B, T) is for subclasses that count
    tokens.
    """

    out_proj: nn.Linear  # its output feeds the residual path

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError


class FeedForward(FFN):
    """y = W₂ f(W₁ x + b₁) + b₂,   f = GELU, ReLU, swish, σ or tanh   [G5, D-19]

    S2's ReLU(W x - B) is b₁ = -B; S1 has no bias.

    GELU(a) = a Φ(a); gelu_tanh is GPT-2's a/2 (1 + tanh(√(2/π) (a + 0.044715 a³))); swish(a) = a σ(a).
    """

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        activation: Activation = "gelu",
        bias: bool = True,
    ):
        super().__init__()
        require(
            activation in ACTIVATIONS,
            f"activation must be one of {', '.join(ACTIVATIONS)}, not {activation!r}",
        )
        dim = dim or 4 * size
        self.in_proj = Linear(size, dim, bias)
        self.out_proj = Linear(dim, size, bias)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return self.out_proj(ACTIVATIONS[self.activation](self.in_proj(x)))


class SwiGLU(FFN):
    """y = W₂ (swish(W₁ x) ⊙ W₃ x),   swish(a) = a σ(a)"""

    def __init__(self, size: int, dim: int | None = None, bias: bool = False):
        super().__init__()
        dim = dim or -(-8 * size // 3)  # two thirds of 4 D: as many parameters as the plain form
        self.in_proj = Linear(size, 2 * dim, bias)
        self.out_proj = Linear(dim, size, bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        gate, value = self.in_proj(x).chunk(2, dim=-1)  # each (B, T, dim)
        return self.out_proj(F.silu(gate) * value)
