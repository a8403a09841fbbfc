"""Classical text classifiers over any features: naive Bayes, logistic regression, softmax  [B1–B4].

scikit-learn fits them; what is kept is linear and saved as plain arrays. The penalty is chosen on a tenth of the training texts that is held
out for it, never on the test. Left out: kernels, trees and ensembles.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.special import expit, log_softmax

from seqloom.measure import Number, make_signature
from seqloom.vectors import formats
from seqloom.vectors.benchmarks import ScoreWithInterval, wilson_interval
from seqloom.vectors.features import Features

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # C of scikit-learn: larger fits the training texts more closely
FORMAT = "seqloom classifier 1"


class LinearTextClassifier(NamedTuple):
    """s_k = W_k x + Q_k x² + b_k;   P(k | x) = softmax(s)_k, or σ(s_k) / Σ σ(s_j) where each label was told from all others."""

    features: Features
    labels: list[str]
    weights: np.ndarray  # (K, F)
    bias: np.ndarray  # (K,)
    squares: np.ndarray | None = None  # (K, F), of Gaussian naive Bayes
    each: bool = False

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, K)"""
        return self._scores(self.features(texts))

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The likeliest label of each text."""
        return [self.labels[best] for best in self.scores(texts).argmax(1)]

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, K), rows summing to 1."""
        scores = self.scores(texts)
        if not self.each:
            return np.exp(log_softmax(scores, axis=1))
        found = expit(scores)
        return found / found.sum(1, keepdims=True)

    def _scores(self, x: Any) -> np.ndarray:
        scores = np.asarray(x @ self.weights.T) + self.bias
        return scores if self.squares is None else scores + np.asarray((x * x) @ self.squares.T)


def naive_bayes(
    x: Any, y: np.ndarray, labels: list[str], features: Features, penalty: float
) -> LinearTextClassifier:
    """P(k | x) ∝ P(k) Π P(w | k)^x_w with Laplace's add-one; where numbers may be negative, Π N(x_f; μ_kf, σ²_kf)  [B1]."""
    from sklearn.naive_bayes import GaussianNB, MultinomialNB

    if features.table is None:
        fitted = MultinomialNB().fit(x, y)
        return LinearTextClassifier(features, labels, fitted.feature_log_prob_, fitted.class_log_prior_)
    fitted = GaussianNB().fit(x, y)
    mean, variance = fitted.theta_, fitted.var_
    bias = np.log(fitted.class_prior_) - 0.5 * (np.log(2 * np.pi * variance) + mean**2 / variance).sum(1)
    return LinearTextClassifier(features, labels, mean / variance, bias, -0.5 / variance)


def logistic(
    x: Any, y: np.ndarray, labels: list[str], features: Features, penalty: float
) -> LinearTextClassifier:
    """P(1 | x) = σ(w·x + b); with more labels than two, each against all others  [B2]."""
    if len(labels) == 2:
        weights, bias = _regression(x, y, penalty)
        return LinearTextClassifier(
            features, labels, np.concatenate([0 * weights, weights]), np.concatenate([0 * bias, bias])
        )
    found = [_regression(x, y == label, penalty) for label in range(len(labels))]
    return LinearTextClassifier(
        features,
        labels,
        np.concatenate([w for w, _ in found]),
        np.concatenate([b for _, b in found]),
        each=True,
    )


def softmax(
    x: Any, y: np.ndarray, labels: list[str], features: Features, penalty: float
) -> LinearTextClassifier:
    """P(k | x) = exp(w_k·x + b_k) / Σ exp(w_j·x + b_j)  [B3].

    With two labels only w = w₁ − w₀ matters, and ½(|w₀|² + |w₁|²) is least at w₁ = −w₀ = w/2, where it is ¼|w|²: the penalty of
    logistic regression at twice its C. That is how it is fitted then.
    """
    if len(labels) == 2:
        weights, bias = _regression(x, y, 2 * penalty)
        return LinearTextClassifier(
            features, labels, np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
        )
    return LinearTextClassifier(features, labels, *_regression(x, y, penalty))


CLASSIFIERS = {"naive Bayes": naive_bayes, "logistic regression": logistic, "softmax": softmax}


