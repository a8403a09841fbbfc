"""Numbers with their intervals and signatures, and how well a model predicts: nats per token, perplexity, and bits per byte, which is
comparable across tokenizers  [W10]."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from seqloom.measure.intervals import Interval, RecordSums
from seqloom.results import Result

# Names as they are printed, where that is more than the name with spaces for underscores.
TITLES = {
    "accuracy_unknown": "unknown words",
    "answer_f1": "answer F1",
    "bleu": "BLEU",
    "cer": "character error rate",
    "chrf": "chrF",
    "macro_f1": "macro F1",
    "mae": "MAE",
    "next_segment_accuracy": "next segment",
    "pearson": "Pearson",
    "per": "phoneme error rate",
    "pseudo_perplexity": "pseudo-perplexity",
    "rmse": "RMSE",
    "rmse_of_the_mean": "RMSE of the mean",
    "ser": "sentence error rate",
    "span_f1": "span F1",
    "spearman": "Spearman",
    "wer": "word error rate",
}


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
