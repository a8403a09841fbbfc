"""Summaries: sequence to sequence over documents, and the pointer-generator, which copies words that the vocabulary does not have.

Ids from the vocabulary's size on are unknown words of a document (text/unknown_words.py), all of which a model reads as <unk>. A pointer writes
them as V + j: the word at the source position j, the first at which it occurs.
"""

from __future__ import annotations

from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.models.seq2seq import Seq2Seq
from seqloom.nn.embedding import Embedding, OutputLayer
from seqloom.nn.layer import Factory, Layer, Memory, State, require
from seqloom.nn.pointer import PointerFeatures, PointerOutput, PointerRNN, PointerState

UNK = 1  # the id of <unk> in word tokenizers


class Summarizer(Seq2Seq):
    """m = encoder(embed(x));   logitsₜ = output(decoder(embed(y₁ … yₜ), m)):   x a document, y its summary   [T6]"""

    task = "summarization"

    def known(self, ids: Tensor) -> Tensor:
        """Ids in which every unknown word is <unk>."""
        return ids.masked_fill(ids >= self.output.vocabulary, UNK)

    def target_words(self, source: Tensor, targets: Tensor) -> Tensor:
        """The ids that the model is to predict."""
        return self.known(targets)

    def start(self, source: Tensor, mask: Tensor | None = None) -> State:
        return super().start(self.known(source), mask)

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        return super().features(self.known(ids), state, mask)


class PointerGeneratorState(NamedTuple):
    """The decoder's state, and the word of each source position in the extended vocabulary."""

    decoder: PointerState
    words: Tensor  # (B, S)


class PointerGenerator(Summarizer):
    """P(w) = p_gen P_vocab(w) + (1 - p_gen) Σ_{j: xⱼ = w} αⱼ:   a summarizer that copies words of the document (See et al. 2017)   [T6]"""

    copies: ClassVar[bool] = True
    decoder: PointerRNN

    def __init__(
        self,
        source_vocabulary: int,
        vocabulary: int,
        dim: int,
        encoder: Factory[Layer],
        decoder: Factory[PointerRNN] = PointerRNN,
        embedding: Factory[Embedding] = Embedding,
        shared: bool = True,
        tied: bool = True,
        dropout: float = 0.0,
        output: Factory[OutputLayer] = PointerOutput,
    ):
        super().__init__(
            source_vocabulary, vocabulary, dim, encoder, decoder, embedding, shared, tied, dropout, output
        )
        require(isinstance(self.decoder, PointerRNN), "a pointer-generator needs model.decoder=PointerRNN")
        require(
            isinstance(self.output, PointerOutput), "a pointer-generator needs model.output=PointerOutput"
        )

    def source_words(self, source: Tensor) -> Tensor:
        """The extended id of each source position (B, S): below V a word of the vocabulary, V + j an unknown word that first occurs at j."""
        first = (
            (source[:, :, None] == source[:, None]).int().argmax(2)
        )  # (B, S), the first position with the same id
        return torch.where(source >= self.output.vocabulary, self.output.vocabulary + first, source)

    def target_words(self, source: Tensor, targets: Tensor) -> Tensor:
        """An unknown word is V + j if the source has it at j, else <unk>."""
        same = targets[:, :, None] == source[:, None]  # (B, T, S)
        copied = self.output.vocabulary + same.int().argmax(2)
        unknown = targets >= self.output.vocabulary
        return torch.where(unknown, torch.where(same.any(2), copied, UNK), targets)

    def start(self, source: Tensor, mask: Tensor | None = None) -> State:
        values, _ = self.encoder(self.dropout(self.source_embedding(self.known(source))), None, mask)
        state = self.decoder.start(len(source), Memory(values, mask))
        return PointerGeneratorState(state, self.source_words(source))

    def features(
        self, ids: Tensor, state: PointerGeneratorState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]:
        """(B, T) → what the mixture is computed from, (B, T, D + 1 + 2 S), and the state."""
        if state is None:
            raise ConfigError("a pointer-generator reads a source first: give the state that start returns")
        x = self.dropout(self.embedding(self.known(ids)))
        outputs = self.decoder.forward_with_pointer(x, state.decoder, mask)
        h = self.dropout(outputs.y if self.out_proj is None else self.out_proj(outputs.y))
        words = state.words[:, None].expand_as(outputs.weights)
        joined = PointerFeatures(h, outputs.switch, outputs.weights, words).joined()
        return joined, PointerGeneratorState(outputs.state, state.words)
