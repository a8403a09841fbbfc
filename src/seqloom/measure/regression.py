"""Quality of predicted numbers: rank correlation, correlation and root mean squared error."""

from __future__ import annotations

import numpy as np

from seqloom.measure.intervals import Interval, bootstrap, fisher
from seqloom.measure.number import Number, make_signature


def correlations(predicted: np.ndarray, gold: np.ndarray, conditions: dict[str, object]) -> list[Number]:
    """Spearman's ρ (the correlation of ranks, in which equal values
    share their rank), Pearson's r, and √mean (ŷ - y)²."""
    from scipy.stats import rankdata

    def correlation(x: np.ndarray, y: np.ndarray) -> float:
        x = x - x.mean()
        y = y - y.mean()
        norm = np.sqrt((x**2).sum() * (y**2).sum())
        return float((x * y).sum() / norm) if norm > 0 else 0.0

    count = len(predicted)
    errors = (predicted - gold) ** 2
    spearman = correlation(rankdata(predicted), rankdata(gold))
    pearson = correlation(predicted, gold)
    statistics = np.stack([errors, np.ones(count)], 1)
    values: dict[str, tuple[float, Interval]] = {
        "Spearman": (spearman, fisher(spearman, count, 1 + spearman**2 / 2)),
        "Pearson": (pearson, fisher(pearson, count)),
        "RMSE": (
            float(np.sqrt(errors.mean())),
            bootstrap(statistics, lambda sums: np.sqrt(sums[:, 0] / sums[:, 1])),
        ),
    }
    all_conditions = {"records": count, **conditions}
    return [
        Number(name.lower(), value, make_signature(name, all_conditions), *interval, n=count)
        for name, (value, interval) in values.items()
    ]
