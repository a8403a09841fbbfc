"""Rotary angles for texts longer than those of the first training: the slow turns become slower still."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqloom.nn.layer import need


class Stretch(nn.Module):
    """Changes the angles of a step: θ (K/2,) → θ' (K/2,)."""

    def forward(self, theta: Tensor) -> Tensor:
        raise NotImplementedError


class Interpolated(Stretch):
    """θ' = θ / factor: positions are squeezed into the trained length."""

    def __init__(self, factor: float):
        super().__init__()
        need(factor > 0, f"the factor of a stretch must be above 0, not {factor}")
        self.factor = factor

    def forward(self, theta: Tensor) -> Tensor:
        return theta / self.factor


class Banded(Stretch):
    """θ' = s θ + (1 - s) θ / factor,   s = (n - low) / (high - low) within 0 … 1,   n = length θ / 2π, the turns within `length` (Llama 3)

    Turns that come round at least `high` times in the trained length stay; those that come round at most `low` times are slowed.
    """

    def __init__(self, factor: float, low: float, high: float, length: int):
        super().__init__()
        need(
            factor > 0 and length > 0,
            f"a stretch needs a factor and a length above 0, not {factor} and {length}",
        )
        need(0 <= low < high, f"a banded stretch needs low below high, not {low} and {high}")
        self.factor, self.low, self.high, self.length = factor, low, high, length

    def forward(self, theta: Tensor) -> Tensor:
        share = ((self.length * theta / (2 * math.pi) - self.low) / (self.high - self.low)).clamp(0, 1)
        return torch.lerp(theta / self.factor, theta, share)
