"""Weights: what attention makes of its scores. A new way is one class."""

from __future__ import annotations

from torch import Tensor, nn

from seqloom.nn import mask as masks


class Weights(nn.Module):
    """α = weights(s) over the visible keys:  (B, H, T, S) → (B, H, T, S), 0 where a key is not visible. The scores may be used up.
    `fused` where torch knows it."""

    fused = False

    def __init__(self) -> None:
        super().__init__()  # no sizes: configs read this signature

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        raise NotImplementedError


class Softmax(Weights):
    """αⱼ = exp(sⱼ) / Σ exp(s)   [F9, D-9]: a distribution; all zeros where nothing is visible"""

    fused = True

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        return masks.softmax(scores, visible)


class Raw(Weights):
    """αⱼ = sⱼ   [F5, D-9]: the scores themselves, which sum to anything"""

    def forward(self, scores: Tensor, visible: Tensor | None) -> Tensor:
        return scores if visible is None else scores.masked_fill(~visible, 0)
