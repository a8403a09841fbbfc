"""How good a reward model or a policy is  [I8]: accuracy and calibration on preferences, likelihood of preferred answers, reward and KL of
sampled texts."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np
import torch

from seqloom.batches.batch import Batch
from seqloom.batches.preference import JudgedBatch, PreferenceBatch
from seqloom.batches.rollout import RolloutBatch
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


@torch.no_grad()
def feedback_numbers(
    model: Model, objective: Callable, batches: Iterable[Batch], shared: Conditions
) -> list[Number]:
    """The scores on held-out batches: of a reward model or a policy on preferences, or of the texts that a policy has sampled."""
    was_training = model.training
    model.eval()
    margins: list[float] = []
    judged: dict[bool, list[float]] = {True: [], False: []}  # scores of good and of bad answers
    correct = count = 0
    nats = 0.0
    texts: dict[str, list[float]] = {"reward": [], "kl": [], "length": [], "score": []}
    for batch in batches:
        if isinstance(batch, RolloutBatch):
            texts["reward"] += batch.rewards.tolist()
            texts["kl"] += batch.kl.tolist()
            texts["length"] += batch.mask.sum(1).tolist()
            texts["score"] += batch.scores.tolist()
            continue
        if isinstance(batch, PreferenceBatch) and model.task == "reward":
            margins += reward_margins(model, batch)  # type: ignore[arg-type]
            continue
        if isinstance(batch, JudgedBatch):
            scores = model.scores((batch.tokens, batch.token_mask)).tolist()  # type: ignore[operator]
            for score, target, counted in zip(
                scores, batch.targets.tolist(), batch.mask.tolist(), strict=True
            ):
                if counted:
                    judged[target > 0].append(score)
        _, numbers, _ = objective(model, batch, None)
        nats += numbers["nats"]
        correct += numbers["correct"]
        count += batch.num_targets
    model.train(was_training)
    if margins:
        return reward_numbers(margins, shared)
    if count:
        if model.task == "reward":  # single judgements
            return judged_numbers(judged, nats / count, shared)
        interval = percent(wilson(correct, count))
        signature = make_signature("preferences", {"pairs": count, **shared})
        return [
            Number("preference_accuracy", 100 * correct / count, signature, *interval, n=count),
            Number("preference_loss", nats / count, signature, n=count),
        ]
    return rollout_numbers(texts, shared)


@torch.no_grad()
def likelihood_numbers(model: Model, batches: Iterable[Batch], shared: Conditions) -> list[Number]:
    """How often a language model gives the chosen answer a higher probability than the rejected one, as a whole and by the mean of its
    tokens; and the perplexity of the chosen answers."""
    model.eval()
    margins: list[float] = []
    mean_margins: list[float] = []
    nats = tokens = 0.0
    for batch in batches:
        if not isinstance(batch, PreferenceBatch):
            raise TypeError(f"{type(batch).__name__} has no preferences")
        log_probs, _ = token_log_probs(model, batch.ids, batch.targets, batch.mask)
        totals = log_probs.sum(1).view(-1, batch.num_pairs)[:2, batch.counted]
        counts = batch.mask.sum(1).view(-1, batch.num_pairs)[:2, batch.counted]
        means = totals / counts.clamp(min=1)
        margins += (totals[0] - totals[1]).tolist()
        mean_margins += (means[0] - means[1]).tolist()
        nats -= float(totals[0].sum())
        tokens += float(counts[0].sum())
    count = len(margins)
    signature = make_signature("preferences", {"pairs": count, **shared})
    numbers = []
    for name, values in (("preference_accuracy", margins), ("accuracy_by_mean", mean_margins)):
        right = sum((margin > 0) + 0.5 * (margin == 0) for margin in values)
        interval = percent(wilson(round(right), count))
        numbers.append(Number(name, 100 * right / max(count, 1), signature, *interval, n=count))
    numbers.append(Number("perplexity_of_chosen", math.exp(nats / max(tokens, 1)), signature, n=int(tokens)))
    return numbers


@torch.no_grad()
def implicit_reward_numbers(
    model: Model, reference: Model, batches: Iterable[Batch], shared: Conditions, beta: float
) -> list[Number]:
    """The reward that a policy implies, β (ln π - ln π_ref), measured like that of a reward model: how often the chosen answer has gained more
    probability over the reference than the rejected one. Before training every pair is a tie, which is half right."""
    margins: list[float] = []
    for policy in (model, reference):
        policy.eval()
    for batch in batches:
        if not isinstance(batch, PreferenceBatch):
            raise TypeError(f"{type(batch).__name__} has no preferences")
        own, base = (
            token_log_probs(policy, batch.ids, batch.targets, batch.mask)[0].sum(1)
            for policy in (model, reference)
        )
        ratios = (own - base).view(-1, batch.num_pairs)[:2, batch.counted]
        margins += (beta * (ratios[0] - ratios[1])).tolist()
    accuracy, loss, calibration = reward_numbers(margins, {**shared, "beta": beta})
    return [
        replace(accuracy, name="implicit_reward_accuracy"),
        replace(loss, name="implicit_reward_loss"),
        calibration,
    ]


def reward_margins(model: RewardScorer, batch: PreferenceBatch) -> list[float]:
    """r(chosen) - r(rejected) of each pair that counts."""
    rewards = model.scores((batch.tokens, batch.token_mask)).float().view(-1, batch.num_pairs)
    return (rewards[0] - rewards[1])[batch.counted].tolist()


def reward_numbers(margins: list[float], shared: Conditions) -> list[Number]:
    """Accuracy, -ln P and calibration of a reward model on preferences; a tie is half right."""
    count = len(margins)
    right = sum((margin > 0) + 0.5 * (margin == 0) for margin in margins)
    nll = float(bradley_terry_loss(torch.tensor(margins), torch.zeros(count)).mean())
    calibration = Calibration()  # of the answer that the model prefers
    calibration.add(torch.tensor(margins).abs().sigmoid().numpy(), np.array(margins) > 0)
    signature = make_signature("preferences", {"pairs": count, **shared})
    return [
        Number(
            "preference_accuracy",
            100 * right / count,
            signature,
            *percent(wilson(round(right), count)),
            n=count,
        ),
        Number("preference_loss", nll, signature, n=count),
        Number("calibration_error", 100 * calibration.error(), f"{signature}|bins:{BINS}", n=count),
    ]


def judged_numbers(scores: dict[bool, list[float]], nats: float, shared: Conditions) -> list[Number]:
    """Of the scores of good and of bad answers: how often the sign is right, how often a good one is above a bad one, calibration."""
    good, bad = scores[True], scores[False]
    count = len(good) + len(bad)
    right = sum(score > 0 for score in good) + sum(score <= 0 for score in bad)
    ranking = percent(ranking_interval(good, bad))
    calibration = Calibration()  # of the judgement that the model finds more probable
    values = np.array([*good, *(-score for score in bad)])
    calibration.add(1 / (1 + np.exp(-np.abs(values))), values > 0)
    signature = make_signature("judged", {"answers": count, **shared})
    return [
        Number("accuracy", 100 * right / count, signature, *percent(wilson(right, count)), n=count),
        Number("ranking_accuracy", 100 * ranking_accuracy(good, bad), signature, *ranking, n=count),
        Number("share_of_good", 100 * len(good) / count, signature, n=count),
        Number("nats_per_answer", nats, signature, n=count),
        Number("calibration_error", 100 * calibration.error(), f"{signature}|bins:{BINS}", n=count),
    ]


def rollout_numbers(texts: dict[str, list[float]], shared: Conditions) -> list[Number]:
    """Means over sampled texts with their normal intervals."""
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
