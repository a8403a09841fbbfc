"""A number for a text, or for a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches import Labelled
from seqloom.batches.buckets import rows
from seqloom.inference.in_order import predict_in_order
from seqloom.inference.task_model import model_of
from seqloom.measure.number import Number
from seqloom.measure.regression import correlations
from seqloom.models import Regressor
from seqloom.run import Run


class Value(NamedTuple):
    """The predicted number."""

    number: float

    def json(self) -> dict[str, Any]:
        return {"number": round(self.number, 6)}


def predict_numbers(run: Run, source: Labelled, max_groups: int | None = None) -> Iterator[tuple[int, float]]:
    """The number of each record."""
    model = model_of(run, Regressor)

    def predict_group(group: np.ndarray) -> list[float]:
        return model.scores(*source.collate(group, full=True).inputs).tolist()

    return predict_in_order(model, source, predict_group, max_groups)


def predictions(run: Run, source: Labelled) -> Iterator[Value]:
    """The number of each record, in order."""
    return (Value(number) for _, number in predict_numbers(run, source))


def measure(
    run: Run, source: Labelled, conditions: dict[str, object], max_groups: int | None = None
) -> tuple[list[Number], None]:
    """Spearman, Pearson and the root of the mean squared error."""
    records, predicted = zip(*predict_numbers(run, source, max_groups), strict=True)
    gold = np.concatenate(rows(source.target_columns[0], records))
    return correlations(np.array(predicted, np.float64), gold, conditions), None
