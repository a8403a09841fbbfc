"""Answers to questions, as SQuAD counts them: the same words, or how many words are the same; and numbers against numbers."""

from __future__ import annotations

import numpy as np

from seqloom.measure.number import Number, make_signature


def correlations(said: np.ndarray, right: np.ndarray, facts: dict[str, object]) -> list[Number]:
    """Spearman's ρ (the correlation of ranks, equal values sharing theirs), Pearson's r, and √mean (ŷ - y)²."""
    from scipy.stats import rankdata

    def correlation(x: np.ndarray, y: np.ndarray) -> float:
        x, y = x - x.mean(), y - y.mean()
        size = np.sqrt((x**2).sum() * (y**2).sum())
        return float((x * y).sum() / size) if size > 0 else 0.0

    values = {
        "Spearman": correlation(rankdata(said), rankdata(right)),
        "Pearson": correlation(said, right),
        "RMSE": float(np.sqrt(((said - right) ** 2).mean())),
    }
    return [
        Number(name, value, make_signature(name, {"records": len(said), **facts}))
        for name, value in values.items()
    ]
