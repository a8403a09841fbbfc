"""A number for a text, or for a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches import Labelled
from seqloom.batches.buckets import rows
from seqloom.inference.in_order import predict_in_order
from seqloom.measure import Number
from seqloom.measure.regression import correlations
from seqloom.run import Run


class Value(NamedTuple):
    """The number that is said."""

    number: float

    def json(self) -> dict[str, Any]:
        return {"number": round(self.number, 6)}


def predict_numbers(run: Run, source: Labelled, most: int | None = None) -> Iterator[tuple[int, float]]:
    return predict_in_order(
        run.model,
        source,
        lambda group: run.model.scores(*source.collate(group, full=True).inputs).tolist(),
        most,
    )


def predictions(run: Run, source: Labelled) -> Iterator[Value]:
    return (Value(number) for _, number in predict_numbers(run, source))


def measure(
    run: Run, source: Labelled, facts: dict[str, object], most: int | None = None
) -> tuple[list[Number], None]:
    """Spearman, Pearson and the root of the mean squared error."""
    records, said = zip(*predict_numbers(run, source, most), strict=True)
    return correlations(
        np.array(said, np.float64), np.concatenate(rows(source.target_columns[0], records)), facts
    ), None
