"""Embedding and output: ids to vectors and back to logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.feedforward import FUNCTIONS, Activation
from seqloom.nn.layer import Make, need
from seqloom.nn.linear import linear
from seqloom.nn.norm import LayerNorm, Norm
from seqloom.nn.surprise import surprise


class Embedding(nn.Module):
    """x = W_e one-hot(s), which is row s of the table   [A2]. `scale` multiplies by √D (Vaswani et al.).

    `vectors` names word vectors that training starts the rows from, matched by word; `frozen` keeps the table as it starts.
    """

    whole = False  # whether a token's vector depends on those before it

    def __init__(
        self, vocabulary: int, dim: int, scale: bool = False, vectors: str | None = None, frozen: bool = False
    ):
        super().__init__()
        need(
            not frozen or vectors is not None,
            "a frozen embedding needs vectors to start from: say vectors: FOLDER, or leave frozen out",
        )
        need(
            vocabulary > 0 and dim > 0,
            f"an embedding needs a vocabulary and a size, not {vocabulary} × {dim}",
        )
        self.table = nn.Parameter(torch.randn(vocabulary, dim) * (dim**-0.5 if scale else 0.02))
        self.table.requires_grad_(not frozen)
        self.factor = math.sqrt(dim) if scale else 1.0
        self.vectors = vectors

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, T) is for those that look at other tokens."""
        x = F.embedding(ids, self.table)
        return x * self.factor if self.factor != 1 else x


class Segmented(Embedding):
    """x = W_e one-hot(s) + S one-hot(g),   g = how many of the tokens before it are the `separator`, at most `segments` - 1 (BERT)

    The first text and its separator are segment 0, what follows is segment 1. The whole sequence must be at hand, so it is for encoders.
    """

    whole = True

    def __init__(self, vocabulary: int, dim: int, scale: bool = False, segments: int = 2, separator: int = 3):
        super().__init__(vocabulary, dim, scale)
        need(segments > 0, f"an embedding needs at least one segment, not {segments}")
        self.segments = nn.Parameter(torch.randn(segments, dim) * 0.02)
        self.separator = separator

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        ends = (ids == self.separator) if mask is None else (ids == self.separator) & mask
        ends = ends.long()
        segment = (ends.cumsum(1) - ends).clamp(max=len(self.segments) - 1)  # (B, T)
        return super().forward(ids) + F.embedding(segment, self.segments)


class Transform(nn.Module):
    """h' = norm(f(W h + b)): what BERT puts before its output layer."""

    def __init__(self, size: int, activation: Activation = "gelu", norm: Make[Norm] = LayerNorm):
        super().__init__()
        self.dense, self.norm, self.activation = nn.Linear(size, size), norm(size), activation

    def forward(self, h: Tensor) -> Tensor:
        return self.norm(FUNCTIONS[self.activation](self.dense(h)))


class Readout(nn.Module):
    """What a model says about the next word: `forward` gives logits of every word, `nats` -ln P of given ones."""

    vocabulary: int

    def forward(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        raise NotImplementedError

    def nats(self, h: Tensor, targets: Tensor) -> Tensor:
        """-ln P(w) for each target w: (…, D), (…) → (…)."""
        return surprise(single(self(h)), targets)[0]

    def losses(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w, and the part without ε."""
        if not smoothing:
            nats = self.nats(h, targets)
            return nats, nats
        return surprise(single(self(h)), targets, smoothing)


def single(logits: Tensor) -> Tensor:
    """Half precision is read in single."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


class Output(Readout):
    """logits = E h   with E the embedding's own table where `tied` is given [E5, D-20], else logits = W h + b with a matrix of its own.

    `bias` says otherwise: a tied output with b, or one of its own without; `head` is a part that h passes first.
    """

    def __init__(
        self,
        size: int,
        vocabulary: int,
        tied: Embedding | None = None,
        bias: bool | None = None,
        head: Make[Transform] | None = None,
    ):
        super().__init__()
        own = None if tied is not None else torch.randn(vocabulary, size) * 0.02
        need(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        self.head = None if head is None else head(size)
        self.vocabulary = vocabulary
        self.table = tied.table if own is None else nn.Parameter(own)
        self.bias = (
            None
            if not (bias if bias is not None else own is not None)
            else nn.Parameter(torch.zeros(vocabulary))
        )

    def forward(self, h: Tensor) -> Tensor:
        return linear(h if self.head is None else self.head(h), self.table, self.bias)  # (…, V)
