"""Classical text classifiers over any features: naive Bayes, logistic regression, softmax  [B1–B4].

scikit-learn fits them; the result is linear and saved as plain arrays. The penalty is chosen on a held-out
tenth of the training texts, never on the test. Left out: kernels, trees and ensembles.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy.sparse import csr_array
from scipy.special import expit, log_softmax

from seqloom.measure.number import Number, make_signature
from seqloom.vectors import formats
from seqloom.vectors.benchmarks import ScoreWithInterval, wilson_interval
from seqloom.vectors.features import Features

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0)  # C of scikit-learn: larger fits the training texts more closely
FORMAT = "seqloom classifier 1"
FeatureMatrix: TypeAlias = csr_array | np.ndarray  # (texts, F)


class LinearTextClassifier(NamedTuple):
    """s_k = W_k x + Q_k x² + b_k;   P(k | x) = softmax(s)_k, or σ(s_k) / Σ σ(s_j) if `one_vs_rest`."""

    features: Features
    labels: list[str]
    weights: np.ndarray  # (K, F)
    bias: np.ndarray  # (K,)
    quadratic: np.ndarray | None = None  # (K, F), of Gaussian naive Bayes
    one_vs_rest: bool = False

    def scores(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, K)"""
        return self.score_features(self.features(texts))

    def predict(self, texts: Sequence[str]) -> list[str]:
        """The most probable label of each text."""
        return [self.labels[best] for best in self.scores(texts).argmax(1)]

    def probabilities(self, texts: Sequence[str]) -> np.ndarray:
        """(texts, K); rows sum to 1."""
        scores = self.scores(texts)
        if not self.one_vs_rest:
            return np.exp(log_softmax(scores, axis=1))
        probabilities = expit(scores)
        return probabilities / probabilities.sum(1, keepdims=True)

    def score_features(self, x: FeatureMatrix) -> np.ndarray:
        """(texts, K) for the features (texts, F)."""
        scores = np.asarray(x @ self.weights.T) + self.bias
        return scores if self.quadratic is None else scores + np.asarray((x * x) @ self.quadratic.T)


def naive_bayes(
    x: FeatureMatrix, y: np.ndarray, labels: list[str], features: Features, penalty: float
) -> LinearTextClassifier:
    """P(k | x) ∝ P(k) Π P(w | k)^x_w with add-one smoothing  [B1].

    If features may be negative, Π N(x_f; μ_kf, σ²_kf) takes the place of the product.
    """
    from sklearn.naive_bayes import GaussianNB, MultinomialNB

    if features.table is None:
        multinomial = MultinomialNB().fit(x, y)
        return LinearTextClassifier(
            features, labels, multinomial.feature_log_prob_, multinomial.class_log_prior_
        )
    gaussian = GaussianNB().fit(x, y)
    mean, variance = gaussian.theta_, gaussian.var_
    bias = np.log(gaussian.class_prior_) - 0.5 * (np.log(2 * np.pi * variance) + mean**2 / variance).sum(1)
    return LinearTextClassifier(features, labels, mean / variance, bias, -0.5 / variance)


def logistic(
    x: FeatureMatrix, y: np.ndarray, labels: list[str], features: Features, penalty: float
) -> LinearTextClassifier:
    """P(1 | x) = σ(w·x + b); with more than two labels, each against the rest  [B2]."""
    if len(labels) == 2:
        weights, bias = _fit_regression(x, y, penalty)
        return LinearTextClassifier(
            features, labels, np.concatenate([0 * weights, weights]), np.concatenate([0 * bias, bias])
        )
    fits = [_fit_regression(x, y == label, penalty) for label in range(len(labels))]
    weights = np.concatenate([weights for weights, _ in fits])
    bias = np.concatenate([bias for _, bias in fits])
    return LinearTextClassifier(features, labels, weights, bias, one_vs_rest=True)


def softmax(
    x: FeatureMatrix, y: np.ndarray, labels: list[str], features: Features, penalty: float
) -> LinearTextClassifier:
    """P(k | x) = exp(w_k·x + b_k) / Σ exp(w_j·x + b_j)  [B3].

    With two labels only w = w₁ − w₀ matters, and ½(|w₀|² + |w₁|²) is least at w₁ = −w₀ = w/2, where it is
    ¼|w|²: the penalty of logistic regression at twice its C. So two labels are fitted by logistic regression.
    """
    if len(labels) == 2:
        weights, bias = _fit_regression(x, y, 2 * penalty)
        return LinearTextClassifier(
            features, labels, np.concatenate([-weights, weights]) / 2, np.concatenate([-bias, bias]) / 2
        )
    weights, bias = _fit_regression(x, y, penalty)
    return LinearTextClassifier(features, labels, weights, bias)


