"""Spans of words that tags mark (names, phrases): BIO and its kin, and their F1 as conlleval and seqeval count it."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from seqloom.measure.number import Number, make_signature

BEGINS, INSIDE, ENDS = "BSU", "IEM", "ESLU"


def has_span_tags(labels: Sequence[str]) -> bool:
    """Whether labels mark spans: a mark and a kind (`B-PER`), and `O` for the rest."""
    marks = [label for label in labels if label != "O"]
    return bool(marks) and all(label[1:2] == "-" and label[0] in "BIESLUM" for label in marks)


def spans(tags: Sequence[str]) -> set[tuple[str, int, int]]:
    """(kind, first, last) of each span of a sentence. As conlleval reads it: a span also begins where an inside follows another kind or nothing."""
    split = [(tag[0], tag[2:]) if tag != "O" else ("O", "") for tag in tags]
    found, start = set(), 0
    for place, ((mark, kind), (after, next_kind)) in enumerate(pairwise([("O", ""), *split, ("O", "")])):
        if mark != "O" and (mark in ENDS or after == "O" or after in BEGINS or kind != next_kind):
            found.add((kind, start, place - 1))
        if after != "O" and (after in BEGINS or mark == "O" or mark in ENDS or kind != next_kind):
            start = place
    return found


class Spans:
    """Adds up the spans that are right, said, and both."""

    def __init__(self) -> None:
        self.right = self.said = self.hits = 0

    def add(self, right: Sequence[str], said: Sequence[str]) -> None:
        ours, theirs = spans(right), spans(said)
        self.right, self.said, self.hits = (
            self.right + len(ours),
            self.said + len(theirs),
            self.hits + len(ours & theirs),
        )

    def numbers(self, facts: dict[str, object]) -> list[Number]:
        """precision = hits / said;   recall = hits / right;   F1 = 2 hits / (said + right), in per cent."""
        values = {
            "span precision": self.hits / max(self.said, 1),
            "span recall": self.hits / max(self.right, 1),
            "span F1": 2 * self.hits / max(self.said + self.right, 1),
        }
        return [
            Number(name, 100 * value, make_signature(name.replace(" ", "-"), {"spans": self.right, **facts}))
            for name, value in values.items()
        ]
