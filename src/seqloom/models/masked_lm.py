"""Encoders: a vector for each token that has seen the whole text, and the masked language model over it: P(wₜ | all the others)."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from seqloom.models.encoder import Encoder, Pooler
from seqloom.nn.embedding import Embedding
from seqloom.nn.layer import Factory, Layer
from seqloom.nn.output import HeadTransform, Output, OutputLayer
from seqloom.nn.state import State


class MaskedLM(Encoder):
    """logitsₜ = output(stack(embed(w₁ … w_T)))ₜ, learnt at hidden positions   [I1, T15]. The output is BERT's: h' = norm(gelu(W h + b)), then
    E h' + b with E the embedding's own table where `tied`. A stack of another width than the embedding's is projected back to it.

    With a `pooler`, `follows` tells from its vector whether a second segment goes on from the first: logits of no and yes.
    """

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[OutputLayer] = partial(Output, bias=True, head=HeadTransform),
        pooler: Factory[Pooler] | None = None,
    ):
        super().__init__(vocabulary, dim, stack, embedding, dropout)
        self.back = nn.Linear(self.stack.dim, dim) if tied and self.stack.dim != dim else None
        self.dim = dim if tied else self.stack.dim
        self.pooler = None if pooler is None else pooler(self.dim)
        self.follows = None if pooler is None else nn.Linear(self.dim, 2)
        self.output = output(self.dim, vocabulary, self.embedding if tied else None)

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → what the output layer reads, (B, T, D), and the state."""
        h, state = super().features(ids, state, mask)
        return self.dropout(h if self.back is None else self.back(h)), state

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → logits (B, T, V) and the state."""
        h, state = self.features(ids, state, mask)
        return self.output(h), state