CLASSIFIERS = {"naive Bayes": naive_bayes, "logistic regression": logistic, "softmax": softmax}


def _fit_regression(x: FeatureMatrix, y: np.ndarray, penalty: float) -> tuple[np.ndarray, np.ndarray]:
    """Weights and bias of logistic regression with C = `penalty`."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings():
        warnings.simplefilter(
            "ignore", ConvergenceWarning
        )  # after 1000 steps further improvement is negligible
        fitted = LogisticRegression(C=penalty, max_iter=1000).fit(x, y)
    return fitted.coef_, fitted.intercept_


class TableCell(NamedTuple):
    """One classifier over one feature set, with its accuracy on the test and on held-out training texts."""

    features: str
    classifier: str
    score: ScoreWithInterval
    held_out_accuracy: float
    fitted: LinearTextClassifier


def compare(
    sets: Sequence[Features],
    train: tuple[list[str], list[str]],
    test: tuple[list[str], list[str]],
    conditions: dict[str, object],
    seed: int = 0,
) -> list[TableCell]:
    """Every classifier over every feature set, fitted on (texts, labels) and measured on the test's.

    `conditions` go into the signatures of the figures.
    """
    labels = sorted(set(train[1]))
    if len(labels) < 2:
        raise ValueError(
            f"all training texts have the one label {labels[0]!r}; a classifier needs two or more"
        )
    ids = {label: index for index, label in enumerate(labels)}
    y = np.array([ids[label] for label in train[1]])
    expected = np.array([ids.get(label, -1) for label in test[1]])
    held_out = np.zeros(len(y), dtype=bool)
    held_out[np.random.default_rng(seed).permutation(len(y))[: len(y) // 10]] = True
    tunable = held_out.any() and len(set(y[~held_out])) == len(labels)
    cells = []
    for features in sets:
        x, test_x = features(train[0]), features(test[0])
        for name, fit in CLASSIFIERS.items():
            best_penalty = 1.0
            best_accuracy = 0.0
            for penalty in (1.0,) if name == "naive Bayes" or not tunable else PENALTIES:
                partial_fit = fit(x[~held_out], y[~held_out], labels, features, penalty)
                accuracy = 0.0
                if held_out.any():
                    predicted = partial_fit.score_features(x[held_out]).argmax(1)
                    accuracy = float((predicted == y[held_out]).mean())
                if accuracy > best_accuracy:
                    best_penalty, best_accuracy = penalty, accuracy
            fitted = fit(x, y, labels, features, best_penalty)
            hits = int((fitted.score_features(test_x).argmax(1) == expected).sum())
            count = len(expected)
            signature = make_signature(
                "accuracy",
                {
                    "features": features.name,
                    "classifier": name,
                    "C": best_penalty,
                    "texts": count,
                    **conditions,
                    "seed": seed,
                },
            )
            number = Number(f"{features.name}, {name}", hits / count, signature)
            low, high = wilson_interval(hits, count)
            score = ScoreWithInterval(number, low, high, count, count)
            cells.append(TableCell(features.name, name, score, best_accuracy, fitted))
    return cells


def save(classifier: LinearTextClassifier, folder: str | Path, about: dict[str, Any] | None = None) -> None:
    """Writes a classifier as classifier.json and classifier.npz into a new folder; no pickle."""
    features = classifier.features
    arrays = {
        "weights": classifier.weights,
        "bias": classifier.bias,
        "squares": classifier.quadratic,
        "idf": features.idf,
        "table": features.table,
    }
    stored = {
        "format": FORMAT,
        "labels": classifier.labels,
        "each": classifier.one_vs_rest,
        "features": features.name,
        "ngrams": features.ngrams,
        "words": features.words,
        "about": about or {},
    }
    present = {name: array for name, array in arrays.items() if array is not None}
    with formats.new_folder(folder) as draft:
        # the stubs take any keyword for `allow_pickle`, which numpy 2.0 does not have
        np.savez(draft / "classifier.npz", **present)  # type: ignore[arg-type]
        (draft / "classifier.json").write_text(json.dumps(stored, ensure_ascii=False), "utf-8")


def load(folder: str | Path) -> LinearTextClassifier:
    """The classifier of a folder."""
    folder = Path(folder)
    try:
        stored = json.loads((folder / "classifier.json").read_text("utf-8"))
        with np.load(folder / "classifier.npz", allow_pickle=False) as file:
            arrays = dict(file)
        if stored["format"] != FORMAT:
            raise ValueError(f"its format is {stored['format']!r}, not {FORMAT!r}")
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
        raise ValueError(
            f"{folder}: no classifier here; make one with: seqloom classify TRAIN TEST --out {folder}"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{folder}: damaged classifier ({error}); make it again with: seqloom classify TRAIN TEST --out FOLDER"
        ) from None
