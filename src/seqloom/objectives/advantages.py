"""Advantages and KL estimates of reinforcement from rewards  [I8, T16]: how much better a sampled text, or one of its tokens, is
than expected, and how far the policy π has moved from its reference.

Pure functions of tensors without gradients: `train/rollouts.py` computes them once for the texts that it samples.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

KL = Literal["k1", "k2", "k3"]


def gae(rewards: Tensor, values: Tensor, mask: Tensor, discount: float = 1.0, decay: float = 0.95) -> Tensor:
    """Aₜ = Σ_{l ≥ 0} (γλ)ˡ δₜ₊ₗ,   δₜ = rₜ + γ Vₜ₊₁ - Vₜ,   computed from the end: Aₜ = δₜ + γλ Aₜ₊₁

    (Schulman et al. 2016.) γ is `discount`, λ is `decay`. All are (B, T); `mask` is True at the tokens of a text, which are
    consecutive. After the last token V and A are 0, and A is 0 outside the mask.
    """
    rewards, values = (torch.where(mask, x, 0.0) for x in (rewards, values))
    advantages = torch.zeros_like(values)
    next_value = values.new_zeros(len(values))
    next_advantage = next_value
    for t in range(values.shape[1] - 1, -1, -1):
        delta = rewards[:, t] + discount * next_value - values[:, t]
        next_advantage = (delta + discount * decay * next_advantage) * mask[:, t]
        advantages[:, t] = next_advantage
        next_value = values[:, t]
    return advantages


def leave_one_out(rewards: Tensor) -> Tensor:
    """Aᵢ = rᵢ - 1/(n - 1) Σ_{j ≠ i} rⱼ   for the n samples of a prompt, (…, n) → (…, n)

    The baseline does not depend on the sample, so the gradient of REINFORCE stays unbiased (Kool et al. 2019).
    """
    samples = rewards.shape[-1]
    return (rewards - rewards.mean(-1, keepdim=True)) * (samples / (samples - 1))


def group_relative(rewards: Tensor, divide: bool = True) -> Tensor:
    """Aᵢ = rᵢ - r̄,   with `divide`  (rᵢ - r̄) / (s + 10⁻⁶),   s² = 1/(n - 1) Σ (rⱼ - r̄)²,   (…, n) → (…, n)

    GRPO (Shao et al. 2024). Without the division it is `leave_one_out` times (n - 1)/n. With it every prompt has the same weight,
    however little its samples differ; a penalty that is not divided too then has another weight for each prompt, and another optimum.
    """
    centered = rewards - rewards.mean(-1, keepdim=True)
    return centered / (rewards.std(-1, keepdim=True) + 1e-6) if divide else centered


def kl_estimate(log_probs: Tensor, reference: Tensor, kind: KL = "k1") -> Tensor:
    """Of a sample y ~ π, with x = ln π_ref(y) - ln π(y):   k1 = -x,   k2 = x²/2,   k3 = eˣ - 1 - x

    (Schulman 2020.) k1 and k3 are unbiased: their mean is KL(π ‖ π_ref). k3 is never negative. k2 is biased; it is
    small where the two are close, and its gradient, not its value, is unbiased at the policy that sampled y.
    """
    x = reference - log_probs
    if kind == "k1":
        return -x
    if kind == "k2":
        return x.square() / 2
    return x.expm1() - x
