"""The tagger: a label for each word, over any stack that reads the sentence."""

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
DUMMY_CHARS = 5  # characters of a word whose spelling is not given


class Tagger(WindowedEncoder):
    """P(y | x) = head(s),   s_w = W h_b(w) + b,   hₜ = stack([embed(pieceₜ); chars(word of pieceₜ)])   [T1]

    b(w) is the first piece of word w and represents it. `head` turns scores into label sequences, independently or as a CRF; `chars` embeds
    the bytes of every word, whether the tokenizer knows it or not.
    """

    task = "tagging"

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        dim: int,
        stack: Factory[Layer],
        head: Factory[TagHead] = SoftmaxHead,
        chars: Factory[CharEmbedding] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        char_embedding = None if chars is None else chars(BYTES)
        extra_dim = 0 if char_embedding is None else char_embedding.dim
        super().__init__(
            vocabulary,
            dim,
            lambda in_dim: stack(in_dim + extra_dim),
            embedding,
            dropout,
            word_dropout,
        )
        self.chars = char_embedding
        self.embeds_text = char_embedding is None  # else its vectors need the characters of words too
        self.labels = labels
        self.score = scoring_layer(self.stack.dim, labels)
        self.head = head(labels)

    def set_labels(self, labels: Sequence[str]) -> None:
        self.head.set_labels(labels)

    @property
    def reads_characters(self) -> bool:
        return self.chars is not None

    def scores(
        self, ids: Tensor, mask: Tensor | None, word_starts: Tensor, char_ids: Tensor, word_ids: Tensor
    ) -> Tensor:
        """Pieces (B, T), the first piece of each word (B, W), the distinct words (U, C) and the index of each word in them (B, W) →
        (B, W, K)."""
        x = self.embed(ids, mask)
        if self.chars is not None:
            words = self.chars(char_ids[None], char_ids[None] > 0)[0]  # (U, D)
            # A padded word marks piece 0, which belongs to the first word anyway.
            marks = torch.zeros_like(ids).scatter_(1, word_starts[:, 1:], 1)
            marks[:, 0] = 0
            word_of_piece = word_ids.gather(1, marks.cumsum(1).clamp(max=word_ids.shape[1] - 1))  # (B, T)
            x = torch.cat([x, words[word_of_piece]], -1)
        h = self.encode(x, mask)
        return self.score(h.gather(1, word_starts[..., None].expand(-1, -1, h.shape[-1])))

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B, T, K), with each token as a word of its own."""
        word_starts = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        char_ids = ids.new_ones(ids.numel(), DUMMY_CHARS)
        word_ids = torch.arange(ids.numel(), device=ids.device).view_as(ids)
        return self.scores(ids, mask, word_starts, char_ids, word_ids)
