"""Objectives of labelled records: -ln P of the correct label, tag,
number or span, summed over the words or records that count."""

from __future__ import annotations

import math
from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from seqloom.batches.labelled import IdsWithMask, LabelledBatch, QABatch, TaggedBatch
from seqloom.nn.crf import TagHead
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import Result, add_aux_losses, collecting_aux_losses


class WordScorer(Protocol):
    """A model that scores the tags of each word."""

    training: bool
    head: TagHead

    def scores(
        self, ids: Tensor, mask: Tensor, word_starts: Tensor, char_ids: Tensor, word_ids: Tensor
    ) -> Tensor: ...


class TextScorer(Protocol):
    """A model that scores the labels of a text or of a pair of texts."""

    training: bool

    def scores(self, text: IdsWithMask, pair: IdsWithMask | None) -> Tensor: ...


class NumberScorer(TextScorer, Protocol):
    """A model that predicts a number for a text or for a pair of texts."""

    deviation: Tensor


class SpanScorer(Protocol):
    """A model that scores the first and the last token of an
    answer, (B, 2, 1 + S), and returns the passages' mask."""

    training: bool

    def scores(self, question: IdsWithMask, passage: IdsWithMask) -> tuple[Tensor, Tensor]: ...


def tagging(model: WordScorer, batch: TaggedBatch, state: State = None) -> Result:
    """-ln P(y₁ … y_W | x), by the model's head   [T1]"""
    with collecting_aux_losses(model) as losses:
        scores = model.scores(batch.ids, batch.input_mask, batch.word_starts, batch.char_ids, batch.word_ids)
    nats = model.head.nll(scores.float(), batch.targets, batch.mask).sum()
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None


def classification(
    model: TextScorer, batch: LabelledBatch, state: State = None, smoothing: float = 0.0
) -> Result:
    """-ln P(y | x) for each record; with smoothing (1 - ε)
    (-ln P(y)) + ε mean_k (-ln P(k)) while training   [T2]"""
    with collecting_aux_losses(model) as losses:
        scores = model.scores(*batch.inputs)
    scores = scores.float()[batch.mask]
    targets = batch.targets[batch.mask]
    nats = F.cross_entropy(scores, targets, reduction="sum")
    loss = nats
    if smoothing and model.training:
        loss = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    return *add_aux_losses(loss, {"nats": float(nats.detach())}, losses, batch), None


def regression(model: NumberScorer, batch: LabelledBatch, state: State = None) -> Result:
    """-ln N(y; ŷ, σ²) = (y - ŷ)² / 2σ² + ln σ√2π for each record,
    where σ is the deviation of the training targets"""
    with collecting_aux_losses(model) as losses:
        predicted = model.scores(*batch.inputs)
    error = ((predicted.float() - batch.targets) / model.deviation)[batch.mask]
    nats = (error**2).sum() / 2 + len(error) * (math.log(2 * math.pi) / 2 + model.deviation.log())
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None


def extractive_qa(model: SpanScorer, batch: QABatch, state: State = None) -> Result:
    """-ln P(i) - ln P(j), where i and j are the first and the last token of the answer   [T10]"""
    with collecting_aux_losses(model) as losses:
        scores, _ = model.scores(*batch.inputs)
    counted = scores.float()[batch.mask].flatten(0, 1)
    nats = F.cross_entropy(counted, batch.targets[batch.mask].flatten(), reduction="sum")
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None
