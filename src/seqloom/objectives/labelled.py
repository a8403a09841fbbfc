"""Objectives of labelled records: each is -ln P of what is right, summed over the words or records that count."""

from __future__ import annotations

import math

import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batches.labelled import LabelledBatch, QABatch, TaggedBatch
from seqloom.nn.state import State
from seqloom.objectives.likelihood import Result, add_aux_losses, collecting_aux_losses


def tagging(model: nn.Module, batch: TaggedBatch, state: State = None) -> Result:
    """-ln P(y₁ … y_W | x), by the model's head   [T1]"""
    with collecting_aux_losses(model) as losses:
        scores = model.scores(batch.ids, batch.real, batch.begins, batch.letters, batch.spelt)
    nats = model.head.nats(scores.float(), batch.targets, batch.mask).sum()
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None


def classification(
    model: nn.Module, batch: LabelledBatch, state: State = None, smoothing: float = 0.0
) -> Result:
    """-ln P(y | x) for each record; with smoothing (1 - ε) (-ln P(y)) + ε mean_k (-ln P(k)) while training   [T2]"""
    with collecting_aux_losses(model) as losses:
        scores = model.scores(*inputs(batch))
    scores, targets = scores.float()[batch.mask], batch.targets[batch.mask]
    nats = F.cross_entropy(scores, targets, reduction="sum")
    loss = nats
    if smoothing and model.training:
        loss = F.cross_entropy(scores, targets, reduction="sum", label_smoothing=smoothing)
    return *add_aux_losses(loss, {"nats": float(nats.detach())}, losses, batch), None


def regression(model: nn.Module, batch: LabelledBatch, state: State = None) -> Result:
    """-ln N(y; ŷ, σ²) = (y - ŷ)² / 2σ² + ln σ√2π for each record, σ the deviation of the numbers to learn"""
    with collecting_aux_losses(model) as losses:
        said = model.scores(*inputs(batch))
    wrong = ((said.float() - batch.targets) / model.deviation)[batch.mask]
    nats = (wrong**2).sum() / 2 + len(wrong) * (math.log(2 * math.pi) / 2 + model.deviation.log())
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None


def spans(model: nn.Module, batch: QABatch, state: State = None) -> Result:
    """-ln P(i) - ln P(j): where the answer begins and where it ends   [T10]"""
    with collecting_aux_losses(model) as losses:
        scores, _ = model.scores((batch.ids, batch.real), (batch.second, batch.second_real))
    nats = F.cross_entropy(
        scores.float()[batch.mask].flatten(0, 1), batch.targets[batch.mask].flatten(), reduction="sum"
    )
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None


def inputs(batch: LabelledBatch) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor] | None]:
    return (batch.ids, batch.real), None if batch.second is None else (batch.second, batch.second_real)
