"""Quality of predicted numbers: rank correlation, correlation and root mean squared error."""

from __future__ import annotations

import numpy as np

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

    values = {
        "Spearman": correlation(rankdata(predicted), rankdata(gold)),
        "Pearson": correlation(predicted, gold),
        "RMSE": float(np.sqrt(((predicted - gold) ** 2).mean())),
    }
    all_conditions = {"records": len(predicted), **conditions}
    return [Number(name, value, make_signature(name, all_conditions)) for name, value in values.items()]
