"""How good a reward model or a policy is  [I8]: accuracy and calibration on preferences, likelihood of preferred answers, reward and KL of
sampled texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import chain
from typing import Any, cast

import numpy as np
import torch

from seqloom.batches.batch import Batch
from seqloom.batches.preference import JudgedBatch, PreferenceBatch
from seqloom.batches.rollout import RolloutBatch
from seqloom.inference.answers import evaluating
from seqloom.measure.classification import BINS, Calibration
from seqloom.measure.number import Number, make_signature, percent, wilson
from seqloom.measure.preferences import ranking_accuracy, ranking_interval
from seqloom.models.base import Model
from seqloom.objectives.policy import token_log_probs
from seqloom.objectives.preference import RewardScorer, bradley_terry_loss

Conditions = dict[str, object]


def measure(model: Model, objective: Callable, batches: Iterable[Batch], shared: Conditions) -> list[Number]:
    """The scores of a reward model on feedback, or those of a language model on preferences."""
    if model.task == "reward":
        return feedback_numbers(model, objective, batches, shared)
    return likelihood_numbers(model, batches, shared)


def feedback_numbers(
    model: Model, objective: Callable, batches: Iterable[Batch], shared: Conditions
) -> list[Number]:
    """The scores on held-out batches: of a reward model or a policy on preferences, or of the texts that a policy has sampled."""
    stream: Any = iter(batches)  # all of one type
    with evaluating(model):
        first = next(stream, None)
        if first is None:
            return []
        stream = chain([first], stream)
        scorer = cast(RewardScorer, model)
        if isinstance(first, RolloutBatch):
            return rollout_numbers(stream, shared)
        if isinstance(first, JudgedBatch):
            return judged_numbers(scorer, objective, stream, shared)
        if model.task == "reward":
            margins = [margin for batch in stream for margin in reward_margins(scorer, batch)]
            return reward_numbers(margins, shared)
        return preference_numbers(model, objective, stream, shared)


def preference_numbers(
    model: Model, objective: Callable, batches: Iterable[Batch], shared: Conditions
) -> list[Number]:
    """How often a policy's objective is right on preferences, and its loss."""
    correct = count = 0
    nats = 0.0
    for batch in batches:
        _, numbers, _ = objective(model, batch, None)
        nats += numbers["nats"]
        correct += numbers["correct"]
        count += batch.num_targets
    signature = make_signature("preferences", {"pairs": count, **shared})
    return [
        accuracy_number("preference_accuracy", correct, count, signature),
        Number("preference_loss", nats / max(count, 1), signature, n=count),
    ]


def likelihood_numbers(model: Model, batches: Iterable[Batch], shared: Conditions) -> list[Number]:
    """How often a language model gives the chosen answer a higher probability than the rejected one, as a whole and by the mean of its
    tokens; and the perplexity of the chosen answers."""
    margins: list[float] = []
    mean_margins: list[float] = []
    nats = tokens = 0.0
    with evaluating(model):
        for batch in batches:
            pairs = as_preferences(batch)
            log_probs, _ = token_log_probs(model, pairs.ids, pairs.targets, pairs.mask)
            totals = log_probs.sum(1).view(-1, pairs.num_pairs)[:2, pairs.counted]
            counts = pairs.mask.sum(1).view(-1, pairs.num_pairs)[:2, pairs.counted]
            means = totals / counts.clamp(min=1)
            margins += (totals[0] - totals[1]).tolist()
            mean_margins += (means[0] - means[1]).tolist()
            nats -= float(totals[0].sum())
            tokens += float(counts[0].sum())
    count = len(margins)
    signature = make_signature("preferences", {"pairs": count, **shared})
    return [
        accuracy_number("preference_accuracy", count_right(margins), count, signature),
        accuracy_number("accuracy_by_mean", count_right(mean_margins), count, signature),
        Number("perplexity_of_chosen", math.exp(nats / max(tokens, 1)), signature, n=int(tokens)),
    ]


def implicit_reward_numbers(
    model: Model, reference: Model, batches: Iterable[Batch], shared: Conditions, beta: float
) -> list[Number]:
    """The reward that a policy implies, β (ln π - ln π_ref), measured like that of a reward model: how often the chosen answer has gained more
    probability over the reference than the rejected one. Before training every pair is a tie, which is half right."""
    margins: list[float] = []
    with evaluating(model), evaluating(reference):
        for batch in batches:
            pairs = as_preferences(batch)
            own, base = (
                token_log_probs(policy, pairs.ids, pairs.targets, pairs.mask)[0].sum(1)
                for policy in (model, reference)
            )
            ratios = (own - base).view(-1, pairs.num_pairs)[:2, pairs.counted]
            margins += (beta * (ratios[0] - ratios[1])).tolist()
    accuracy, loss, calibration = reward_numbers(margins, {**shared, "beta": beta})
    return [
        replace(accuracy, name="implicit_reward_accuracy"),
        replace(loss, name="implicit_reward_loss"),
        calibration,
    ]


