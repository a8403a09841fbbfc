"""The language model: P(w₀ … w_T) = Π P(wₜ | w₍<t₎), over any causal stack."""

from __future__ import annotations

from torch import Tensor

from seqloom.models.base import Model
from seqloom.nn.basic import Dropout, Linear
from seqloom.nn.embedding import Embedding, Output, OutputLayer
from seqloom.nn.layer import Factory, Layer, State, require


class LanguageModel(Model):
    """logitsₜ = output(stack(embed(w₁ … wₜ)))   [E2, E5]. If the width of the stack differs from the
    embedding's, `out_proj` maps it back."""

    task = "language modelling"
    generates = continues = predicts_tokens = embeds_text = True

    def __init__(
        self,
        vocabulary: int,
        dim: int,
        stack: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[OutputLayer] = Output,
    ):
        super().__init__()
        self.embedding = embedding(vocabulary, dim)
        require(
            not self.embedding.needs_full_sequence,
            "a model that generates token by token needs an embedding of single tokens, not SegmentEmbedding",
        )
        self.stack = stack(dim)
        require(self.stack.causal, "a language model needs a causal stack: one that reads left to right")
        self.context = self.stack.context
        self.out_proj = Linear(self.stack.dim, dim) if tied and self.stack.dim != dim else None
        self.output = output(dim if tied else self.stack.dim, vocabulary, self.embedding if tied else None)
        self.dropout = Dropout(dropout)

    def start(self, batch: int) -> State:
        """The state before the first token."""
        return self.stack.start(batch)

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first_id: int
    ) -> tuple[Tensor, State, Tensor | None]:
        return ids, None, mask

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        h, state = self.stack(self.dropout(self.embedding(ids)), state, mask)
        return self.dropout(h if self.out_proj is None else self.out_proj(h)), state

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → logits (B, T, V) and the state."""
        h, state = self.features(ids, state, mask)
        return self.output(h), state
