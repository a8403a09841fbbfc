"""The elementary parts: the linear map, dropout, normalisation and feed-forward networks.

Dropout draws random bytes, eight decisions for each 64-bit number, where torch draws once for each element.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.fused.linear import linear
from seqloom.nn.layer import HasPoints, Point, Points, record, require


class Linear(nn.Linear):
    """y = W x + b"""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Dropout(nn.Module):
    """y = x ⊙ m / (1 - p),  m ~ Bernoulli(1 - p), while training; y = x otherwise.

    On a CPU p is rounded to a multiple of 1/256, and the scale with it, so the mean stays exact.
    """

    def __init__(self, rate: float = 0.0):
        super().__init__()
        require(0 <= rate < 1, f"dropout must be at least 0 and below 1, not {rate}")
        self.rate = rate
        self.dropped = min(round(rate * 256), 255)

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.rate == 0:
            return x
        if x.device.type != "cpu":
            return F.dropout(x, self.rate)
        if self.dropped == 0:
            return x
        draws = torch.empty((x.numel() + 7) // 8, dtype=torch.int64).random_(-(2**63), None)
        keep = draws.view(torch.uint8)[: x.numel()].view(x.shape).to(x.dtype).ge_(self.dropped)
        return x * keep.mul_(256 / (256 - self.dropped))

    def extra_repr(self) -> str:
        return f"{self.rate}"


class Norm(HasPoints):
    """Normalises the last axis: y = norm(x), the same in training and evaluation and independent of the
    batch.
    """

    points: ClassVar[Points] = {"": Point("y", "BTD")}


class LayerNorm(Norm):
    """y = γ ⊙ (x - μ) / √(σ² + ε) + β,   μ = 1/d Σ xᵢ,  σ² = 1/d Σ (xᵢ - μ)²   [G4]

    affine=False leaves γ and β out [D-17].
    """

    def __init__(self, dim: int, affine: bool = True, epsilon: float = 1e-5):
        super().__init__()
        self.dim = dim
        self.epsilon = epsilon
        self.gain = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        if fused_enabled():
            return F.layer_norm(x, (self.dim,), self.gain, self.bias, self.epsilon)
        centred = x - x.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        return record(self, "", y if self.gain is None or self.bias is None else self.gain * y + self.bias)


class RMSNorm(Norm):
    """y = γ ⊙ x / √(1/d Σ xᵢ² + ε)"""

    def __init__(self, dim: int, epsilon: float = 1e-5):
        super().__init__()
        self.dim = dim
        self.epsilon = epsilon
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        if fused_enabled():
            return F.rms_norm(x, (self.dim,), self.gain, self.epsilon)
        return record(self, "", self.gain * x / (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt())


Activation = Literal["relu", "gelu", "gelu_tanh", "swish", "sigmoid", "tanh"]
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "swish": F.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
}


class FFN(HasPoints):
    """Maps each position by itself: (B, T, D) → (B, T, D). `mask` (B, T) is for subclasses that count
    tokens.
    """

    points: ClassVar[Points] = {"hidden": Point("f(W₁ x + b₁)", "BTF"), "": Point("y", "BTD")}
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
        hidden = record(self, "hidden", ACTIVATIONS[self.activation](self.in_proj(x)))
        return record(self, "", self.out_proj(hidden))


class SwiGLU(FFN):
    """y = W₂ (swish(W₁ x) ⊙ W₃ x),   swish(a) = a σ(a)"""

    def __init__(self, size: int, dim: int | None = None, bias: bool = False):
        super().__init__()
        dim = dim or -(-8 * size // 3)  # two thirds of 4 D: as many parameters as the plain form
        self.in_proj = Linear(size, 2 * dim, bias)
        self.out_proj = Linear(dim, size, bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        gate, value = self.in_proj(x).chunk(2, dim=-1)  # each (B, T, dim)
        hidden = record(self, "hidden", F.silu(gate) * value)
        return record(self, "", self.out_proj(hidden))
