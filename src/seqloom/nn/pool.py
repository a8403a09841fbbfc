"""Pools: a sequence as one vector, pool(x, mask), (B, T, D) → (B, D). A row without tokens gives 0; padding may be
anywhere.

The attention of a recurrent decoder is `GlobalAttention` in rnn_decoder.py.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from seqloom.nn.layer import HasPoints, Memory, Point, Points, masked_softmax, record, require

InitFrom = Literal["last", "first", "mean"]


class Pool(HasPoints):
    """y = pool(x₁ … x_n), one vector of the same size as the inputs."""

    def __init__(self, size: int):
        super().__init__()
        require(size > 0, f"a pool needs vectors of at least one dimension, not {size}")
        self.dim = size

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        raise NotImplementedError


class LastPool(Pool):
    """y = x_n, the last token   [T2, D-25]

    For a stack that reads left to right, which has read the full sequence there. A stack that reads in both
    directions gives [h→_n; h←_n], whose second half has read the last token only: use `EndsPool` for it.
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return summarize(Memory(x, mask), "last")


class FirstPool(Pool):
    """y = x₁, the first token   [T2]

    The last step of a stack that reads right to left, and the position of BERT's [CLS].
    """

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return summarize(Memory(x, mask), "first")


class EndsPool(Pool):
    """y = [h→_n; h←₁]   [T2, D7]

    For x = [h→; h←]: each direction at its last step, where it has read the full sequence.
    """

    def __init__(self, size: int):
        super().__init__(size)
        require(
            size % 2 == 0,
            f"EndsPool splits its input into two equal halves, and {size} is odd: use an even size",
        )

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        forward, backward = x.chunk(2, -1)
        last = summarize(Memory(forward, mask), "last")
        first = summarize(Memory(backward, mask), "first")
        return torch.cat([last, first], -1)


class MeanPool(Pool):
    """y = 1/n Σₜ xₜ   [T2, D-25]"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return summarize(Memory(x if mask is None else x.masked_fill(~mask[..., None], 0), mask), "mean")


class SumPool(Pool):
    """y = Σₜ xₜ: for what adds up over the tokens, such as a property of a molecule over its atoms   [G8]"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        return (x if mask is None else x.masked_fill(~mask[..., None], 0)).sum(1)


class MaxPool(Pool):
    """y[i] = maxₜ xₜ[i]"""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if not x.shape[1]:
            return x.new_zeros(len(x), self.dim)
        if mask is None:
            return x.amax(1)
        largest = x.masked_fill(~mask[..., None], float("-inf")).amax(1)
        return largest.masked_fill(~mask.any(1, keepdim=True), 0)


class AttentionPool(Pool):
    """y = Σₜ αₜ xₜ,   α = softmaxₜ uᵀ tanh(W xₜ + b)   [F9]

    Attention with a learned query u (Yang et al.); W has `hidden` rows, by default as many as x is wide.
    """

    points: ClassVar[Points] = {"weights": Point("α", "BT")}

    def __init__(self, size: int, hidden: int | None = None):
        super().__init__(size)
        self.project = nn.Linear(size, hidden or size)
        self.query = nn.Linear(hidden or size, 1, bias=False)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        x = x if mask is None else x.masked_fill(~mask[..., None], 0)
        scores = self.query(self.project(x).tanh())[..., 0]  # (B, T)
        weights = record(self, "weights", masked_softmax(scores, mask))
        return torch.einsum("bt,btd->bd", weights, x)


def summarize(memory: Memory, read: InitFrom) -> Tensor:
    """The memory as one vector: at the last real token, where an encoder that reads left to right ends; at the first,
    where one that reads right to left ends; or the mean. 0 for a row without tokens: (B, S, M) → (B, M)."""
    values, mask = memory
    batch, length, size = values.shape
    mask = torch.ones(batch, length, dtype=torch.bool, device=values.device) if mask is None else mask
    if read == "mean":
        real = mask.to(values.dtype)
        return torch.einsum("bsm,bs->bm", values, real) / real.sum(1, keepdim=True).clamp(min=1)
    if not length:
        return values.new_zeros(batch, size)
    positions = torch.arange(length, device=values.device)
    if read == "last":
        index = torch.where(mask, positions, -1).amax(1)  # (B,)
    else:
        index = torch.where(mask, positions, length - 1).amin(1)
    vector = values.gather(1, index.clamp(min=0)[:, None, None].expand(-1, 1, size))[:, 0]
    return vector.masked_fill(~mask.any(1, keepdim=True), 0)
