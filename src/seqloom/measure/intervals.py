"""95 % intervals: Wilson's for a proportion, Fisher's for a correlation, and the bootstrap for what is computed from sums over records.

The bootstrap (Efron) draws as many records as there are, with replacement, `RESAMPLES` times, computes the metric of each draw, and takes
the 2.5th and the 97.5th percentile. A metric that depends on sums over the records only, such as BLEU on n-gram counts or F1 on counts of
hits, needs no record twice: a draw is a row of counts, and all draws together one matrix product. The seed is fixed, so the same records
have the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np

Interval = tuple[float | None, float | None]
RESAMPLES = 1000
SEED = 0
NORMAL_QUANTILE = 1.959963984540054  # of 0.975
MIN_RECORDS = 5  # fewer say too little about their spread
MAX_ROWS = 4096
MAX_CELLS = 1 << 20  # of the statistics of all rows
DRAWS_PER_BLOCK = 100  # resamples in memory at a time


def wilson(hits: int, count: int) -> Interval:
    """(p + z²/2n ± z √(p(1 - p)/n + z²/4n²)) / (1 + z²/n), with p = hits / n (Wilson 1927); a proportion's interval, between 0 and 1."""
    if not count:
        return None, None
    z = NORMAL_QUANTILE
    p = hits / count
    centre = p + z * z / (2 * count)
    spread = z * math.sqrt(p * (1 - p) / count + z * z / (4 * count * count))
    scale = 1 + z * z / count
    return max(0.0, (centre - spread) / scale), min(1.0, (centre + spread) / scale)


def percent(interval: Interval) -> Interval:
    """An interval in per cent."""
    low, high = interval
    return None if low is None else 100 * low, None if high is None else 100 * high


def draws(count: int, resamples: int = RESAMPLES) -> Iterator[np.ndarray]:
    """How often each of `count` records is drawn, (R, count), in blocks of the `resamples`."""
    generator = np.random.default_rng(SEED)
    for start in range(0, resamples, DRAWS_PER_BLOCK):
        size = min(DRAWS_PER_BLOCK, resamples - start)
        chosen = generator.integers(0, count, (size, count))
        rows = np.arange(size)[:, None] * count
        yield np.bincount((chosen + rows).ravel(), minlength=size * count).reshape(size, count)


def percentiles(values: np.ndarray) -> Interval:
    """The bounds that hold 95 % of the values that are finite."""
    finite = values[np.isfinite(values)]
    if not len(finite):
        return None, None
    low, high = np.quantile(finite, [0.025, 0.975])
    return float(low), float(high)


def bootstrap(statistics: np.ndarray, metric: Callable[[np.ndarray], np.ndarray]) -> Interval:
    """The interval of a metric of sums: `statistics` has a row for each record, `metric` maps sums of rows (R, k) to values (R,)."""
    count = len(statistics)
    if count < MIN_RECORDS:
        return None, None
    statistics = statistics.astype(np.float64)
    return percentiles(np.concatenate([metric(block @ statistics) for block in draws(count)]))


def fisher(correlation: float, count: int, variance: float = 1.0) -> Interval:
    """tanh(atanh r ± z √(variance / (n - 3))): the interval of a correlation by Fisher's transformation. Of Spearman's ρ the variance is
    1 + ρ²/2 (Bonett and Wright 2000), of Pearson's r it is 1."""
    if count <= 3 or abs(correlation) >= 1:
        return None, None
    spread = NORMAL_QUANTILE * math.sqrt(variance / (count - 3))
    centre = math.atanh(correlation)
    return math.tanh(centre - spread), math.tanh(centre + spread)


class RecordSums:
    """The statistics of many records, `size` of each, in a bounded number of rows: when they are full, neighbours are added in pairs.

    The sum of independent records resamples like the records: its variance is the sum of theirs. So memory does not grow with the data.
    """

    def __init__(self, size: int = 1) -> None:
        self.max_rows = 2 * max(256, min(MAX_ROWS, MAX_CELLS // size))
        self.rows: list[np.ndarray] = []
        self.pending: np.ndarray | None = None
        self.pending_count = 0
        self.records_per_row = 1

    def add(self, *statistics: float) -> None:
        """Adds a record."""
        self.add_array(np.array(statistics, np.float64))

    def add_array(self, statistics: np.ndarray) -> None:
        """Adds a record, whose statistics are in an array."""
        self.pending = statistics if self.pending is None else self.pending + statistics
        self.pending_count += 1
        if self.pending_count < self.records_per_row:
            return
        self.rows.append(self.pending)
        self.pending = None
        self.pending_count = 0
        if len(self.rows) == self.max_rows:
            self.rows = [
                first + second for first, second in zip(self.rows[::2], self.rows[1::2], strict=True)
            ]
            self.records_per_row *= 2

    def array(self) -> np.ndarray:
        """All rows; the last may hold fewer records."""
        rows = self.rows if self.pending is None else [*self.rows, self.pending]
        return np.array(rows) if rows else np.zeros((0, 0))

    def interval(self, metric: Callable[[np.ndarray], np.ndarray]) -> Interval:
        """The interval of a metric of sums of the statistics; see `bootstrap`."""
        return bootstrap(self.array(), metric)
