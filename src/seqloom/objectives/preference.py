"""Learning from preferences: of two texts for one prompt, the first was preferred  [I8, T16].

`bradley_terry` trains a reward model; `dpo` trains a policy directly, against a frozen reference whose ln P the batch carries.
The losses are sums over pairs, and `num_targets` of the batch is the number of pairs.
"""

from __future__ import annotations

from typing import Literal, Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batches.preference import JudgedBatch, PreferenceBatch
from seqloom.errors import ConfigError
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import FeatureModel, Result, Trainable
from seqloom.objectives.policy import token_log_probs

PreferenceLoss = Literal["dpo", "ipo", "kto"]


class RewardScorer(Trainable, Protocol):
    """A model that scores a text."""

    def scores(self, text: tuple[Tensor, Tensor], pair: None = None) -> Tensor: ...


def bradley_terry_loss(chosen: Tensor, rejected: Tensor, margins: Tensor | float = 0.0) -> Tensor:
    """ℓ = -ln σ(r(x, y₊) - r(x, y₋) - m)   [I8]

    Bradley and Terry: P(y₊ preferred) = σ(r₊ - r₋). The margin m asks for more than being preferred, where the data say by
    how much (Touvron et al. 2023).
    """
    return -F.logsigmoid(chosen - rejected - margins)


def bradley_terry(
    model: RewardScorer,
    batch: PreferenceBatch,
    state: State = None,
    margin_weight: float = 0.0,
    center: float = 0.0,
) -> Result:
    """ℓ = Σ_pairs [-ln σ(r₊ - r₋ - margin_weight · m) + center · (r₊ + r₋)²]

    A reward is defined up to a constant for each prompt; `center` makes it 0 on average. In training and in evaluation `nats` is the
    loss without margin and centre; `correct` counts the pairs with r₊ > r₋.
    """
    rewards = model.scores((batch.tokens, batch.token_mask)).float()
    chosen, rejected = rewards.view(-1, batch.num_pairs)[:2, batch.counted]
    nats = bradley_terry_loss(chosen, rejected).sum()
    margins = margin_weight * batch.margins[batch.counted]
    loss = bradley_terry_loss(chosen, rejected, margins).sum() + center * (chosen + rejected).square().sum()
    return loss, {"nats": float(nats.detach()), "correct": int((chosen > rejected).sum())}, None


def judged(model: RewardScorer, batch: JudgedBatch, state: State = None) -> Result:
    """ℓ = Σ_answers -ln σ(r) for a good answer, -ln σ(-r) for a bad one: a reward model from single judgements"""
    rewards = model.scores((batch.tokens, batch.token_mask)).float()[batch.mask]
    targets = batch.targets[batch.mask]
    loss = F.binary_cross_entropy_with_logits(rewards, targets, reduction="sum")
    return loss, {"nats": float(loss.detach()), "correct": int(((rewards > 0) == (targets > 0)).sum())}, None


def preference_loss(
    chosen: Tensor,
    rejected: Tensor,
    loss: PreferenceLoss = "dpo",
    beta: float = 0.1,
    smoothing: float = 0.0,
    baseline: Tensor | float = 0.0,
) -> Tensor:
    """With h = ln π(y | x) - ln π_ref(y | x) of the chosen text, h₊, and of the rejected one, h₋:

    dpo   ℓ = -(1 - ε) ln σ(β (h₊ - h₋)) - ε ln σ(-β (h₊ - h₋))     (Rafailov et al. 2023)
    ipo   ℓ = (h₊ - h₋ - 1/2β)²                                     (Azar et al. 2024)
    kto   ℓ = 1 - σ(β (h₊ - z)) + 1 - σ(β (z - h₋))                 (Ethayarajh et al. 2024)

    z is the `baseline`, an estimate of KL(π ‖ π_ref) that has no gradient.
    """
    difference = chosen - rejected
    if loss == "dpo":
        right, wrong = F.logsigmoid(beta * difference), F.logsigmoid(-beta * difference)
        return -(1 - smoothing) * right - smoothing * wrong
    if loss == "ipo":
        return (difference - 1 / (2 * beta)).square()
    return torch.sigmoid(beta * (baseline - chosen)) + torch.sigmoid(beta * (rejected - baseline))


def dpo(
    model: FeatureModel,
    batch: PreferenceBatch,
    state: State = None,
    loss: PreferenceLoss = "dpo",
    beta: float = 0.1,
    smoothing: float = 0.0,
    chosen_weight: float = 0.0,
) -> Result:
    """ℓ = Σ_pairs -ln σ(β [ln π(y₊)/π_ref(y₊) - ln π(y₋)/π_ref(y₋)]) - chosen_weight · ln π(y₊) / |y₊|   [I8];   `preference_loss` has the others

    The optimum over all pairs is π*(y | x) ∝ π_ref(y | x) exp(r(x, y)/β), without a reward model. KTO compares both texts with
    z = max(0, mean ln π(y')/π_ref(y')), where y' is the chosen text of another pair of the batch. `correct` counts the pairs
    with h₊ > h₋. The difference can also grow while both texts become less probable; `chosen_weight` keeps the chosen one probable
    (Pang et al. 2024), and `nats` is without it.
    """
    if batch.reference is None:
        raise ConfigError("dpo compares a policy with the run it begins from: pass --from RUN")
    log_probs, _ = token_log_probs(model, batch.ids, batch.targets, batch.mask)
    ratios = (log_probs.sum(1) - batch.reference).view(-1, batch.num_pairs)[:, batch.counted]
    baseline: Tensor | float = 0.0
    if loss == "kto":
        if len(ratios) < 3:
            raise ConfigError("objective.loss=kto needs mismatched pairs: set batches.mismatched=true")
        baseline = ratios[2].detach().mean().clamp(min=0)
    losses = preference_loss(ratios[0], ratios[1], loss, beta, smoothing, baseline)
    numbers = {
        "nats": float(losses.detach().sum()),
        "correct": int((ratios[0] > ratios[1]).sum()),
    }
    if chosen_weight:
        lengths = batch.mask.sum(1).view(-1, batch.num_pairs)[0, batch.counted]
        chosen = log_probs.sum(1).view(-1, batch.num_pairs)[0, batch.counted]
        losses = losses - chosen_weight * chosen / lengths.clamp(min=1)
    return losses.sum(), numbers, None
