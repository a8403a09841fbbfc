"""Attention scores and the weights made from them. A new score is one class."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqloom.nn import mask as masks


class Score(nn.Module):
    """s = score(q, k):  (B, H, T, K), (B, H, S, K) → (B, H, T, S).

    `scale` is set if s = scale · project_query(q)·k, which fused attention can compute.
    """

    scale: float | None = None

    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim

    def project_query(self, q: Tensor) -> Tensor:
        """The query that is multiplied by k."""
        return q


class Dot(Score):
    """s(q, k) = q · k   [F8]"""

    scale = 1.0

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhtk,bhsk->bhts", q, k)


class ScaledDot(Score):
    """s(q, k) = q · k / √K   [F8, D-10]

    With K independent terms of variance 1 the score keeps variance 1, and the softmax its slope.
    """

    scale: float

    def __init__(self, dim: int):
        super().__init__(dim)
        self.scale = 1 / math.sqrt(dim)

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.einsum("bhtk,bhsk->bhts", q * self.scale, k)  # scales q, the smaller of the two


class Bilinear(Score):
    """s(q, k) = qᵀ W k   [F8]: the general score of Luong et al., with one W for all heads"""

    scale = 1.0

    def __init__(self, dim: int):
        super().__init__(dim)
        self.weight = nn.Parameter(torch.empty(dim, dim).uniform_(-1, 1) / math.sqrt(dim))

    def project_query(self, q: Tensor) -> Tensor:
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


class AttentionWeights(nn.Module):
    """α = weights(s) over the visible keys:  (B, H, T, S) → (B, H, T, S), 0 where a key is not visible.

    May overwrite `scores`. `in_sdpa` says whether torch's scaled_dot_product_attention computes these
    weights.
    """

    in_sdpa = False

    def __init__(self) -> None:
        super().__init__()  # a signature without sizes, which configs read

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        raise NotImplementedError


class Softmax(AttentionWeights):
    """αⱼ = exp(sⱼ) / Σ exp(s)   [F9, D-9]: a distribution; all zeros if nothing is visible"""

    in_sdpa = True

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        return masks.masked_softmax(scores, visible)


class Raw(AttentionWeights):
    """αⱼ = sⱼ   [F5, D-9]: the scores themselves, which do not sum to 1"""

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        return scores if visible is None else scores.masked_fill(~visible, 0)
