"""Classifiers and regressors: one label or number for a text, or for a pair of texts, over any stack."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqloom.models.base import Model
from seqloom.models.encoder import WindowedEncoder, scoring_layer
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer, require
from seqloom.nn.pool import MeanPool, Pool

IdsAndMask = tuple[Tensor, Tensor]
"""Ids (B, T) and their mask."""
EncodeText = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Ids, their mask and an addend to their embeddings → one vector for each row."""


class PairEncoder(nn.Module):
    """How two texts become one vector: pair(encode_text, first, second) → (B, dim). `in_dim` is the size of one text's vector, `embedding` of a
    token's."""

    dim: int

    def forward(self, encode_text: EncodeText, first: IdsAndMask, second: IdsAndMask) -> Tensor:
        raise NotImplementedError


class CrossEncoder(PairEncoder):
    """v = pool(stack(embed(<bos> a <eos> b <eos>) + S g + M m))   [T11]

    Both texts in one sequence. gₜ is the text that a token comes from; with `match`, mₜ says whether the other text contains the same token.
    """

    def __init__(self, in_dim: int, embedding: int, match: bool = True):
        super().__init__()
        self.dim = in_dim
        self.segments = nn.Parameter(torch.randn(2, embedding) * 0.02)
        self.match = nn.Parameter(torch.randn(2, embedding) * 0.02) if match else None

    def join_texts(self, first: IdsAndMask, second: IdsAndMask) -> tuple[Tensor, Tensor, Tensor]:
        """Both texts in one row, padding last: ids (B, T), mask, and the addend to the embeddings (B, T, D)."""
        ids = torch.cat([first[0], second[0]], 1)
        mask = torch.cat([first[1], second[1]], 1)
        from_second = torch.arange(ids.shape[1], device=ids.device) >= first[0].shape[1]
        addend = self.segments[from_second.long()].expand(len(ids), -1, -1)
        if self.match is not None:
            both_real = first[1][:, :, None] & second[1][:, None]
            same = (first[0][:, :, None] == second[0][:, None]) & both_real  # (B, T₁, T₂)
            addend = addend + self.match[torch.cat([same.any(2), same.any(1)], 1).long()]
        order = (~mask).long().argsort(dim=1, stable=True)[:, : int(mask.sum(1).max())]
        addend = addend.gather(1, order[..., None].expand(-1, -1, addend.shape[-1]))
        return ids.gather(1, order), mask.gather(1, order), addend

    def forward(self, encode_text: EncodeText, first: IdsAndMask, second: IdsAndMask) -> Tensor:
        return encode_text(*self.join_texts(first, (second[0][:, 1:], second[1][:, 1:])))


class BiEncoder(PairEncoder):
    """v = [u; v; |u - v|; u ⊙ v] of the vectors of both texts, each encoded on its own   [T11]"""

    def __init__(self, in_dim: int, embedding: int):
        super().__init__()
        self.dim = 4 * in_dim

    def forward(self, encode_text: EncodeText, first: IdsAndMask, second: IdsAndMask) -> Tensor:
        u, v = (encode_text(*text, None) for text in (first, second))
        return torch.cat([u, v, (u - v).abs(), u * v], -1)


class PooledEncoder(WindowedEncoder):
    """A text, or a pair of texts, as one vector."""

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pool: Factory[Pool] = MeanPool,
        pair: Factory[PairEncoder] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout, word_dropout)
        self.pool = pool(self.stack.dim)
        self.pair = None if pair is None else pair(self.pool.dim, dim)
        self.vector_dim = self.pool.dim if self.pair is None else self.pair.dim

    def encode_text(self, ids: Tensor, mask: Tensor | None, addend: Tensor | None = None) -> Tensor:
        """(B, T) → (B, D)"""
        x = self.embed(ids, mask)
        return self.pool(self.encode(x if addend is None else x + addend, mask), mask)

    def vector(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, T), (B, S) → (B, D)"""
        require(
            (second is None) == (self.pair is None),
            "the model takes single texts, but the data has pairs: set model.pair to CrossEncoder or BiEncoder"
            if self.pair is None
            else "the model takes pairs, but the data has single texts: remove model.pair",
        )
        if second is None or self.pair is None:
            return self.encode_text(*first)
        return self.pair(self.encode_text, first, second)

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """The scores of each text or pair."""
        raise NotImplementedError

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → the scores; a model of pairs takes each text twice."""
        first = ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return self.scores(first, None if self.pair is None else first)


class TextClassifier(Model):
    """A model that gives each label of a text, or of a pair of texts, a score; their softmax are the probabilities."""

    task = "classification"
    predicts_labels = True

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, K)"""
        raise NotImplementedError


class Classifier(PooledEncoder, TextClassifier):
    """P(y | x) = softmax(W v + b),   v = pool(stack(embed(x)))   [T2, T11, T12, D-25]

    `pool` makes one vector of a text, `pair` one of two texts; without `pair` a record is a single text.
    """

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        dim: int,
        stack: Factory[Layer],
        pool: Factory[Pool] = MeanPool,
        pair: Factory[PairEncoder] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, pool, pair, embedding, dropout, word_dropout)
        self.labels = labels
        self.score = scoring_layer(self.vector_dim, labels)

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, K)"""
        return self.score(self.vector(first, second))


class Regressor(PooledEncoder):
    """ŷ = μ + σ (w · v + b),   v = pool(stack(embed(x))): a number for a text, or for a pair, such as their similarity   [T11]

    μ and σ are the mean and the standard deviation of the training targets; they are set once, before the first step.
    """

    task = "regression"

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pool: Factory[Pool] = MeanPool,
        pair: Factory[PairEncoder] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        word_dropout: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, pool, pair, embedding, dropout, word_dropout)
        self.score = scoring_layer(self.vector_dim, 1)
        self.mean, self.deviation = (
            nn.Parameter(torch.tensor(value), requires_grad=False) for value in (0.0, 1.0)
        )

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B,)"""
        return self.mean + self.deviation * self.score(self.vector(first, second))[:, 0]
