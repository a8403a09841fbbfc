"""The tagger: a label for each word, over any stack that sees the sentence."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.models.encoder import WindowedEncoder, scoring_layer
from seqloom.nn.char_embedding import CharEmbedding
from seqloom.nn.crf import SoftmaxHead, TagHead
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer

BYTES = 256
DUMMY_CHARS = 5  # of a word whose spelling is not given


class Tagger(WindowedEncoder):
    """P(y | x) = head(s),   s_w = W h_b(w) + b,   hₜ = stack([embed(pieceₜ); spell(word of pieceₜ)])   [T1]

    b(w) is the first piece of word w, which speaks for it. `head` says how scores become paths of labels, each by itself or as a CRF; `spelling`
    reads the bytes of every word, known or not.
    """

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        dim: int,
        stack: Factory[Layer],
        head: Factory[TagHead] = SoftmaxHead,
        spelling: Factory[CharEmbedding] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        unknown: float = 0.0,
    ):
        made = None if spelling is None else spelling(BYTES)
        super().__init__(
            vocabulary,
            dim,
            stack if made is None else lambda size: stack(size + made.dim),
            embedding,
            dropout,
            unknown,
        )
        self.spelling, self.labels = made, labels
        self.score, self.head = scoring_layer(self.stack.dim, labels), head(labels)

    def named(self, labels: Sequence[str]) -> None:
        """Tells the names of the labels."""
        self.head.named(labels)

    def scores(
        self, ids: Tensor, mask: Tensor | None, begins: Tensor, letters: Tensor, spelt: Tensor
    ) -> Tensor:
        """Pieces (B, T), the first piece of each word (B, W), distinct words (U, C) and which is which (B, W) → (B, W, K)."""
        x = self.embed(ids, mask)
        if self.spelling is not None:
            words = self.spelling(letters[None], letters[None] > 0)[0]  # (U, D)
            marks = torch.zeros_like(ids).scatter_(
                1, begins[:, 1:], 1
            )  # a padded word marks piece 0, which belongs to the first word anyway
            marks[:, 0] = 0
            own = spelt.gather(1, marks.cumsum(1).clamp(max=spelt.shape[1] - 1))  # (B, T)
            x = torch.cat([x, words[own]], -1)
        h = self.encode(x, mask)
        return self.score(h.gather(1, begins[..., None].expand(-1, -1, h.shape[-1])))

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B, T, K), each token a word of its own."""
        places = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        letters = ids.new_ones(ids.numel(), DUMMY_CHARS)
        return self.scores(
            ids, mask, places, letters, torch.arange(ids.numel(), device=ids.device).view_as(ids)
        )
