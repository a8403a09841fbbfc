"""Maximum likelihood: Φ* = argmin E[-ln P_Φ(y)]   [E1]. An objective is a function (model, batch, state) → loss, numbers, state.

The loss is a sum over the batch's counted tokens; the training loop divides by their number over all ranks and micro-batches, so that
any split of a batch gives the same gradient. What parts add while training (`nn/extra.py`) is a mean over tokens and joins weighed with
the batch's count; evaluation leaves it out.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

from torch import Tensor, nn

from seqloom.data.batch import Batch, Pair, Tokens
from seqloom.nn import extra
from seqloom.nn.state import State

Result = tuple[Tensor, dict[str, float], State]


def cross_entropy(
    model: nn.Module, h: Tensor, targets: Tensor, mask: Tensor, smoothing: float
) -> tuple[Tensor, dict[str, float]]:
    """ℓ = Σₜ [(1 - ε) (-ln P(wₜ)) + ε mean_w (-ln P(w))]   [E3], and the part without ε as `nats`. Only counted positions reach the output."""
    if not mask.all():
        h, targets = h[mask], targets[mask]
    loss, nats = model.output.losses(h, targets, smoothing if model.training else 0.0)
    return loss.sum(), {"nats": float(nats.detach().sum())}


def collected(model: nn.Module) -> AbstractContextManager[list[Tensor]]:
    """Where the model's parts put losses of their own while it learns."""
    return extra.collect() if model.training else nullcontext([])


def joined(
    loss: Tensor, numbers: dict[str, float], losses: list[Tensor], batch: Batch
) -> tuple[Tensor, dict[str, float]]:
    """ℓ + weight · Σ extra, and Σ extra as a number beside the likelihood where there is any."""
    if not losses:
        return loss, numbers
    total = sum(losses)
    return loss + batch.weight * total, {**numbers, "extra": float(total.detach())}


def next_token(model: nn.Module, batch: Tokens, state: State = None, smoothing: float = 0.0) -> Result:
    """-ln P(w₁ … w_T) = Σₜ -ln P(wₜ | w₍<t₎)   [E2, E3]"""
    with collected(model) as losses:
        h, state = model.features(batch.ids, state)
    loss, numbers = joined(*cross_entropy(model, h, batch.targets, batch.mask, smoothing), losses, batch)
    return loss, numbers, state


def translation(model: nn.Module, batch: Pair, state: State = None, smoothing: float = 0.1) -> Result:
    """-ln P(y | x) = Σₜ -ln P(yₜ | y₍<t₎, x)   [E6]"""
    with collected(model) as losses:
        h, _ = model.features(batch.ids, model.start(batch.source, batch.source_mask), batch.mask)
    loss, numbers = joined(*cross_entropy(model, h, batch.targets, batch.mask, smoothing), losses, batch)
    return loss, numbers, None
