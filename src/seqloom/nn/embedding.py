"""Embedding and output: ids to vectors and back to logits."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.layer import need


class Embedding(nn.Module):
    """x = W_e one-hot(s), which is row s of the table   [A2]. `scale` multiplies by √D (Vaswani et al.).

    `vectors` names word vectors that training starts the rows from, matched by word; `frozen` keeps the table as it starts.
    """

    def __init__(self, vocabulary: int, dim: int, scale: bool = False, vectors: str | None = None, frozen: bool = False):
        super().__init__()
        need(not frozen or vectors is not None, "a frozen embedding needs vectors to start from: say vectors: FOLDER, or leave frozen out")
        need(vocabulary > 0 and dim > 0, f"an embedding needs a vocabulary and a size, not {vocabulary} × {dim}")
        self.table = nn.Parameter(torch.randn(vocabulary, dim) * (dim**-0.5 if scale else 0.02))
        self.table.requires_grad_(not frozen)
        self.factor = math.sqrt(dim) if scale else 1.0
        self.vectors = vectors

    def forward(self, ids: Tensor) -> Tensor:
        x = F.embedding(ids, self.table)
        return x * self.factor if self.factor != 1 else x


class Readout(nn.Module):
    """What a model says about the next word: `forward` gives logits of every word, `nats` -ln P of given ones."""

    vocabulary: int

    def forward(self, h: Tensor) -> Tensor:
        """(…, D) → (…, V)"""
        raise NotImplementedError

    def nats(self, h: Tensor, targets: Tensor) -> Tensor:
        """-ln P(w) for each target w: (…, D), (…) → (…)."""
        logits = single(self(h))
        return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), reduction="none").view(targets.shape)

    def losses(self, h: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
        """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w, and the part without ε."""
        if not smoothing:
            nats = self.nats(h, targets)
            return nats, nats
        log_p = single(self(h)).log_softmax(-1)
        nats = -log_p.gather(-1, targets[..., None])[..., 0]
        return (1 - smoothing) * nats - smoothing * log_p.mean(-1), nats


def single(logits: Tensor) -> Tensor:
    """Half precision is read in single."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


class Output(Readout):
    """logits = E h   with E the embedding's own table where `tied` is given [E5, D-20], else logits = W h + b with a matrix of its own."""

    def __init__(self, size: int, vocabulary: int, tied: Embedding | None = None):
        super().__init__()
        own = None if tied is not None else torch.randn(vocabulary, size) * 0.02
        need(tied is None or tied.table.shape[1] == size, "a tied output needs the embedding's size")
        self.vocabulary = vocabulary
        self.table = tied.table if own is None else nn.Parameter(own)
        self.bias = None if own is None else nn.Parameter(torch.zeros(vocabulary))

    def forward(self, h: Tensor) -> Tensor:
        return F.linear(h, self.table, self.bias)  # (…, V)
