"""The likelihood of summaries, in which unknown words may be copied."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from seqloom.batches.batch import PairBatch
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import Result, TranslationModel, translation


class SummaryModel(TranslationModel, Protocol):
    """A model of summaries, which says which ids it is to predict."""

    def target_words(self, source: Tensor, targets: Tensor) -> Tensor: ...


def summarization(
    model: SummaryModel, batch: PairBatch, state: State = None, smoothing: float = 0.0
) -> Result:
    """-ln P(y | x) = Σₜ -ln P(yₜ | y₍<t₎, x)   [T6]: a word that the vocabulary does not have is one of the source's, or <unk>"""
    targets = model.target_words(batch.source, batch.targets)
    return translation(model, batch._replace(targets=targets), state, smoothing)
