"""Answers that stand in a passage: where they begin and where they end."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.models.classifier import IdsAndMask, Joined
from seqloom.models.encoder import WindowedEncoder, scoring_layer
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer


class Spans(WindowedEncoder):
    """P(i, j) = softmaxᵢ(w_b · hᵢ) softmaxⱼ(w_e · hⱼ),   h = stack(embed(<bos> question <eos> passage))   [T10]

    i and j are tokens of the passage, or both the question's <eos>, which stands for no answer.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pair: Factory[Joined] = Joined,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        unknown: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout, unknown)
        self.pair = pair(self.stack.dim, dim)
        self.score = scoring_layer(self.stack.dim, 2)

    def scores(self, question: IdsAndMask, passage: IdsAndMask) -> tuple[Tensor, Tensor]:
        """Scores of beginning and end at no answer and at each token of the passage, (B, 2, 1 + S), and which of them are real, (B, 1 + S)."""
        ids, mask, added = self.pair.sequence(question, passage)
        h = self.encode(self.embed(ids, mask) + added, mask)
        length = passage[0].shape[1]
        places = question[1].sum(1, keepdim=True) - 1 + torch.arange(1 + length, device=ids.device)
        real = torch.cat([torch.ones_like(passage[1][:, :1]), passage[1]], 1)
        found = (
            self.score(h)
            .gather(1, places.clamp(max=h.shape[1] - 1)[..., None].expand(-1, -1, 2))
            .transpose(1, 2)
        )  # (B, 2, 1 + S)
        return found.masked_fill(~real[:, None], float("-inf")), real

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B, 2, 1 + T), each text asked of itself."""
        side = ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return self.scores(side, side)[0]
