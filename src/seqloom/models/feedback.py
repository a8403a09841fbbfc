"""Models of learning from feedback  [I8, T16]: a reward model, and a language model with a critic."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.models.encoder import WindowedEncoder
from seqloom.models.language_model import LanguageModel
from seqloom.nn.embedding import Embedding, Output, OutputLayer
from seqloom.nn.layer import Factory, Layer
from seqloom.nn.pool import LastPool, Pool


class RewardModel(WindowedEncoder):
    """r(x, y) = w · v + b,   v = pool(stack(embed(x, y)))   [I8]

    The stack of a language model with a scalar head, read at the last token of the answer; or an encoder with another `pool`.
    Only differences between the answers to one prompt have a meaning: P(y₁ preferred to y₂) = σ(r₁ - r₂).
    """

    task = "reward"
    predicts_labels = False

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        pool: Factory[Pool] = LastPool,
        embedding: Factory[Embedding] = Embedding,
        dropout: float = 0.0,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout)
        self.pool = pool(self.stack.dim)
        self.score = nn.Linear(self.pool.dim, 1)
        nn.init.normal_(self.score.weight, std=0.02)
        nn.init.zeros_(self.score.bias)

    def scores(self, text: tuple[Tensor, Tensor], pair: None = None) -> Tensor:
        """Ids (B, T) and their mask → (B,)"""
        ids, mask = text
        h = self.encode(self.embed(ids, mask), mask)
        return self.score(self.pool(h, mask))[:, 0]

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B,)"""
        return self.scores((ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask))


class ActorCritic(LanguageModel):
    """π(yₜ | x, y₍<t₎) = softmax(output(hₜ)),   Vₜ = w · hₜ + b,   hₜ = stack(embed(x, y₍<t₎))   [I8]

    A language model whose features also estimate the reward that is still to come. w and b begin at 0. With `detach` the critic
    does not train the stack.
    """

    has_critic = True

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[OutputLayer] = Output,
        detach: bool = False,
    ):
        super().__init__(vocabulary, dim, stack, embedding, tied, dropout, output)
        self.critic = nn.Linear(dim if tied else self.stack.dim, 1)
        self.detach = detach
        nn.init.zeros_(self.critic.weight)
        nn.init.zeros_(self.critic.bias)

    def values(self, h: Tensor) -> Tensor:
        """Features (B, T, D) → (B, T)"""
        return self.critic(h.detach() if self.detach else h)[..., 0]
