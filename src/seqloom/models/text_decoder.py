"""The half of a sequence-to-sequence model that writes: a decoder over any memory, and the output layer."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.models.base import Model
from seqloom.nn.attention_core import AttentionWeights
from seqloom.nn.basic import Dropout, Linear
from seqloom.nn.capture import capture
from seqloom.nn.embedding import Embedding, OutputLayer
from seqloom.nn.layer import Factory, HasPoints, Layer, State, require


class TextDecoder(Model):
    """logitsₜ = output(decoder(embed(y₁ … yₜ), m))

    `start` reads the source; from then on the model is a language model whose state holds the memory m. A subclass
    builds `embedding` and its encoder, and then calls `build_decoder`.
    """

    generates = predicts_tokens = True
    embedding: Embedding

    def build_decoder(
        self,
        decoder: Factory[Layer],
        memory: int,
        vocabulary: int,
        dim: int,
        tied: bool,
        dropout: float,
        output: Factory[OutputLayer],
    ) -> None:
        """Builds the decoder over vectors of size `memory`, and the output layer; with `tied` it has the weights of the embedding."""
        require(
            not self.embedding.needs_full_sequence,
            "a model that generates token by token needs an embedding of single tokens, not SegmentEmbedding",
        )
        self.decoder = decoder(dim, memory=memory)
        require(self.decoder.causal, "a decoder needs a causal layer: one that reads left to right")
        self.context = self.decoder.context
        self.out_proj = Linear(self.decoder.dim, dim) if tied and self.decoder.dim != dim else None
        self.output = output(dim if tied else self.decoder.dim, vocabulary, self.embedding if tied else None)
        self.dropout = Dropout(dropout)

    def start(self, source: Tensor, mask: Tensor | None = None) -> State:
        """The state before the first target token, after the source is read."""
        raise NotImplementedError

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first_id: int
    ) -> tuple[Tensor, State, Tensor | None]:
        """Generation begins with the token `first_id`, after the source `ids` is read."""
        return torch.full((len(ids), 1), first_id, device=ids.device), self.start(ids, mask), None

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        h, state = self.decoder(self.dropout(self.embedding(ids)), state, mask)
        return self.dropout(h if self.out_proj is None else self.out_proj(h)), state

    def features_with_attention(
        self, ids: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """The weights are those of every head of every layer that attends to the source [F14]; None if no layer does."""
        names = [
            f"{name}.weights"
            for name, part in self.decoder.named_modules()
            if isinstance(part, HasPoints)
            and part.reads_memory
            and isinstance(part.weights, AttentionWeights)
        ]
        if not names:
            h, state = self.features(ids, state, mask)
            return h, None, state
        with capture(self.decoder, *names) as captured:
            h, state = self.features(ids, state, mask)
        return h, torch.cat([captured[name] for name in names], 1), state

    def forward(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        """(B, T) → logits (B, T, V) and the state."""
        h, state = self.features(ids, state, mask)
        return self.output(h), state
