"""All layers of a stack as one: a learnt mixture, as ELMo's readers take it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from seqloom.nn.layer import need


class LayerMix(nn.Module):
    """y = γ Σₗ softmax(a)ₗ hₗ   [I10]

    (Peters et al.) At first the plain mean. `Layer.levels` gives the h of a stack's layers, each (B, T, D).
    """

    def __init__(self, layers: int):
        super().__init__()
        need(layers > 0, f"a mixture needs at least one layer, not {layers}")
        self.shares, self.gain = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(()))

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        need(
            len(levels) == len(self.shares),
            f"this mixture is of {len(self.shares)} layers, not {len(levels)}",
        )
        widths = [level.shape[-1] for level in levels]
        need(len(set(widths)) == 1, f"layers of widths {widths} cannot be mixed: make them equal")
        shares = self.gain * self.shares.softmax(0)
        return sum(share * level for share, level in zip(shares.unbind(), levels, strict=True))
