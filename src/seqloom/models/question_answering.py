"""Extractive question answering: where in a passage the answer begins and ends."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.models.classifier import CrossEncoder, IdsAndMask
from seqloom.models.encoder import WindowedEncoder, scoring_layer
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer


class ExtractiveQA(WindowedEncoder):
    """P(i, j) = softmaxᵢ(w_b · hᵢ) softmaxⱼ(w_e · hⱼ),   h = stack(embed(<bos> question <eos> passage))   [T10]

    i and j are tokens of the passage, or both the question's <eos>, which means that there is no answer.
    """

    task = "question answering"

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pair: Factory[CrossEncoder] = CrossEncoder,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout, word_dropout)
        self.pair = pair(self.stack.dim, dim)
        self.score = scoring_layer(self.stack.dim, 2)

    def scores(self, question: IdsAndMask, passage: IdsAndMask) -> tuple[Tensor, Tensor]:
        """Scores of start and end at "no answer" and at each token of the passage, (B, 2, 1 + S), and their mask, (B, 1 + S)."""
        ids, mask, addend = self.pair.join_texts(question, passage)
        h = self.encode(self.embed(ids, mask) + addend, mask)
        length = passage[0].shape[1]
        positions = question[1].sum(1, keepdim=True) - 1 + torch.arange(1 + length, device=ids.device)
        score_mask = torch.cat([torch.ones_like(passage[1][:, :1]), passage[1]], 1)
        index = positions.clamp(max=h.shape[1] - 1)[..., None].expand(-1, -1, 2)
        scores = self.score(h).gather(1, index).transpose(1, 2)  # (B, 2, 1 + S)
        return scores.masked_fill(~score_mask[:, None], float("-inf")), score_mask

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B, 2, 1 + T), with each text as its own question."""
        text = ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return self.scores(text, text)[0]
