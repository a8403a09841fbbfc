"""Classifiers that older versions saved: linear scores over features of texts  [B1–B4]. Classical classifiers are runs now (`models/linear.py`)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit, log_softmax

from seqloom.errors import DataError
from seqloom.vectors.features import Features

FORMAT = "seqloom classifier 1"


class LinearTextClassifier(NamedTuple):
    """s_k = W_k x + Q_k x² + b_k;   P(k | x) = softmax(s)_k, or σ(s_k) / Σ σ(s_j) if `one_vs_rest`."""

    features: Features
    labels: list[str]
    weights: np.ndarray  # (K, F)
    bias: np.ndarray  # (K,)
    quadratic: np.ndarray | None = None  # (K, F), of Gaussian naive Bayes
    one_vs_rest: bool = False

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, K); rows sum to 1."""
        x = self.features(texts)
        scores = np.asarray(x @ self.weights.T) + self.bias
        if self.quadratic is not None:
            scores = scores + np.asarray((x * x) @ self.quadratic.T)
        if not self.one_vs_rest:
            return np.exp(log_softmax(scores, axis=1))
        probabilities = expit(scores)
        return probabilities / probabilities.sum(1, keepdims=True)


def load(folder: str | Path) -> LinearTextClassifier:
    """The classifier of a folder."""
    folder = Path(folder)
    try:
        stored = json.loads((folder / "classifier.json").read_text("utf-8"))
        with np.load(folder / "classifier.npz", allow_pickle=False) as file:
            arrays = dict(file)
        if stored["format"] != FORMAT:
            raise DataError(f"its format is {stored['format']!r}, not {FORMAT!r}")
        features = Features(
            stored["features"], stored["words"], stored["ngrams"], arrays.get("idf"), arrays.get("table")
        )
        return LinearTextClassifier(
            features,
            stored["labels"],
            arrays["weights"],
            arrays["bias"],
            arrays.get("squares"),
            stored["each"],
        )
    except FileNotFoundError:
        raise DataError(
            f"{folder}: no classifier here; train one with: seqloom train logistic --data FILE"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{folder}: damaged classifier ({error}); train one with: seqloom train logistic --data FILE"
        ) from None
