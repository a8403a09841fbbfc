"""A sequence as one vector: pool(x, mask), (B, T, D) → (B, D). 0 where a row has no token; padding may stand anywhere.

Attention that a decoder asks at each step is `Pooling` in attention.py.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.nn import mask as masks
from seqloom.nn.layer import Memory, need
from seqloom.nn.thought import thought


class Pool(nn.Module):
    """y = pool(x₁ … x_n), one vector of the inputs' size."""

    def __init__(self, size: int):
        super().__init__()
        need(size > 0, f"a pool reads vectors of at least one number, not {size}")
        self.dim = size

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError


class LastPool(Pool):
    """y = x_n, the last token   [T2, D-25]

    That is where a stack that reads left to right ends. Of one that reads both ways it takes [h→_n; h←_n], whose second half has read the last
    token alone: `EndsPool` takes both ends.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return thought(Memory(x, mask), "last")


class FirstPool(Pool):
    """y = x₁, the first token   [T2]

    Where a stack that reads right to left ends, and where BERT's [CLS] stands.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return thought(Memory(x, mask), "first")


class EndsPool(Pool):
    """y = [h→_n; h←₁]   [T2, D7]

    For x = [h→; h←]: each direction where it ends, so that each has read the whole.
    """

    def __init__(self, size: int):
        super().__init__(size)
        need(size % 2 == 0, f"two directions have equal halves: {size} is odd")

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        ahead, back = x.chunk(2, -1)
        return torch.cat([thought(Memory(ahead, mask), "last"), thought(Memory(back, mask), "first")], -1)


class MeanPool(Pool):
    """y = 1/n Σₜ xₜ   [T2, D-25]"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return thought(Memory(x if mask is None else x.masked_fill(~mask[..., None], 0), mask), "mean")


class MaxPool(Pool):
    """y[i] = maxₜ xₜ[i]"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if not x.shape[1]:
            return x.new_zeros(len(x), self.dim)
        if mask is None:
            return x.amax(1)
        return (
            x.masked_fill(~mask[..., None], float("-inf")).amax(1).masked_fill(~mask.any(1, keepdim=True), 0)
        )


class AttendPool(Pool):
    """y = Σₜ αₜ xₜ,   α = softmaxₜ uᵀ tanh(W xₜ + b)   [F9]

    Attention whose query u is learnt (Yang et al.); `hidden` rows in W, as many as x is wide unless said.
    """

    def __init__(self, size: int, hidden: int | None = None):
        super().__init__(size)
        self.project = nn.Linear(size, hidden or size)
        self.query = nn.Linear(hidden or size, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x if mask is None else x.masked_fill(~mask[..., None], 0)
        scores = self.query(self.project(x).tanh())[..., 0]  # (B, T)
        return torch.einsum("bt,btd->bd", masks.softmax(scores, mask), x)
