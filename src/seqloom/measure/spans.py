"""Spans of words that tags mark (names, phrases) in BIO and similar
schemes, and their F1 as conlleval and seqeval compute it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from seqloom.measure.number import Number, RecordSums, make_signature, percent

# The prefixes of tags: those that begin a span, those inside a span, those that end a span.
BEGINS, INSIDE, ENDS = "BSU", "IEM", "ESLU"


def has_span_tags(labels: Sequence[str]) -> bool:
    """Returns whether labels mark spans: a prefix and a type (`B-PER`), and `O` outside spans."""
    tags = [label for label in labels if label != "O"]
    return bool(tags) and all(tag[1:2] == "-" and tag[0] in "BIESLUM" for tag in tags)


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """Returns (type, first word, last word) of each span of a sentence.

    As in conlleval, a span also begins at an inside tag that follows another type or no span.
    """
    parts = [(tag[0], tag[2:]) if tag != "O" else ("O", "") for tag in tags]
    result = set()
    start = 0
    for i, (current, following) in enumerate(pairwise([("O", ""), *parts, ("O", "")])):
        prefix, span_type = current
        next_prefix, next_type = following
        is_other_type = span_type != next_type
        if prefix != "O" and (prefix in ENDS or next_prefix == "O" or next_prefix in BEGINS or is_other_type):
            result.add((span_type, start, i - 1))
        if next_prefix != "O" and (next_prefix in BEGINS or prefix == "O" or prefix in ENDS or is_other_type):
            start = i
    return result


# Of sums of correct, predicted and gold spans, (R, 3) → (R,).
SPAN_METRICS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "span_precision": lambda sums: sums[:, 0] / sums[:, 1].clip(1),
    "span_recall": lambda sums: sums[:, 0] / sums[:, 2].clip(1),
    "span_f1": lambda sums: 2 * sums[:, 0] / (sums[:, 1] + sums[:, 2]).clip(1),
}


class SpanCounts:
    """Counts the spans of the gold tags, those of the predicted tags, and those in both."""

    def __init__(self) -> None:
        self.gold = 0
        self.predicted = 0
        self.correct = 0
        self.records = RecordSums(3)

    def add(self, gold: Sequence[str], predicted: Sequence[str]) -> None:
        """Adds a sentence."""
        gold_spans = spans(gold)
        predicted_spans = spans(predicted)
        self.gold += len(gold_spans)
        self.predicted += len(predicted_spans)
        self.correct += len(gold_spans & predicted_spans)
        self.records.add(len(gold_spans & predicted_spans), len(predicted_spans), len(gold_spans))

    def metrics(self, conditions: dict[str, object]) -> list[Number]:
        """precision = correct / predicted;   recall = correct /
        gold;   F1 = 2 correct / (predicted + gold), in percent."""
        total = np.array([[self.correct, self.predicted, self.gold]], np.float64)
        all_conditions = {"spans": self.gold, **conditions}
        return [
            Number(
                name,
                100 * float(metric(total)[0]),
                make_signature(name.replace("_", "-").replace("f1", "F1"), all_conditions),
                *percent(self.records.interval(metric)),
                n=self.gold,
            )
            for name, metric in SPAN_METRICS.items()
        ]
