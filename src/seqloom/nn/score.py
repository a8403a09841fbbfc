"""Scores: how well a query fits a key. A new score is one class."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


class Score(nn.Module):
    """s = score(q, k):  (B, H, T, K), (B, H, S, K) → (B, H, T, S). `scale` is set where s = scale · query(q)·k, which fused attention knows."""

    scale: float | None = None

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def query(self, q: Tensor) -> Tensor:
        return q


class Dot(Score):
    """s(q, k) = q · k   [F8]"""

    scale = 1.0

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhtk,bhsk->bhts", q, k)


class ScaledDot(Score):
    """s(q, k) = q · k / √K   [F8, D-10]: with K independent terms of variance 1 the sum keeps variance 1, and the softmax its slope."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.scale = 1 / math.sqrt(dim)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhtk,bhsk->bhts", q * self.scale, k)  # the smaller of the two to scale


class Bilinear(Score):
    """s(q, k) = qᵀ W k   [F8]: the general score of Luong et al., one W for all heads"""

    scale = 1.0

    def __init__(self, dim: int):
        super().__init__(dim)
        self.weight = nn.Parameter(torch.empty(dim, dim).uniform_(-1, 1) / math.sqrt(dim))

    def query(self, q: Tensor) -> Tensor:
        return q @ self.weight

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhti,ij,bhsj->bhts", q, self.weight, k)


class Additive(Score):
    """s(q, k) = uᵀ tanh(q + k)   [F8]. The W of uᵀ tanh(W [q; k]) is the projection that makes q and k."""

    def __init__(self, dim: int):
        super().__init__(dim)
        self.vector = nn.Parameter(torch.empty(dim).uniform_(-1, 1) / math.sqrt(dim))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh() @ self.vector  # (B, H, T, S, K) → (B, H, T, S)
