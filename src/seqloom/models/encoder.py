"""Encoders: a vector for each token that has seen the whole text; and the encoder of labelled tasks, which reads texts of any length."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.models.base import Model
from seqloom.nn.basic import Dropout
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer, State, require


class BaseEncoder(Model):
    """hₜ = stack(embed(w₁ … w_T))ₜ: what all encoders share."""

    embeds_text = True

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
        self.out_proj: nn.Linear | None = None
        self.pooler = None if pooler is None else pooler(self.stack.dim)
        self.dropout = Dropout(dropout)

    def start(self, batch: int) -> State:
        return self.stack.start(batch)

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → (B, T, D) and the state, which has no meaning if the stack is not causal."""
        return self.stack(self.dropout(self.embedding(ids, mask)), state, mask)


class Encoder(BaseEncoder):
    """hₜ = stack(embed(w₁ … w_T))ₜ   [I1]. A stack that is not causal sees the whole text; an optional `pooler` gives one vector of it."""

    task = "encoding"

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return self.features(ids, state, mask)


class Pooler(nn.Module):
    """p = tanh(W h₁ + b), h₁ the features of the first token: BERT's vector of a whole text."""

    def __init__(self, in_dim: int):
        super().__init__()
        self.dense = nn.Linear(in_dim, in_dim)

    def forward(self, h: Tensor) -> Tensor:
        return self.dense(h[:, 0]).tanh()  # (B, T, D) → (B, D)


class WindowedEncoder(BaseEncoder):
    """hₜ = stack(embed(w₁ … w_T))ₜ. In training each id becomes <unk> with probability `word_dropout`, so that <unk> gets a useful embedding.

    A text longer than the stack's context is read in windows that overlap by half; each position is taken from the window in whose middle it is.
    The windows depend on the text alone, not on the other texts of the batch.
    """

    predicts_labels = True
    unk_id: int | None = 1  # id of <unk>, set before training; None if the tokenizer has none

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout)
        require(
            0 <= word_dropout < 1,
            f"word_dropout is the probability of replacing a word by <unk>: at least 0 and below 1, not {word_dropout}",
        )
        self.word_dropout = word_dropout

    def set_unk_id(self, unk_id: int | None) -> None:
        self.unk_id = unk_id

    def embed(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if self.training and self.word_dropout and self.unk_id is not None:
            ids = torch.where(torch.rand(ids.shape, device=ids.device) < self.word_dropout, self.unk_id, ids)
        return self.embedding(ids, mask)

    def encode(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) → (B, T, D'), windows joined."""
        x = self.dropout(x)
        (batch, length), width = x.shape[:2], self.context
        if width is None or length <= width:
            return self.dropout(self.stack(x, None, mask)[0])
        mask = x.new_ones(batch, length, dtype=torch.bool) if mask is None else mask
        rows, starts = overlapping_windows(mask.sum(1), width)
        positions = torch.arange(length, device=x.device)
        # (N, width): indices into all rows, one after another
        indices = rows[:, None] * length + starts[:, None] + positions[:width]
        outputs = [
            self.stack(F.embedding(chunk, x.flatten(0, 1)), None, mask.flatten()[chunk])[0]
            for chunk in indices.split(batch)
        ]
        h = torch.cat(outputs)
        # Each window is used up to the middle of its overlap with the next one.
        ends = torch.full_like(starts, length)
        ends[:-1] = torch.where(rows[1:] == rows[:-1], (starts[1:] + starts[:-1] + width) // 2, length)
        row_offset = (length + 1) * torch.arange(batch, device=x.device)
        # (B, T): the window of each position
        window = torch.searchsorted(ends + row_offset[rows], positions + row_offset[:, None], right=True)
        offset = (positions - starts[window]).clamp(max=width - 1)
        return self.dropout(F.embedding(window * width + offset, h.flatten(0, 1)))


def overlapping_windows(lengths: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """The row and the start of each window: one every half width, the last one flush with the end of its row."""
    step, extra = max(width // 2, 1), (lengths - width).clamp(min=0)
    counts = 1 + -(-extra // step)
    rows = torch.arange(len(lengths), device=lengths.device).repeat_interleave(counts)
    index = torch.arange(len(rows), device=lengths.device) - (counts.cumsum(0) - counts)[rows]
    return rows, torch.minimum(index * step, extra[rows])


def scoring_layer(in_dim: int, labels: int) -> nn.Linear:
    """A score for each label, with small initial weights."""
    layer = nn.Linear(in_dim, labels)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
