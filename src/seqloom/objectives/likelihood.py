"""Maximum likelihood: Φ* = argmin E[-ln P_Φ(y)]   [E1]. An objective
is a function (model, batch, state) → loss, numbers, state.

The loss is a sum over the tokens of the batch that count. The training loop divides by their number over all
ranks and micro-batches, so that any split of a batch gives the same gradient. Auxiliary losses of parts
(`nn/layer.py`) are means over tokens; in training they are added with the number of counted tokens as
weight, and evaluation leaves them out.
"""

from __future__ import annotations

import functools
from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch
from torch import Tensor

from seqloom.batches.batch import Batch, PairBatch, SourceBatch, TokenBatch
from seqloom.nn import layer
from seqloom.nn.embedding import OutputLayer
from seqloom.nn.layer import State

Result = tuple[Tensor, dict[str, float], State]


class Trainable(Protocol):
    """A module, which is in training or in evaluation mode."""

    training: bool


class FeatureModel(Trainable, Protocol):
    """A model that maps ids to features, and features to words."""

    output: OutputLayer

    def features(
        self, ids: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[Tensor, State]: ...


class TranslationModel(FeatureModel, Protocol):
    """A model whose first state is computed from a source: a text, a picture or a sound."""

    def start(self, source: Tensor, mask: Tensor | None = None) -> State: ...


def token_loss(
    model: FeatureModel, h: Tensor, targets: Tensor, mask: Tensor, smoothing: float
) -> tuple[Tensor, dict[str, float]]:
    """ℓ = Σₜ [(1 - ε) (-ln P(wₜ)) + ε mean_w (-ln P(w))]   [E3], and the sum without ε as `nats`."""
    losses, numbers = token_losses(model, h, targets, mask, smoothing)
    return losses.sum(), numbers


def token_losses(
    model: FeatureModel, h: Tensor, targets: Tensor, mask: Tensor, smoothing: float
) -> tuple[Tensor, dict[str, float]]:
    """The summands of `token_loss`, (N,) for the N counted positions, row by row: only these are passed to the output layer."""
    if not mask.all():
        h = h[mask]
        targets = targets[mask]
    loss, nats = model.output.smoothed_nll(h, targets, smoothing if model.training else 0.0)
    return loss, {"nats": float(nats.detach().sum())}


def collecting_aux_losses(model: Trainable) -> AbstractContextManager[list[Tensor]]:
    """Returns a context that collects the auxiliary losses of
    the model's parts; nothing is collected in evaluation."""
    return layer.collect_aux_losses() if model.training else nullcontext([])


def collecting_choices(model: Trainable) -> AbstractContextManager[list[layer.Choice]]:
    """Returns a context that collects what the model's parts draw at random; nothing is collected in evaluation."""
    return layer.collect_choices() if model.training else nullcontext([])


def add_aux_losses(
    loss: Tensor, numbers: dict[str, float], losses: list[Tensor], batch: Batch
) -> tuple[Tensor, dict[str, float]]:
    """ℓ + n · Σ auxiliary losses, where n is the number of
    targets; their sum also becomes the number `aux_loss`."""
    if not losses:
        return loss, numbers
    total = functools.reduce(torch.add, losses)
    return loss + batch.num_targets * total, {**numbers, "aux_loss": float(total.detach())}


def next_token(model: FeatureModel, batch: TokenBatch, state: State = None, smoothing: float = 0.0) -> Result:
    """-ln P(w₁ … w_T) = Σₜ -ln P(wₜ | w₍<t₎)   [E2, E3]"""
    with collecting_aux_losses(model) as losses:
        h, state = model.features(batch.ids, state)
    loss, numbers = add_aux_losses(*token_loss(model, h, batch.targets, batch.mask, smoothing), losses, batch)
    return loss, numbers, state


def translation(
    model: TranslationModel, batch: PairBatch | SourceBatch, state: State = None, smoothing: float = 0.1
) -> Result:
    """-ln P(y | x) = Σₜ -ln P(yₜ | y₍<t₎, x)   [E6]"""
    with collecting_aux_losses(model) as losses, collecting_choices(model) as choices:
        h, _ = model.features(batch.ids, model.start(batch.source, batch.source_mask), batch.mask)
    costs, numbers = token_losses(model, h, batch.targets, batch.mask, smoothing)
    loss = costs.sum()
    if choices:
        from seqloom.objectives.reinforce import policy_loss

        loss = loss + policy_loss(choices, costs.detach(), batch.mask)
    loss, numbers = add_aux_losses(loss, numbers, losses, batch)
    return loss, numbers, None
