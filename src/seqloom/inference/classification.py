"""A label for a text, or for a pair of texts  [T2, T11, T12]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches import Labelled
from seqloom.batches.buckets import rows
from seqloom.inference.in_order import predict_in_order
from seqloom.inference.task_model import model_of
from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.measure.number import Number
from seqloom.models import Classifier
from seqloom.run import Run


class Label(NamedTuple):
    """The most probable label, its probability, and that of every label."""

    label: str
    probability: float
    probabilities: dict[str, float]

    def json(self) -> dict[str, Any]:
        probabilities = {name: round(p, 6) for name, p in self.probabilities.items()}
        return {
            "label": self.label,
            "probability": round(self.probability, 6),
            "probabilities": probabilities,
        }


def predict_probs(
    run: Run, source: Labelled, max_groups: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """P(y) of each record."""
    model = model_of(run, Classifier)

    def predict_group(group: np.ndarray) -> np.ndarray:
        scores = model.scores(*source.collate(group, full=True).inputs)
        return scores.double().softmax(-1).numpy()

    return predict_in_order(model, source, predict_group, max_groups)


def predictions(run: Run, source: Labelled) -> Iterator[Label]:
    """The label of each record, in order."""
    for _, probs in predict_probs(run, source):
        best = int(probs.argmax())
        by_label = dict(zip(run.labels, probs.tolist(), strict=True))
        yield Label(run.labels[best], float(probs[best]), by_label)


def measure(
    run: Run, source: Labelled, conditions: dict[str, object], max_groups: int | None = None
) -> tuple[list[Number], Confusion]:
    """Accuracy, F1, calibration."""
    confusion = Confusion(run.labels)
    calibration = Calibration()
    for record, probs in predict_probs(run, source, max_groups):
        gold = rows(source.target_columns[0], [record])[0]
        predicted = np.array([probs.argmax()])
        confusion.add(gold, predicted)
        calibration.add(probs[predicted], gold == predicted)
    return classification_metrics(confusion, calibration, "records", conditions), confusion
