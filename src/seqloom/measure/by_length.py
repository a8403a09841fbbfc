"""A metric in buckets of source length: where long texts are harder, it shows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from seqloom.measure.number import Number, bootstrap
from seqloom.results import Result

BUCKETS = 5


@dataclass(frozen=True)
class LengthBucket(Result):
    """A metric over the records whose source has `shortest` to `longest` words."""

    shortest: int
    longest: int
    number: Number


class ScoredRecords(NamedTuple):
    """A metric that can be computed for any part of the records, since it depends on sums of their statistics only."""

    name: str
    lengths: Sequence[int]  # words of each source
    statistics: np.ndarray  # (N, k)
    scores: Callable[[np.ndarray], np.ndarray]  # sums of statistics (R, k) → metrics (R,)


def length_buckets(lengths: Sequence[int], count: int = BUCKETS) -> list[tuple[int, int]]:
    """Lengths cut into at most `count` ranges with about as many records each, as (shortest, longest)."""
    ordered = sorted(lengths)
    if not ordered:
        return []
    edges = sorted({ordered[min(len(ordered) - 1, len(ordered) * part // count)] for part in range(1, count)})
    starts = [ordered[0], *(edge for edge in edges if edge > ordered[0])]
    return [(low, high - 1) for low, high in zip(starts, [*starts[1:], ordered[-1] + 1], strict=True)]


def by_length(records: ScoredRecords, signature: str) -> list[LengthBucket]:
    """The metric in each bucket of lengths, with its interval."""
    lengths = np.array(records.lengths)
    buckets = []
    for shortest, longest in length_buckets(records.lengths):
        inside = (lengths >= shortest) & (lengths <= longest)
        statistics = records.statistics[inside]
        value = float(records.scores(statistics.sum(0, keepdims=True))[0])
        low, high = bootstrap(statistics, records.scores)
        number = Number(
            records.name, value, f"{signature}|words:{shortest}-{longest}", low, high, int(inside.sum())
        )
        buckets.append(LengthBucket(shortest, longest, number))
    return buckets


def percentage(sums: np.ndarray) -> np.ndarray:
    """Sums of what is right and of all, (R, 2), in per cent."""
    return 100 * sums[:, 0] / sums[:, 1].clip(1)


def root_mean(sums: np.ndarray) -> np.ndarray:
    """√(Σ errors² / n) of sums of both, (R, 2)."""
    return np.sqrt(sums[:, 0] / sums[:, 1].clip(1))
