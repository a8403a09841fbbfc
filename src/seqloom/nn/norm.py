"""Normalisation of each position's features. The lectures have no ε; here it avoids a division by 0 for constant
inputs."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled


class Norm(nn.Module):
    """Normalises the last axis: y = norm(x), the same in training and evaluation and independent of the batch."""


class LayerNorm(Norm):
    """y = γ ⊙ (x - μ) / √(σ² + ε) + β,   μ = 1/d Σ xᵢ,  σ² = 1/d Σ (xᵢ - μ)²   [G4]

    affine=False leaves γ and β out [D-17].
    """

    def __init__(self, dim: int, affine: bool = True, epsilon: float = 1e-5):
        super().__init__()
        self.dim, self.epsilon = dim, epsilon
        self.gain = nn.Parameter(torch.ones(dim)) if affine else None
        self.bias = nn.Parameter(torch.zeros(dim)) if affine else None

    def forward(self, x: Tensor) -> Tensor:
        if fused_enabled():
            return F.layer_norm(x, (self.dim,), self.gain, self.bias, self.epsilon)
        centred = x - x.mean(-1, keepdim=True)
        y = centred / (centred.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
        return y if self.gain is None else self.gain * y + self.bias


class RMSNorm(Norm):
    """y = γ ⊙ x / √(1/d Σ xᵢ² + ε)"""

    def __init__(self, dim: int, epsilon: float = 1e-5):
        super().__init__()
        self.dim, self.epsilon = dim, epsilon
        self.gain = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        if fused_enabled():
            return F.rms_norm(x, (self.dim,), self.gain, self.epsilon)
        return self.gain * x / (x.square().mean(-1, keepdim=True) + self.epsilon).sqrt()
