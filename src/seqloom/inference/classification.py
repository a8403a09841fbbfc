"""A label for a text, or for a pair of texts  [T2, T11, T12]."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqloom.batches import Labelled
from seqloom.batches.buckets import read_rows
from seqloom.inference.in_order import predict_in_order
from seqloom.inference.predictions import Label
from seqloom.inference.task_model import model_of
from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.measure.number import Number
from seqloom.models.classifier import TextClassifier
from seqloom.run import Run


def predict_probs(
    run: Run, source: Labelled, max_groups: int | None = None
) -> Iterator[tuple[int, np.ndarray]]:
    """P(y) of each record."""
    model = model_of(run, TextClassifier)

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
) -> tuple[list[Number], Confusion, list[tuple[float, int]]]:
    """Accuracy, F1, calibration."""
    confusion = Confusion(run.labels)
    calibration = Calibration()
    by_record = []
    for record, probs in predict_probs(run, source, max_groups):
        gold = read_rows(source.target_columns[0], [record])[0]
        predicted = np.array([probs.argmax()])
        confusion.add(gold, predicted)
        calibration.add(probs[predicted], gold == predicted)
        by_record.append((float(gold[0] == predicted[0]), 1))
    return classification_metrics(confusion, calibration, "records", conditions), confusion, by_record
