"""Quality of predicted numbers: rank correlation, correlation, root mean squared and mean absolute error."""

from __future__ import annotations

import numpy as np

from seqloom.measure.number import Interval, Number, bootstrap, fisher, make_signature


def correlations(
    predicted: np.ndarray, gold: np.ndarray, conditions: dict[str, object], mean: float | None = None
) -> list[Number]:
    """Spearman's ρ (the correlation of ranks, in which equal values
    share their rank), Pearson's r, √mean (ŷ - y)², and mean |ŷ - y|.

    `mean` is that of the training targets; with it, also the error of predicting it always, √mean (μ - y)².
    """
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
    distances = np.abs(predicted - gold)

    def root_mean(errors: np.ndarray) -> tuple[float, Interval]:
        statistics = np.stack([errors, np.ones(count)], 1)
        value = float(np.sqrt(errors.mean()))
        return value, bootstrap(statistics, lambda sums: np.sqrt(sums[:, 0] / sums[:, 1]))

    values: dict[str, tuple[float, Interval]] = {
        "Spearman": (spearman, fisher(spearman, count, 1 + spearman**2 / 2)),
        "Pearson": (pearson, fisher(pearson, count)),
        "RMSE": root_mean(errors),
        "MAE": (
            float(distances.mean()),
            bootstrap(np.stack([distances, np.ones(count)], 1), lambda sums: sums[:, 0] / sums[:, 1]),
        ),
    }
    if mean is not None:
        values["RMSE of the mean"] = root_mean((mean - gold) ** 2)
    all_conditions = {"records": count, **conditions}
    return [
        Number(
            name.lower().replace(" ", "_"), value, make_signature(name, all_conditions), *interval, n=count
        )
        for name, (value, interval) in values.items()
    ]