def _regression(x: Any, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # a fit that is still improving after so long is as good as it will matter
        fitted = LogisticRegression(C=penalty, max_iter=1000).fit(x, y)
    return fitted.coef_, fitted.intercept_


class TableCell(NamedTuple):
    """One classifier over one feature set: its accuracy on the test, and on the held-out tenth, by which it may be chosen."""

    features: str
    classifier: str
    score: ScoreWithInterval
    held: float
    fitted: LinearTextClassifier


def compare(
    sets: Sequence[Features],
    train: tuple[list[str], list[str]],
    test: tuple[list[str], list[str]],
    facts: dict[str, object],
    seed: int = 0,
) -> list[TableCell]:
    """Every classifier over every feature set, fitted on (texts, labels) and measured on others."""
    labels = sorted(set(train[1]))
    if len(labels) < 2:
        raise ValueError(
            f"all training texts have the one label {labels[0]!r}; a classifier needs two or more"
        )
    number = {label: at for at, label in enumerate(labels)}
    y, wanted = (
        np.array([number[label] for label in train[1]]),
        np.array([number.get(label, -1) for label in test[1]]),
    )
    held = np.zeros(len(y), dtype=bool)
    held[np.random.default_rng(seed).permutation(len(y))[: len(y) // 10]] = True
    tunable = held.any() and len(set(y[~held])) == len(labels)
    cells = []
    for features in sets:
        x, new = features(train[0]), features(test[0])
        for name, fit in CLASSIFIERS.items():
            best, accuracy = 1.0, 0.0
            for penalty in (1.0,) if name == "naive Bayes" or not tunable else PENALTIES:
                part = fit(x[~held], y[~held], labels, features, penalty)
                right = float((part._scores(x[held]).argmax(1) == y[held]).mean()) if held.any() else 0.0
                if right > accuracy:
                    best, accuracy = penalty, right
            fitted = fit(x, y, labels, features, best)
            hits = int((fitted._scores(new).argmax(1) == wanted).sum())
            told = {
                "features": features.name,
                "classifier": name,
                "C": best,
                "texts": len(wanted),
                **facts,
                "seed": seed,
            }
            figure = Number(f"{features.name}, {name}", hits / len(wanted), make_signature("accuracy", told))
            cells.append(
                TableCell(
                    features.name,
                    name,
                    ScoreWithInterval(figure, *wilson_interval(hits, len(wanted)), len(wanted), len(wanted)),
                    accuracy,
                    fitted,
                )
            )
    return cells


def save(classifier: LinearTextClassifier, folder: str | Path, about: dict[str, Any] | None = None) -> None:
    """Write a classifier as classifier.json and classifier.npz into a new folder; no pickle."""
    features = classifier.features
    arrays = {
        "weights": classifier.weights,
        "bias": classifier.bias,
        "squares": classifier.squares,
        "idf": features.idf,
        "table": features.table,
    }
    known = {
        "format": FORMAT,
        "labels": classifier.labels,
        "each": classifier.each,
        "features": features.name,
        "ngrams": features.ngrams,
        "words": features.words,
        "about": about or {},
    }
    with formats.new_folder(folder) as draft:
        np.savez(
            draft / "classifier.npz", **{name: array for name, array in arrays.items() if array is not None}
        )
        (draft / "classifier.json").write_text(json.dumps(known, ensure_ascii=False), "utf-8")


def load(folder: str | Path) -> LinearTextClassifier:
    """The classifier of a folder."""
    folder = Path(folder)
    try:
        known = json.loads((folder / "classifier.json").read_text("utf-8"))
        with np.load(folder / "classifier.npz", allow_pickle=False) as stored:
            arrays = dict(stored)
        if known["format"] != FORMAT:
            raise ValueError(f"its format is {known['format']!r}")
        features = Features(
            known["features"], known["words"], known["ngrams"], arrays.get("idf"), arrays.get("table")
        )
        return LinearTextClassifier(
            features, known["labels"], arrays["weights"], arrays["bias"], arrays.get("squares"), known["each"]
        )
    except FileNotFoundError:
        raise ValueError(
            f"{folder}: no classifier there; make one with: seqloom classify TRAIN TEST --out {folder}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder}: a damaged classifier ({error}); make it again with: seqloom classify TRAIN TEST --out FOLDER"
        ) from None
