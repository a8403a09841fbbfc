"""Maximum likelihood: Φ* = argmin E[-ln P_Φ(y)]   [E1]. An objective is a function (model, batch, state) → loss, numbers, state.

The loss is a sum over the batch's counted tokens; the training loop divides by their number over all ranks and micro-batches, so that
any split of a batch gives the same gradient. What parts add while training (`nn/collect.py`) is a mean over tokens and joins weighed with
the batch's count; evaluation leaves it out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from seqloom.batches.batch import Batch, PairBatch, TokenBatch
from seqloom.nn import collect
from seqloom.nn.state import State

Result = tuple[Tensor, dict[str, float], State]


def token_loss(
    model: nn.Module, h: Tensor, targets: Tensor, mask: Tensor, smoothing: float
) -> tuple[Tensor, dict[str, float]]:
    """ℓ = Σₜ [(1 - ε) (-ln P(wₜ)) + ε mean_w (-ln P(w))]   [E3], and the part without ε as `nats`. Only counted positions reach the output."""
    if not mask.all():
        h, targets = h[mask], targets[mask]
    loss, nats = model.output.losses(h, targets, smoothing if model.training else 0.0)
    return loss.sum(), {"nats": float(nats.detach().sum())}


def collecting_aux_losses(model: nn.Module) -> AbstractContextManager[list[Tensor]]:
    """Where the model's parts put losses of their own while it learns."""
    return collect.collect_aux_losses() if model.training else nullcontext([])


def add_aux_losses(
    loss: Tensor, numbers: dict[str, float], losses: list[Tensor], batch: Batch
) -> tuple[Tensor, dict[str, float]]:
    """ℓ + weight · Σ extra, and Σ extra as a number beside the likelihood where there is any."""
    if not losses:
        return loss, numbers
    total = sum(losses)
    return loss + batch.weight * total, {**numbers, "extra": float(total.detach())}


def next_token(model: nn.Module, batch: TokenBatch, state: State = None, smoothing: float = 0.0) -> Result:
    """-ln P(w₁ … w_T) = Σₜ -ln P(wₜ | w₍<t₎)   [E2, E3]"""
    with collecting_aux_losses(model) as losses:
        h, state = model.features(batch.ids, state)
    loss, numbers = add_aux_losses(*token_loss(model, h, batch.targets, batch.mask, smoothing), losses, batch)
    return loss, numbers, state


def translation(model: nn.Module, batch: PairBatch, state: State = None, smoothing: float = 0.1) -> Result:
    """-ln P(y | x) = Σₜ -ln P(yₜ | y₍<t₎, x)   [E6]"""
    with collecting_aux_losses(model) as losses:
        h, _ = model.features(batch.ids, model.start(batch.source, batch.source_mask), batch.mask)
    loss, numbers = add_aux_losses(*token_loss(model, h, batch.targets, batch.mask, smoothing), losses, batch)
    return loss, numbers, None
