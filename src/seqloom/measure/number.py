"""Numbers with their 95 % intervals and signatures, and how well a model predicts: nats per token, perplexity, and bits per byte, which is
comparable across tokenizers  [W10].

Intervals are Wilson's for a proportion, Fisher's for a correlation, and the bootstrap for what is computed from sums over records. The
bootstrap (Efron) draws as many records as there are, with replacement, `RESAMPLES` times, computes the metric of each draw, and takes the
2.5th and the 97.5th percentile. A metric that depends on sums over the records only, such as BLEU on n-gram counts or F1 on counts of
hits, needs no record twice: a draw is a row of counts, and all draws together one matrix product. The seed is fixed, so the same records
have the same interval.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from seqloom.results import Result

# Names as they are printed, where that is more than the name with spaces for underscores.
TITLES = {
    "accuracy_unknown": "unknown words",
    "answer_f1": "answer F1",
    "attention_hits": "attention on the right region",
    "attention_hits_by_chance": "the same by chance",
    "bleu": "BLEU",
    "bleu_1": "BLEU-1",
    "bleu_2": "BLEU-2",
    "bleu_3": "BLEU-3",
    "bleu_4": "BLEU-4",
    "cer": "character error rate",
    "chrf": "chrF",
    "cider": "CIDEr-D",
    "macro_f1": "macro F1",
    "mae": "MAE",
    "next_segment_accuracy": "next segment",
    "pearson": "Pearson",
    "per": "phoneme error rate",
    "pseudo_perplexity": "pseudo-perplexity",
    "retrieval_recall_1": "retrieval recall@1",
    "rmse": "RMSE",
    "rmse_of_the_mean": "RMSE of the mean",
    "rouge_1": "ROUGE-1",
    "rouge_2": "ROUGE-2",
    "rouge_l": "ROUGE-L",
    "rouge_l_first_sentence": "ROUGE-L, 1st sent.",
    "rouge_l_lead": "ROUGE-L, lead-n",
    "ser": "sentence error rate",
    "span_f1": "span F1",
    "spearman": "Spearman",
    "wer": "word error rate",
}
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


@dataclass(frozen=True)
class Number(Result):
    """One metric. `low` and `high` bound its 95 % interval, None if it has none; `n` is how many records, words or tokens it is over.

    `signature` is `metric|key:value|…`: two numbers can be compared only if their signatures agree in all but the compared key.
    """

    name: str
    value: float
    signature: str
    low: float | None = None
    high: float | None = None
    n: int | None = None

    @property
    def title(self) -> str:
        """The name as it is printed."""
        return TITLES.get(self.name, self.name.replace("_", " "))

    @property
    def interval(self) -> str:
        """The interval as it is printed, as in `[81.4, 86.8]`; empty without one."""
        if self.low is None or self.high is None:
            return ""
        digits = 4 if abs(self.high) < 10 else 2
        return f"[{self.low:.{digits}f}, {self.high:.{digits}f}]"

    def to_dict(self) -> dict[str, Any]:
        fields = super().to_dict()
        return {key: fields[key] for key in ("name", "value", "low", "high", "n", "signature")}


def letter(number: int) -> str:
    """The name of a footnote: a, b, …, z, aa, ab, …"""
    name = ""
    while number >= 0:
        name = chr(ord("a") + number % 26) + name
        number = number // 26 - 1
    return name


def make_signature(metric: str, conditions: dict[str, object]) -> str:
    """Returns the signature of a metric under the given conditions, in one line."""
    return "|".join([metric, *(f"{key}:{value}" for key, value in conditions.items())])


def likelihood(
    nats: float,
    tokens: int,
    num_bytes: int,
    conditions: dict[str, object],
    blocks: RecordSums | None = None,
) -> list[Number]:
    """nats/token = Σ -ln P / N;   perplexity = exp(nats/token);   bits/byte = Σ -ln P / (ln 2 · bytes).

    Every token counts once. Without `num_bytes` there are no bits per byte. `blocks` holds the nats and tokens of each part of the text,
    which the intervals resample; bits per byte keep the ratio of tokens to bytes.
    """
    nats_per_token = nats / max(tokens, 1)
    low, high = nats_interval(blocks) if blocks else (None, None)
    token_conditions = {"tokens": tokens, **conditions}

    def perplexity(nats: float | None) -> float | None:
        return None if nats is None else math.exp(min(nats, 700))

    numbers = [
        Number("nats_per_token", nats_per_token, make_signature("nats", token_conditions), low, high, tokens),
        Number(
            "perplexity",
            math.exp(min(nats_per_token, 700)),
            make_signature("perplexity", token_conditions),
            perplexity(low),
            perplexity(high),
            tokens,
        ),
    ]
    if num_bytes:
        scale = tokens / math.log(2) / num_bytes
        bounds: Interval = (None, None)
        if low is not None and high is not None:
            bounds = (low * scale, high * scale)
        signature = make_signature("bits", {"bytes": num_bytes, **conditions})
        numbers.append(
            Number("bits_per_byte", nats / math.log(2) / num_bytes, signature, *bounds, n=num_bytes)
        )
    return numbers


def nats_interval(blocks: RecordSums) -> Interval:
    """The interval of nats per token, from the nats and tokens of each block."""
    return blocks.interval(lambda sums: sums[:, 0] / sums[:, 1].clip(1))
