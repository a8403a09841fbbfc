"""Sequence to sequence: P(y | x) = Π P(yₜ | y₍<t₎, x), with any encoder and any decoder that reads a memory."""

from __future__ import annotations

from torch import Tensor

from seqloom.models.text_decoder import TextDecoder
from seqloom.nn.embedding import Embedding, Output, OutputLayer
from seqloom.nn.layer import Factory, Layer, Memory, State, require


class Seq2Seq(TextDecoder):
    """m = encoder(embed(x));   logitsₜ = output(decoder(embed(y₁ … yₜ), m))   [E6, F1, F11]

    `start` reads the source; from then on the model is a language model whose state holds the memory. `shared` gives source and target
    one embedding table, which needs one vocabulary.
    """

    task = "translation"

    def __init__(
        self,
        source_vocabulary: int,
        vocabulary: int,
        dim: int,
        encoder: Factory[Layer],
        decoder: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        shared: bool = True,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[OutputLayer] = Output,
    ):
        super().__init__()
        require(
            not shared or source_vocabulary == vocabulary,
            "a shared embedding needs one vocabulary for source and target",
        )
        self.embedding = embedding(vocabulary, dim)
        self.source_embedding = self.embedding if shared else embedding(source_vocabulary, dim)
        self.encoder = encoder(dim)
        self.source_context = self.encoder.context
        self.build_decoder(decoder, self.encoder.dim, vocabulary, dim, tied, dropout, output)

    def start(self, source: Tensor, mask: Tensor | None = None) -> State:
        """The state before the first target token, after the source (B, S) is read."""
        values, _ = self.encoder(self.dropout(self.source_embedding(source)), None, mask)
        return self.decoder.start(len(source), Memory(values, mask))

    def example_state(self, ids: Tensor) -> State:
        return self.start(ids)
