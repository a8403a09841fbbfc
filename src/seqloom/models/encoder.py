"""What models with labels share: an encoder that reads a text of any length, whose words are now and then unknown while it learns."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.dropout import Dropout
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer, require
from seqloom.nn.state import State


class Encoder(nn.Module):
    """hₜ = stack(embed(w₁ … w_T))ₜ   [I1]. A stack that is not causal sees the whole text. `pooler` is one vector of it all, where asked for."""

    continues = False

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        pooler: Factory[Pooler] | None = None,
    ):
        super().__init__()
        self.embedding = embedding(vocabulary, dim)
        self.stack = stack(dim)
        self.dim, self.context, self.causal = self.stack.dim, self.stack.context, self.stack.causal
        self.pooler = None if pooler is None else pooler(self.stack.dim)
        self.dropout = Dropout(dropout)

    def start(self, batch: int) -> State:
        return self.stack.start(batch)

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → (B, T, D) and the state, which means nothing where the stack is not causal."""
        return self.stack(self.dropout(self.embedding(ids, mask)), state, mask)

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return self.features(ids, state, mask)


class Pooler(nn.Module):
    """p = tanh(W h₁ + b), h₁ the first token's features: BERT's vector of the whole text."""

    def __init__(self, size: int):
        super().__init__()
        self.dense = nn.Linear(size, size)

    def forward(self, h: Tensor) -> Tensor:
        return self.dense(h[:, 0]).tanh()  # (B, T, D) → (B, D)


class WindowedEncoder(Encoder):
    """hₜ = stack(embed(w₁ … w_T))ₜ; while training each id is unknown with probability `unknown`, so that <unk> means something.

    A text longer than the stack's context is read in windows that overlap by half; each position is taken from the window in whose middle it is.
    The windows are those of the text alone, whatever stands beside it in the batch.
    """

    continues = None  # it writes no text
    unk: int | None = 1  # the tokenizer's unknown word, told before training; None where it has none

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        unknown: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout)
        require(
            0 <= unknown < 1,
            f"unknown is the share of words that are hidden: at least 0 and below 1, not {unknown}",
        )
        self.unknown = unknown

    def embed(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if self.training and self.unknown and self.unk is not None:
            ids = torch.where(torch.rand(ids.shape, device=ids.device) < self.unknown, self.unk, ids)
        return self.embedding(ids, mask)

    def encode(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) → (B, T, D'), windows joined."""
        x = self.dropout(x)
        (batch, length), width = x.shape[:2], self.context
        if width is None or length <= width:
            return self.dropout(self.stack(x, None, mask)[0])
        mask = x.new_ones(batch, length, dtype=torch.bool) if mask is None else mask
        rows, begins = overlapping_windows(mask.sum(1), width)
        at = torch.arange(length, device=x.device)
        inside = (
            rows[:, None] * length + begins[:, None] + at[:width]
        )  # (N, width): places in all rows, one after another
        h = torch.cat(
            [
                self.stack(F.embedding(some, x.flatten(0, 1)), None, mask.flatten()[some])[0]
                for some in inside.split(batch)
            ]
        )
        until = torch.full_like(begins, length)
        until[:-1] = torch.where(
            rows[1:] == rows[:-1], (begins[1:] + begins[:-1] + width) // 2, length
        )  # the middle of what both see
        each = (length + 1) * torch.arange(batch, device=x.device)
        own = torch.searchsorted(
            until + each[rows], at + each[:, None], right=True
        )  # (B, T): the window of each position
        return self.dropout(
            F.embedding(own * width + (at - begins[own]).clamp(max=width - 1), h.flatten(0, 1))
        )


def overlapping_windows(lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The row and the beginning of each window: every half of the width, the last flush with the end of its own row."""
    step, extra = max(width // 2, 1), (lengths - width).clamp(min=0)
    counts = 1 + -(-extra // step)
    rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(counts)
    number = torch.arange(len(rows), device=lengths.device) - (counts.cumsum(0) - counts)[rows]
    return rows, torch.minimum(number * step, extra[rows])


def scoring_layer(size: int, labels: int) -> nn.Linear:
    """A score for each label, small at first."""
    layer = nn.Linear(size, labels)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
