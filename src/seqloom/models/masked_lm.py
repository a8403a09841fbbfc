"""The masked language model over an encoder: P(wₜ | all the other tokens)."""

from __future__ import annotations

from functools import partial

from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.models.encoder import Encoder, Pooler
from seqloom.nn.embedding import Embedding, HeadTransform, Output, OutputLayer
from seqloom.nn.layer import Factory, Layer, State


class MaskedLM(Encoder):
    """logitsₜ = output(stack(embed(w₁ … w_T)))ₜ, trained at masked positions   [I1, T15]

    The output layer is BERT's: h' = norm(gelu(W h + b)), then E h' + b, where E is the embedding's own table if `tied`. If the width of the stack
    differs from the embedding's, `out_proj` maps it back. With a `pooler`, `nsp_head` predicts from its vector whether the second segment
    follows the first: logits of no and yes.
    """

    task = "masked language modelling"
    predicts_tokens = True

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
        self.out_proj = nn.Linear(self.stack.dim, dim) if tied and self.stack.dim != dim else None
        self.dim = dim if tied else self.stack.dim
        self.pooler = None if pooler is None else pooler(self.dim)
        self.nsp_head = None if pooler is None else nn.Linear(self.dim, 2)
        self.output = output(self.dim, vocabulary, self.embedding if tied else None)

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        h, state = super().features(ids, state, mask)
        return self.dropout(h if self.out_proj is None else self.out_proj(h)), state

    def next_segment_logits(self, h: Tensor) -> Tensor:
        if self.pooler is None or self.nsp_head is None:
            raise ConfigError(
                "batches.pairs needs a model with a next-sentence head: set model.pooler=Pooler"
            )
        return self.nsp_head(self.pooler(h))

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → logits (B, T, V) and the state."""
        h, state = self.features(ids, state, mask)
        return self.output(h), state
