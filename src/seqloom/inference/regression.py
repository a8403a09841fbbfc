"""A number for a text, or for a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from seqloom.batches import Labelled
from seqloom.batches.buckets import read_rows
from seqloom.inference.in_order import predict_in_order
from seqloom.inference.predictions import Value
from seqloom.inference.task_model import model_of
from seqloom.measure.number import Number
from seqloom.measure.regression import correlations
from seqloom.models import Regressor
from seqloom.run import Run


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
) -> tuple[list[Number], None, list[tuple[float, int]]]:
    """Spearman, Pearson, the errors, and the error of the mean of the training targets."""
    records, predicted = zip(*predict_numbers(run, source, max_groups), strict=True)
    gold = np.concatenate(read_rows(source.target_columns[0], records))
    values = np.array(predicted, np.float64)
    by_record = [(float(error), 1) for error in (values - gold) ** 2]
    mean = float(model_of(run, Regressor).mean)
    return correlations(values, gold, conditions, mean), None, by_record
