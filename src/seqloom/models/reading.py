"""What models with labels share: an encoder that reads a text of any length, whose words are now and then unknown while it learns."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.models.masked import Encoder
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Layer, Make, need


class Reading(Encoder):
    """hₜ = stack(embed(w₁ … w_T))ₜ; while training each id is unknown with probability `unknown`, so that <unk> means something.

    A text longer than the stack's context is read in windows that overlap by half; each position is taken from the window in whose middle it is.
    """

    continues = None  # it writes no text
    unk: int | None = 1  # the tokenizer's unknown word, told before training; None where it has none

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Make[Layer],
        embedding: Make[Embedding] = Embedding,
        dropout: float = 0.0,
        unknown: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout)
        need(0 <= unknown < 1, f"unknown is the share of words that are hidden: at least 0 and below 1, not {unknown}")
        self.unknown = unknown

    def embed(self, ids: Tensor, mask: Tensor | None) -> Tensor:
        if self.training and self.unknown and self.unk is not None:
            ids = torch.where(torch.rand(ids.shape, device=ids.device) < self.unknown, self.unk, ids)
        return self.embedding(ids, mask)

    def encode(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """(B, T, D) → (B, T, D'), windows joined."""
        x = self.dropout(x)
        length, width = x.shape[1], self.context
        if width is None or length <= width:
            return self.dropout(self.stack(x, None, mask)[0])
        step = max(width // 2, 1)
        begins = [*range(0, length - width, step), length - width]
        pieces, done = [], 0
        for number, begin in enumerate(begins):
            inside = slice(begin, begin + width)
            h = self.stack(x[:, inside], None, None if mask is None else mask[:, inside])[0]
            last = number == len(begins) - 1
            until = length if last else (begins[number + 1] + begin + width) // 2  # the middle of what both see
            pieces.append(h[:, done - begin : until - begin])
            done = until
        return self.dropout(torch.cat(pieces, 1))


def linear(size: int, labels: int) -> nn.Linear:
    """A score for each label, small at first."""
    layer = nn.Linear(size, labels)
    nn.init.normal_(layer.weight, std=0.02)
    nn.init.zeros_(layer.bias)
    return layer
