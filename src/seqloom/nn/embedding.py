"""Embeddings: from ids to vectors."""

from __future__ import annotations

import math
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.capture import HasPoints, Point, Points, record
from seqloom.nn.layer import require


class Embedding(HasPoints):
    """x = W_e one-hot(s), which is row s of the table   [A2]. `scale` multiplies by √D (Vaswani et al.).

    `vectors` names word vectors from which training initialises the rows, matched by word; `frozen` keeps the table
    fixed.
    """

    points: ClassVar[Points] = {"": Point("x", "BTD")}
    needs_full_sequence = False  # whether a token's vector depends on the tokens before it

    def __init__(
        self, vocabulary: int, dim: int, scale: bool = False, vectors: str | None = None, frozen: bool = False
    ):
        super().__init__()
        require(
            not frozen or vectors is not None,
            "a frozen embedding needs vectors to start from: set vectors: FOLDER, or leave frozen out",
        )
        require(
            vocabulary > 0 and dim > 0,
            f"an embedding needs a vocabulary and a size, not {vocabulary} × {dim}",
        )
        self.table = nn.Parameter(torch.randn(vocabulary, dim) * (dim**-0.5 if scale else 0.02))
        self.table.requires_grad_(not frozen)
        self.factor = math.sqrt(dim) if scale else 1.0
        self.vectors = vectors

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """`mask` (B, T) is for subclasses whose vectors depend on other tokens."""
        return record(self, "", self.look_up(ids))

    def look_up(self, ids: Tensor) -> Tensor:
        """The rows of the table."""
        x = F.embedding(ids, self.table)
        return x * self.factor if self.factor != 1 else x


class SegmentEmbedding(Embedding):
    """x = W_e one-hot(s) + S one-hot(g),   g = how many of the tokens before it are the `separator`, at most `segments` - 1 (BERT)

    The first text and its separator are segment 0, the rest is segment 1. It needs the full sequence in one call, so
    it is for encoders.
    """

    needs_full_sequence = True

    def __init__(self, vocabulary: int, dim: int, scale: bool = False, segments: int = 2, separator: int = 3):
        super().__init__(vocabulary, dim, scale)
        require(segments > 0, f"an embedding needs at least one segment, not {segments}")
        self.segments = nn.Parameter(torch.randn(segments, dim) * 0.02)
        self.separator = separator

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        ends = (ids == self.separator) if mask is None else (ids == self.separator) & mask
        ends = ends.long()
        segment = (ends.cumsum(1) - ends).clamp(max=len(self.segments) - 1)  # (B, T)
        return record(self, "", self.look_up(ids) + F.embedding(segment, self.segments))
