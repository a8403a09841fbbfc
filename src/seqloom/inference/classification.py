"""A label for a text, or for a pair of texts  [T2, T11, T12]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches import Labelled
from seqloom.batches.buckets import rows
from seqloom.inference.in_order import predict_in_order
from seqloom.measure import Number
from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.run import Run


class Label(NamedTuple):
    """The most probable label, its probability, and that of every label."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def json(self) -> dict[str, Any]:
        every = {name: round(p, 6) for name, p in self.probabilities.items()}
        return {"label": self.label, "probability": round(self.probability, 6), "probabilities": every}


def predict_probs(run: Run, source: Labelled, most: int | None = None) -> Iterator[tuple[int, np.ndarray]]:
    """P(y) of each record."""

    def look(group: np.ndarray) -> np.ndarray:
        return run.model.scores(*source.collate(group, full=True).inputs).double().softmax(-1).numpy()

    return predict_in_order(run.model, source, look, most)


def predictions(run: Run, source: Labelled) -> Iterator[Label]:
    for _, chances in predict_probs(run, source):
        best = int(chances.argmax())
        yield Label(
            run.labels[best], float(chances[best]), dict(zip(run.labels, chances.tolist(), strict=True))
        )


def measure(
    run: Run, source: Labelled, facts: dict[str, object], most: int | None = None
) -> tuple[list[Number], Confusion]:
    """Accuracy, F1, calibration."""
    confusion, calibration = Confusion(run.labels), Calibration()
    for number, chances in predict_probs(run, source, most):
        right, said = rows(source.target_columns[0], [number])[0], chances.argmax(keepdims=True)
        confusion.add(right, said)
        calibration.add(chances[said], right == said)
    return classification_metrics(confusion, calibration, "records", facts), confusion
