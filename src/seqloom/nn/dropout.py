"""Dropout from random bytes: eight decisions per 64-bit draw, where torch draws once for each element."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.layer import require


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
