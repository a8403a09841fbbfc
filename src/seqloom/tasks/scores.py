"""A number for a text, or for a pair of texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.data import Labelled
from seqloom.data.buckets import rows
from seqloom.measure import Number
from seqloom.measure.answers import agreement
from seqloom.models import Regressor
from seqloom.objectives.labels import sides
from seqloom.run import Run
from seqloom.tasks.walk import walk
from seqloom.text.store import Store


class Score(NamedTuple):
    """The number that is said."""

    number: float

    def json(self) -> dict[str, Any]:
        return {"number": round(self.number, 6)}


def begin(model: Regressor, store: Store, _: Sequence[str]) -> None:
    """Set the mean and the deviation of the numbers to learn."""
    numbers = store.columns("number")[0].tokens
    with torch.no_grad():
        model.mean.fill_(float(numbers.mean()))
        model.deviation.fill_(float(numbers.std()) or 1.0)


def told(run: Run, source: Labelled, most: int | None = None) -> Iterator[tuple[int, float]]:
    return walk(
        run.model,
        source,
        lambda group: run.model.scores(*sides(source.cut(group, whole=True))).tolist(),
        most,
    )


def answers(run: Run, source: Labelled) -> Iterator[Score]:
    return (Score(number) for _, number in told(run, source))


def measure(
    run: Run, source: Labelled, facts: dict[str, object], most: int | None = None
) -> tuple[list[Number], None]:
    """Spearman, Pearson and the root of the mean squared error."""
    records, said = zip(*told(run, source, most), strict=True)
    return agreement(np.array(said, np.float64), np.concatenate(rows(source.said[0], records)), facts), None
