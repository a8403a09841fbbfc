"""The clipped policy gradient of PPO and GRPO, and the value loss of PPO  [I8, T16].

The texts of a batch were sampled before, by a policy that the steps of this objective leave behind; `train/rollouts.py` samples
them and computes their advantages. The loss is a sum over texts, and `num_targets` of the batch is the number of texts.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from seqloom.batches.rollout import RolloutBatch
from seqloom.nn.layer import State
from seqloom.objectives.advantages import KL, kl_estimate
from seqloom.objectives.likelihood import FeatureModel, Result


class CriticModel(FeatureModel, Protocol):
    """A language model that may also estimate the reward that is still to come."""

    def values(self, h: Tensor) -> Tensor: ...


def token_log_probs(model: FeatureModel, ids: Tensor, targets: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """ln π(yₜ | x, y₍<t₎) of the targets where the mask is True, 0 elsewhere, (B, T); and the features (B, T, D)."""
    h, _ = model.features(ids)
    log_probs = h.new_zeros(targets.shape, dtype=torch.float32)
    return log_probs.masked_scatter(mask, -model.output.nll(h[mask], targets[mask]).float()), h


def clipped_loss(
    log_probs: Tensor, old: Tensor, advantages: Tensor, clip: float = 0.2
) -> tuple[Tensor, Tensor]:
    """ℓₜ = -min(ρ Aₜ, clamp(ρ, 1 - ε, 1 + ε) Aₜ),   ρ = π(yₜ) / π_old(yₜ);   and whether the clamp is active

    (Schulman et al. 2017.) A token whose ratio has left the interval in the direction that its advantage favours has
    no gradient. At ρ = 1 the gradient is -Aₜ ∇ ln π(yₜ), that of REINFORCE.
    """
    ratio = (log_probs - old).exp()
    clamped = ratio.clamp(1 - clip, 1 + clip)
    loss = -torch.minimum(ratio * advantages, clamped * advantages)
    return loss, (clamped * advantages < ratio * advantages).detach()


def value_loss(values: Tensor, old: Tensor, returns: Tensor, clip: float | None = 0.2) -> Tensor:
    """ℓₜ = ½ max((V - Rₜ)², (V_c - Rₜ)²),   V_c = V_old + clamp(V - V_old, -ε, ε);   without `clip`  ½ (V - Rₜ)²"""
    squared = (values - returns).square()
    if clip is None:
        return squared / 2
    limited = old + (values - old).clamp(-clip, clip)
    return torch.maximum(squared, (limited - returns).square()) / 2


def clipped_policy(
    model: CriticModel,
    batch: RolloutBatch,
    state: State = None,
    clip: float = 0.2,
    value_weight: float = 0.5,
    value_clip: float | None = 0.2,
    kl_weight: float = 0.0,
    kl: KL = "k3",
) -> Result:
    """ℓ = Σ_texts Σₜ [-min(ρ Aₜ, clamp(ρ, 1 - ε, 1 + ε) Aₜ) + value_weight · ½ (V - Rₜ)² + kl_weight · k(yₜ)]   [I8]

    PPO with a critic, whose batches have returns; GRPO and REINFORCE leave-one-out without one. `kl_weight` adds the KL estimate
    to the loss as GRPO's authors do; that is not the gradient of KL(π ‖ π_ref), which belongs into the rewards.
    `nats` is minus the sum of the penalised rewards r - β KL that the texts had when they were sampled; the other numbers are sums
    over the texts too.
    """
    mask = batch.mask
    numbers = {
        "nats": -float(batch.scores.sum()),
        "reward": float(batch.rewards.sum()),
        "kl": float(batch.kl.sum()),
        "length": float(mask.sum()),
    }
    if not model.training:  # the held-out texts were sampled by the present policy
        return -batch.scores.sum(), numbers, None
    log_probs, h = token_log_probs(model, batch.ids, batch.targets, mask)
    loss, is_clipped = clipped_loss(log_probs[mask], batch.log_probs[mask], batch.advantages[mask], clip)
    total = loss.sum()
    if batch.returns is not None and batch.values is not None:
        values = model.values(h)[mask]
        total = (
            total
            + value_weight * value_loss(values, batch.values[mask], batch.returns[mask], value_clip).sum()
        )
    if kl_weight:
        total = total + kl_weight * kl_estimate(log_probs[mask], batch.reference[mask], kl).sum()
    numbers["clipped"] = float(is_clipped.float().mean()) * batch.num_targets
    return total, numbers, None
