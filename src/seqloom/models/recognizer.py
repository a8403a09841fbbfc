"""Recognizers of speech: a distribution over tokens for every frame (CTC), a decoder that spells (attention), or both; and labels of sounds."""

from __future__ import annotations

import torch
from torch import Tensor

from seqloom.models.base import Model
from seqloom.models.classifier import IdsAndMask, TextClassifier
from seqloom.models.encoder import scoring_layer
from seqloom.models.source_to_text import SourceToText
from seqloom.nn.basic import Dropout
from seqloom.nn.embedding import Embedding, Output
from seqloom.nn.frames import SoundEncoder
from seqloom.nn.layer import Factory, Layer, State, require
from seqloom.nn.pool import MeanPool, Pool

BLANK = 0  # the id of <pad>: "no token here"


class Recognizer(Model):
    """P(aₜ | x) = softmax(output(encoder(x)ₜ)) over the tokens and a blank, which is <pad>   [L9, T9]

    The text of an alignment a is its tokens without repetitions and then without blanks (Graves et al.).
    """

    task = "speech recognition"
    reads = "audio"
    predicts_tokens = True

    def __init__(
        self,
        source_shape: tuple[int, ...],
        vocabulary: int,
        encoder: Factory[SoundEncoder],
        dropout: float = 0.0,
        output: Factory[Output] = Output,
    ):
        super().__init__()
        require_sound(source_shape)
        self.source_shape = tuple(source_shape)
        self.encoder = encoder(self.source_shape)
        self.source_context = self.encoder.context
        self.dropout = Dropout(dropout)
        self.output = output(self.encoder.dim, vocabulary)

    def memory_mask(self, source: Tensor, mask: Tensor | None) -> Tensor | None:
        return self.encoder.memory_mask(source, mask)

    def frame_log_probs(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """ln P(aₜ | x), (B, T, F) → (B, T', V), and the mask of the outputs."""
        memory = self.encoder(source, mask)
        log_probs = self.output(self.dropout(memory.values)).float().log_softmax(-1)
        return log_probs, self.encoder.memory_mask(source, mask)

    def run_example(self, ids: Tensor) -> None:
        self(torch.zeros(*ids.shape, *self.source_shape, device=ids.device))

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, F) → logits (B, T', V)"""
        return self.output(self.dropout(self.encoder(source, mask).values))


class Speller(SourceToText):
    """m = encoder(sound);   logitsₜ = output(decoder(embed(y₁ … yₜ), m)): listen, attend and spell (Chan et al.)   [T9]"""

    task = "speech recognition"
    reads = "audio"


class JointRecognizer(Speller):
    """A speller whose encoder also gives each frame a distribution over tokens and a blank, P(aₜ | x) = softmax(W mₜ + b)   [T9]

    The decoder writes the text; the distributions teach the encoder and give each word its time (Watanabe et al.).
    """

    def __init__(
        self,
        source_shape: tuple[int, ...],
        vocabulary: int,
        dim: int,
        encoder: Factory[SoundEncoder],
        decoder: Factory[Layer],
        embedding: Factory[Embedding] = Embedding,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[Output] = Output,
    ):
        super().__init__(source_shape, vocabulary, dim, encoder, decoder, embedding, tied, dropout, output)
        self.frame_output = Output(self.encoder.dim, vocabulary)

    def frame_log_probs(self, source: Tensor, mask: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """ln P(aₜ | x), (B, T, F) → (B, T', V), and the mask of the outputs."""
        values = self.dropout(self.encoder(source, mask).values)
        return self.frame_output(values).float().log_softmax(-1), self.encoder.memory_mask(source, mask)

    def start_with_log_probs(self, source: Tensor, mask: Tensor | None) -> tuple[State, Tensor, Tensor]:
        """The decoder's first state, ln P(aₜ | x) and the mask of the outputs, from one pass of the encoder."""
        memory = self.encoder(source, mask)
        values = self.dropout(memory.values)
        state = self.decoder.start(len(source), memory._replace(values=values))
        log_probs = self.frame_output(values).float().log_softmax(-1)
        return state, log_probs, self.encoder.memory_mask(source, mask)


class SoundClassifier(TextClassifier):
    """P(y | x) = softmax(W pool(encoder(x)) + b): one label for a recording"""

    reads = "audio"

    def __init__(
        self,
        source_shape: tuple[int, ...],
        labels: int,
        encoder: Factory[SoundEncoder],
        pool: Factory[Pool] = MeanPool,
        dropout: float = 0.0,
    ):
        super().__init__()
        require_sound(source_shape)
        self.source_shape = tuple(source_shape)
        self.encoder = encoder(self.source_shape)
        self.pool = pool(self.encoder.dim)
        self.dropout = Dropout(dropout)
        self.labels = labels
        self.score = scoring_layer(self.pool.dim, labels)

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, T, F) → (B, K)"""
        source, mask = first
        memory = self.encoder(source, mask)
        return self.score(self.dropout(self.pool(memory.values, memory.mask)))

    def run_example(self, ids: Tensor) -> None:
        self(torch.zeros(*ids.shape, *self.source_shape, device=ids.device))

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T, F) → (B, K)"""
        return self.scores((source, torch.ones(source.shape[:2], dtype=torch.bool) if mask is None else mask))


def require_sound(shape: tuple[int, ...]) -> None:
    require(len(shape) == 1 and shape[0] > 0, "this model hears recordings: use corpus Speech")