def as_preferences(batch: Batch) -> PreferenceBatch:
    """The batch, which must have preferences."""
    if not isinstance(batch, PreferenceBatch):
        raise TypeError(f"{type(batch).__name__} has no preferences")
    return batch


def count_right(margins: list[float]) -> float:
    """How many margins are positive; a tie is half right."""
    return sum((margin > 0) + 0.5 * (margin == 0) for margin in margins)


def accuracy_number(name: str, right: float, count: int, signature: str) -> Number:
    """The accuracy in per cent with Wilson's interval."""
    return Number(
        name, 100 * right / max(count, 1), signature, *percent(wilson(round(right), count)), n=count
    )


def reward_margins(model: RewardScorer, batch: PreferenceBatch) -> list[float]:
    """r(chosen) - r(rejected) of each pair that counts."""
    rewards = model.scores((batch.tokens, batch.token_mask)).float().view(-1, batch.num_pairs)
    return (rewards[0] - rewards[1])[batch.counted].tolist()


def reward_numbers(margins: list[float], shared: Conditions) -> list[Number]:
    """Accuracy, -ln P and calibration of a reward model on preferences; a tie is half right."""
    count = len(margins)
    nll = float(bradley_terry_loss(torch.tensor(margins), torch.zeros(count)).mean())
    calibration = Calibration()  # of the answer that the model prefers
    calibration.add(torch.tensor(margins).abs().sigmoid().numpy(), np.array(margins) > 0)
    signature = make_signature("preferences", {"pairs": count, **shared})
    return [
        accuracy_number("preference_accuracy", count_right(margins), count, signature),
        Number("preference_loss", nll, signature, n=count),
        Number("calibration_error", 100 * calibration.error(), f"{signature}|bins:{BINS}", n=count),
    ]


def judged_numbers(
    model: RewardScorer, objective: Callable, batches: Iterable[JudgedBatch], shared: Conditions
) -> list[Number]:
    """Of the scores of good and of bad answers: how often the sign is right, how often a good one is above a bad one, calibration."""
    good: list[float] = []
    bad: list[float] = []
    nats = 0.0
    for batch in batches:
        scores = model.scores((batch.tokens, batch.token_mask))[batch.mask]
        is_good = batch.targets[batch.mask] > 0
        good += scores[is_good].tolist()
        bad += scores[~is_good].tolist()
        _, numbers, _ = objective(model, batch, None)
        nats += numbers["nats"]
    count = len(good) + len(bad)
    right = sum(score > 0 for score in good) + sum(score <= 0 for score in bad)
    ranking = percent(ranking_interval(good, bad))
    calibration = Calibration()  # of the judgement that the model finds more probable
    values = np.array([*good, *(-score for score in bad)])
    calibration.add(1 / (1 + np.exp(-np.abs(values))), values > 0)
    signature = make_signature("judged", {"answers": count, **shared})
    return [
        accuracy_number("accuracy", right, count, signature),
        Number("ranking_accuracy", 100 * ranking_accuracy(good, bad), signature, *ranking, n=count),
        Number("share_of_good", 100 * len(good) / count, signature, n=count),
        Number("nats_per_answer", nats / count, signature, n=count),
        Number("calibration_error", 100 * calibration.error(), f"{signature}|bins:{BINS}", n=count),
    ]


def rollout_numbers(batches: Iterable[RolloutBatch], shared: Conditions) -> list[Number]:
    """Means over sampled texts with their normal intervals."""
    texts: dict[str, list[float]] = {"score": [], "reward": [], "kl": [], "length": []}
    for batch in batches:
        texts["score"] += batch.scores.tolist()
        texts["reward"] += batch.rewards.tolist()
        texts["kl"] += batch.kl.tolist()
        texts["length"] += batch.mask.sum(1).tolist()
    numbers = []
    for name, title in (
        ("score", "penalised_reward"),
        ("reward", "reward"),
        ("kl", "kl"),
        ("length", "tokens_per_text"),
    ):
        values = np.array(texts[name])
        mean = float(values.mean())
        half = 1.96 * float(values.std(ddof=1)) / math.sqrt(len(values)) if len(values) > 1 else math.nan
        low, high = (mean - half, mean + half) if math.isfinite(half) else (None, None)
        signature = make_signature("sampled", {"texts": len(values), **shared})
        numbers.append(Number(title, mean, signature, low, high, n=len(values)))
    return numbers
