"""Measures of policies: win rate of one over another, diversity of texts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom.measure.number import MIN_RECORDS, NORMAL_QUANTILE, Interval, percent, wilson


class WinRate(NamedTuple):
    """How often the first of two policies is better, in per cent; a tie is half a win."""

    value: float
    low: float | None
    high: float | None
    wins: int
    ties: int
    losses: int


def win_rate(first: Sequence[float], second: Sequence[float]) -> WinRate:
    """The share of prompts for which the first score is above the second, with its 95 % interval (Wilson)."""
    a, b = np.asarray(first), np.asarray(second)
    wins, ties = int((a > b).sum()), int((a == b).sum())
    points = wins + ties / 2
    low, high = percent(wilson(round(points), len(a)))
    return WinRate(100 * points / max(len(a), 1), low, high, wins, ties, len(a) - wins - ties)


def ranking_accuracy(good: Sequence[float], bad: Sequence[float]) -> float:
    """P(a good answer scores above a bad one), the area under the ROC curve; a tie is half, and ½ if one side is empty"""
    a, b = np.asarray(good, np.float64), np.sort(np.asarray(bad, np.float64))
    if not len(a) or not len(b):
        return 0.5
    below, at_most = np.searchsorted(b, a, "left"), np.searchsorted(b, a, "right")
    return float((below + at_most).sum() / (2 * len(a) * len(b)))


def ranking_interval(good: Sequence[float], bad: Sequence[float]) -> Interval:
    """The 95 % interval of the ranking accuracy A, between 0 and 1: logit A ± z √v / (A (1 - A)), with the variance of DeLong et al. (1988),

        v = var(V₊) / n₊ + var(V₋) / n₋,

    where V of an answer is the share of the other side on whose right side it is. No interval for fewer than five on a side.
    """
    a, b = np.asarray(good, np.float64), np.asarray(bad, np.float64)
    if min(len(a), len(b)) < MIN_RECORDS:
        return None, None
    above = (a[:, None] > b).astype(np.float64) + 0.5 * (a[:, None] == b)
    area = float(above.mean())
    variance = above.mean(1).var(ddof=1) / len(a) + above.mean(0).var(ddof=1) / len(b)
    if not 0 < area < 1 or not variance:
        return None, None
    half = NORMAL_QUANTILE * math.sqrt(variance) / (area * (1 - area))
    centre = math.log(area / (1 - area))
    return 1 / (1 + math.exp(half - centre)), 1 / (1 + math.exp(-half - centre))


def distinct(texts: Sequence[str], n: int = 2) -> float:
    """Different n-grams of words / all n-grams, over all texts (Li et al. 2016); 0 if there are none"""
    grams = [tuple(words[i : i + n]) for words in map(str.split, texts) for i in range(len(words) - n + 1)]
    return len(set(grams)) / len(grams) if grams else 0.0
