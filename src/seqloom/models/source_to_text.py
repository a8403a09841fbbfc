"""Text from input that is not text: P(y | x) = Π P(yₜ | y₍<t₎, x), where x is a picture or a sound."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from seqloom.models.text_decoder import TextDecoder
from seqloom.nn.embedding import Embedding, Output
from seqloom.nn.layer import Factory, Layer, State, require
from seqloom.nn.source import SourceEncoder

EXAMPLE_FRAMES = 100  # of the sound with which costs are counted: one second


class SourceToText(TextDecoder):
    """m = encoder(x);   logitsₜ = output(decoder(embed(y₁ … yₜ), m))

    Decoders are those of `Seq2Seq`. `source_shape` is the shape of one source as the corpus reads it: (H, W, 3) for pictures,
    (F,) for the frames of sounds.
    """

    def __init__(
        self,
        source_shape: tuple[int, ...],
        vocabulary: int,
        dim: int,
        encoder: Factory[SourceEncoder],
        decoder: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[Output] = Output,
    ):
        super().__init__()
        require(
            math.prod(source_shape) > 0,
            f"a source of shape {source_shape} is empty: this model needs a corpus of pictures or sounds",
        )
        self.source_shape = tuple(source_shape)
        self.encoder = encoder(self.source_shape)
        self.source_context = self.encoder.context
        self.grid = self.encoder.grid
        self.embedding = embedding(vocabulary, dim)
        self.build_decoder(decoder, self.encoder.dim, vocabulary, dim, tied, dropout, output)

    def start(self, source: Tensor, mask: Tensor | None = None) -> State:
        """The state before the first word, after the sources (B, …) are read."""
        memory = self.encoder(source, mask)
        return self.decoder.start(len(source), memory._replace(values=self.dropout(memory.values)))

    def memory_mask(self, source: Tensor, mask: Tensor | None) -> Tensor | None:
        return self.encoder.memory_mask(source, mask)

    def example_state(self, ids: Tensor) -> State:
        frames = () if len(self.source_shape) > 1 else (EXAMPLE_FRAMES,)
        return self.start(torch.zeros(len(ids), *frames, *self.source_shape, device=ids.device))


class Captioner(SourceToText):
    """m = encoder(picture);   logitsₜ = output(decoder(embed(y₁ … yₜ), m))   [L10, T8]"""

    task = "captioning"
    reads = "image"
