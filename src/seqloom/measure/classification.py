"""How well labels are told: accuracy, F1 of each label, what is taken for what, and whether a probability means what it says.

Added up batch by batch: memory does not grow with the data.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from seqloom.measure.number import Number, make_signature

BINS = 15


class Confusion:
    """counts[i, j]: how often label i was taken for label j."""

    def __init__(self, labels: Sequence[str]):
        self.labels = list(labels)
        self.counts = np.zeros((len(self.labels), len(self.labels)), np.int64)

    def add(self, right: np.ndarray, said: np.ndarray) -> None:
        np.add.at(self.counts, (np.asarray(right), np.asarray(said)), 1)

    def accuracy(self) -> float:
        """Σ counts[i, i] / Σ counts"""
        return float(np.trace(self.counts) / max(self.counts.sum(), 1))

    def f1(self) -> np.ndarray:
        """2 · hits / (right + said) for each label; 0 for one that is neither."""
        hits, total = np.diag(self.counts), self.counts.sum(0) + self.counts.sum(1)
        return 2 * hits / np.maximum(total, 1)

    def macro(self) -> float:
        """The mean F1 of the labels that occur, in the data or in the answers."""
        there = (self.counts.sum(0) + self.counts.sum(1)) > 0
        return float(self.f1()[there].mean()) if there.any() else 0.0

    def lines(self) -> list[str]:
        """A table for people: a row for each label of the data, a column for what it was taken for, and each label's F1."""
        shown = np.flatnonzero(self.counts.sum(0) + self.counts.sum(1))
        names = [self.labels[i] for i in shown]
        wide = max([5, *map(len, names)])
        cell = max([5, *(len(f"{n:,}") for n in self.counts.ravel()), *map(len, names)]) + 1
        head = f"{'right':{wide}} " + "".join(f"{name:>{cell}}" for name in names) + f"{'F1':>8}"
        rows = [
            f"{self.labels[i]:{wide}} "
            + "".join(f"{self.counts[i, j]:>{cell},}" for j in shown)
            + f"{100 * self.f1()[i]:8.2f}"
            for i in shown
        ]
        return [head, *rows]

    def json(self) -> dict[str, object]:
        return {"labels": self.labels, "counts": self.counts.tolist()}


class Calibration:
    """Expected calibration error: Σ_b n_b / n |accuracy_b - confidence_b| over `BINS` equal bins of the probability of what was said (Guo et al.)."""

    def __init__(self) -> None:
        self.sums = np.zeros((3, BINS))  # how many, right ones, probability

    def add(self, probability: np.ndarray, right: np.ndarray) -> None:
        place = np.clip(np.ceil(np.asarray(probability, np.float64) * BINS).astype(int) - 1, 0, BINS - 1)
        for row, values in enumerate((np.ones(len(place)), right, probability)):
            np.add.at(self.sums[row], place, values)

    def error(self) -> float:
        count, right, said = self.sums
        return float(np.abs(right - said).sum() / max(count.sum(), 1))


def classification_metrics(
    confusion: Confusion, calibration: Calibration, what: str, facts: dict[str, object]
) -> list[Number]:
    """Accuracy and macro F1 in per cent, and the expected calibration error."""
    count = {what: int(confusion.counts.sum()), "labels": len(confusion.labels)}
    return [
        Number("accuracy", 100 * confusion.accuracy(), make_signature("accuracy", {**count, **facts})),
        Number("macro F1", 100 * confusion.macro(), make_signature("macro-F1", {**count, **facts})),
        Number(
            "calibration error",
            100 * calibration.error(),
            make_signature("ECE", {"bins": BINS, **count, **facts}),
        ),
    ]
