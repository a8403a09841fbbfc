"""Classifiers and regressors: one answer for a text, or for a pair of texts, over any stack that reads it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from seqloom.models.encoder import WindowedEncoder, scoring_layer
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer, require
from seqloom.nn.pool import MeanPool, Pool

IdsAndMask = tuple[Tensor, Tensor]
"""Ids (B, T) and their mask."""
Read = Callable[[Tensor, Tensor, Tensor | None], Tensor]
"""Ids, their mask and what is added to their embeddings → one vector of each row."""


class PairEncoder(nn.Module):
    """How two texts become one vector: pair(read, first, second) → (B, dim). `size` is that of one text's vector, `embedding` a token's."""

    dim: int

    def forward(self, read: Read, first: IdsAndMask, second: IdsAndMask) -> Tensor:
        raise NotImplementedError


class Joined(PairEncoder):
    """v = pool(stack(embed(<bos> a <eos> b <eos>) + S g + M m))   [T11]

    One sequence. gₜ says from which text a token is, mₜ with `match` whether the other text has the same token.
    """

    def __init__(self, size: int, embedding: int, match: bool = True):
        super().__init__()
        self.dim = size
        self.segments = nn.Parameter(torch.randn(2, embedding) * 0.02)
        self.match = nn.Parameter(torch.randn(2, embedding) * 0.02) if match else None

    def sequence(self, first: IdsAndMask, second: IdsAndMask) -> tuple[Tensor, Tensor, Tensor]:
        """Both texts in one row, padding last: ids (B, T), mask, and what is added to the embeddings (B, T, D)."""
        sides = [first[0], second[0]]
        ids, mask = torch.cat(sides, 1), torch.cat([first[1], second[1]], 1)
        from_second = torch.arange(ids.shape[1], device=ids.device) >= first[0].shape[1]
        added = self.segments[from_second.long()].expand(len(ids), -1, -1)
        if self.match is not None:
            same = (
                (first[0][:, :, None] == second[0][:, None]) & first[1][:, :, None] & second[1][:, None]
            )  # (B, T₁, T₂)
            added = added + self.match[torch.cat([same.any(2), same.any(1)], 1).long()]
        order = (~mask).long().argsort(dim=1, stable=True)[:, : int(mask.sum(1).max())]
        return (
            ids.gather(1, order),
            mask.gather(1, order),
            added.gather(1, order[..., None].expand(-1, -1, added.shape[-1])),
        )

    def forward(self, read: Read, first: IdsAndMask, second: IdsAndMask) -> Tensor:
        return read(*self.sequence(first, (second[0][:, 1:], second[1][:, 1:])))


class Compared(PairEncoder):
    """v = [u; v; |u - v|; u ⊙ v] of the vectors of both texts, each read by itself   [T11]"""

    def __init__(self, size: int, embedding: int):
        super().__init__()
        self.dim = 4 * size

    def forward(self, read: Read, first: IdsAndMask, second: IdsAndMask) -> Tensor:
        u, v = (read(*side, None) for side in (first, second))
        return torch.cat([u, v, (u - v).abs(), u * v], -1)


class PooledEncoder(WindowedEncoder):
    """A text, or a pair, as one vector."""

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pool: Factory[Pool] = MeanPool,
        pair: Factory[PairEncoder] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        unknown: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout, unknown)
        self.pool = pool(self.stack.dim)
        self.pair = None if pair is None else pair(self.pool.dim, dim)
        self.size = self.pool.dim if self.pair is None else self.pair.dim

    def read(self, ids: Tensor, mask: Tensor | None, added: Tensor | None = None) -> Tensor:
        x = self.embed(ids, mask)
        return self.pool(self.encode(x if added is None else x + added, mask), mask)

    def vector(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, T), (B, S) → (B, D)"""
        require(
            (second is None) == (self.pair is None),
            "the model reads one text, and these are pairs: set model.pair to Joined or Compared"
            if self.pair is None
            else "the model reads pairs, and these are single texts: leave model.pair out",
        )
        return self.read(*first) if second is None else self.pair(self.read, first, second)

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """What is said of each text or pair."""
        raise NotImplementedError

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → the scores; where pairs are read, each text with itself."""
        first = ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask
        return self.scores(first, None if self.pair is None else first)


class Classifier(PooledEncoder):
    """P(y | x) = softmax(W v + b),   v = pool(stack(embed(x)))   [T2, T11, T12, D-25]

    `pool` makes one vector of a text, `pair` of two; without it there is one text.
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
        unknown: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, pool, pair, embedding, dropout, unknown)
        self.labels = labels
        self.score = scoring_layer(self.size, labels)

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, K)"""
        return self.score(self.vector(first, second))


class Regressor(PooledEncoder):
    """ŷ = μ + σ (w · v + b),   v = pool(stack(embed(x))): a number for a text, or for a pair, such as how alike they are   [T11]

    μ and σ are the mean and the deviation of the numbers to learn; they are set once, before the first step.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pool: Factory[Pool] = MeanPool,
        pair: Factory[PairEncoder] | None = None,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
        unknown: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, pool, pair, embedding, dropout, unknown)
        self.score = scoring_layer(self.size, 1)
        self.mean, self.deviation = (
            nn.Parameter(torch.tensor(value), requires_grad=False) for value in (0.0, 1.0)
        )

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B,)"""
        return self.mean + self.deviation * self.score(self.vector(first, second))[:, 0]
