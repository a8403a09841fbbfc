"""Classifiers before networks: naive Bayes, logistic and softmax regression over the features of a text  [B1–B4].

A formula or a solver of convex problems finds their weights: see `train/solvers.py`. Left out: kernels, trees and ensembles of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.models.classifier import IdsAndMask, TextClassifier
from seqloom.models.text_features import TFIDF, Counts, FeatureMatrix, TextFeatures
from seqloom.nn.layer import Factory, require

LossOfScores: TypeAlias = Callable[[Tensor], Tensor]  # scores (texts, rows) → the loss, summed over the texts
# (loss, rows, factor of the penalty) → weight (rows, F), bias (rows,)
SolveRows: TypeAlias = Callable[[LossOfScores, int, float], tuple[np.ndarray, np.ndarray]]
MAX_FEATURES = 1 << 24  # numbers of a batch's features that are in memory at a time


class LinearClassifier(TextClassifier):
    """A classifier whose scores are a function of the features x of a text."""

    def __init__(self, vocabulary: int, labels: int, features: Factory[TextFeatures]):
        super().__init__()
        require(labels >= 2, "all training texts have one label; a classifier needs two or more")
        self.labels = labels
        self.text_features = features(vocabulary)

    def feature_scores(self, x: Tensor) -> Tensor:
        """(B, F) → (B, K), whose softmax are the probabilities"""
        raise NotImplementedError

    def scores(self, first: IdsAndMask, second: IdsAndMask | None = None) -> Tensor:
        """(B, K)"""
        require(second is None, f"a {type(self).__name__} takes single texts, but the data has pairs")
        rows = max(1, MAX_FEATURES // self.text_features.columns)
        chunks = zip(*(tensor.split(rows) for tensor in first), strict=True)
        return torch.cat([self.feature_scores(self.text_features(ids, mask)) for ids, mask in chunks])

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        """(B, T) → (B, K)"""
        return self.scores((ids, torch.ones_like(ids, dtype=torch.bool) if mask is None else mask))


class NaiveBayes(LinearClassifier):
    """ln P(k | x) = ln P(k) + Σ_w x_w ln P(w | k) + const,   P(w | k) = (x_wk + a) / Σ_v (x_vk + a)   [B1]

    x_wk is the sum of x_w over the training texts with label k, a the `smoothing`. If features may be negative, ln N(x_f; μ_kf, σ²_kf) takes
    the place of x_w ln P(w | k).
    """

    def __init__(
        self,
        vocabulary: int,
        labels: int,
        features: Factory[TextFeatures] = Counts,
        smoothing: float = 1.0,
    ):
        super().__init__(vocabulary, labels, features)
        require(smoothing > 0, f"model.smoothing must be above 0, not {smoothing}")
        self.smoothing = smoothing
        dim = self.text_features.dim
        self.weight = nn.Parameter(torch.zeros(labels, dim))
        self.bias = nn.Parameter(torch.zeros(labels))
        self.square = None if self.text_features.nonnegative else nn.Parameter(torch.zeros(labels, dim))

    def feature_scores(self, x: Tensor) -> Tensor:
        scores = F.linear(x, self.weight, self.bias)
        return scores if self.square is None else scores + F.linear(x * x, self.square)

    def fit(self, x: FeatureMatrix, y: np.ndarray) -> None:
        """Sets the weights from the features (texts, F) and the labels (texts,) of the training texts."""
        one_hot = np.eye(self.labels)[y]  # (texts, K)
        priors = one_hot.mean(0)
        with np.errstate(divide="ignore"):
            log_priors = np.log(priors)
        if self.square is None:
            sums = np.asarray((x.T @ one_hot).T)  # (K, F)
            used = self.text_features.weight.numpy() > 0
            smoothed = sums + self.smoothing
            logs = np.log(smoothed) - np.log(smoothed[:, used].sum(1, keepdims=True))
            weight, bias = np.where(used, logs, 0), log_priors
        else:
            counts = np.maximum(one_hot.sum(0), 1)[:, None]
            x = np.asarray(x)
            mean = one_hot.T @ x / counts
            variance = np.maximum(one_hot.T @ (x * x) / counts - mean**2, 0)
            variance += 1e-9 * x.var(0).max()  # as scikit-learn: no label has a variance of 0
            weight = mean / variance
            bias = log_priors - 0.5 * (np.log(2 * np.pi * variance) + mean**2 / variance).sum(1)
            self.square.copy_(torch.from_numpy(-0.5 / variance))
        self.weight.copy_(torch.from_numpy(weight))
        self.bias.copy_(torch.from_numpy(np.maximum(bias, -1e9)))


class Regression(LinearClassifier):
    """z = W x + b, fitted by the minimum of `loss` plus an L2 penalty on W."""

    def __init__(self, vocabulary: int, labels: int, features: Factory[TextFeatures], rows: int):
        super().__init__(vocabulary, labels, features)
        self.weight = nn.Parameter(torch.zeros(rows, self.text_features.dim))
        self.bias = nn.Parameter(torch.zeros(rows))

    def label_scores(self, z: Tensor) -> Tensor:
        """(B, rows) → (B, K)"""
        raise NotImplementedError

    def solve_rows(self, y: Tensor, solve: SolveRows) -> tuple[np.ndarray, np.ndarray]:
        """The weight (rows, F) and the bias (rows,) for the labels y (texts,), by `solve` of the problems that they consist of."""
        raise NotImplementedError

    def feature_scores(self, x: Tensor) -> Tensor:
        return self.label_scores(F.linear(x, self.weight, self.bias))


class LogisticRegression(Regression):
    """P(1 | x) = σ(w · x + b);   of more than two labels P(k | x) = σ(w_k · x + b_k) / Σ_j σ(w_j · x + b_j)   [B2]

    Each of more than two labels is fitted against the rest.
    """

    def __init__(self, vocabulary: int, labels: int, features: Factory[TextFeatures] = TFIDF):
        super().__init__(vocabulary, labels, features, 1 if labels == 2 else labels)

    def label_scores(self, z: Tensor) -> Tensor:
        return F.logsigmoid(torch.cat([-z, z], 1) if self.labels == 2 else z)

    def solve_rows(self, y: Tensor, solve: SolveRows) -> tuple[np.ndarray, np.ndarray]:
        positive = [1] if self.labels == 2 else range(self.labels)
        rows = [solve(binary_loss(y == label), 1, 1.0) for label in positive]
        return np.concatenate([weight for weight, _ in rows]), np.concatenate([bias for _, bias in rows])


class SoftmaxRegression(Regression):
    """P(k | x) = exp(w_k · x + b_k) / Σ_j exp(w_j · x + b_j)   [B3]

    With two labels only w = w₁ - w₀ matters, and |w₀|² + |w₁|² is least at w₁ = -w₀ = w/2, where it is |w|²/2: logistic regression with half
    the penalty.
    """

    def __init__(self, vocabulary: int, labels: int, features: Factory[TextFeatures] = TFIDF):
        super().__init__(vocabulary, labels, features, labels)

    def label_scores(self, z: Tensor) -> Tensor:
        return z

    def solve_rows(self, y: Tensor, solve: SolveRows) -> tuple[np.ndarray, np.ndarray]:
        if self.labels > 2:
            return solve(lambda z: F.cross_entropy(z, y, reduction="sum"), self.labels, 1.0)
        weight, bias = solve(binary_loss(y == 1), 1, 0.5)
        return np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2


def binary_loss(positive: Tensor) -> LossOfScores:
    """-Σ ln P of being positive or not, as a function of the scores z (texts, 1)."""
    targets = positive[:, None].double()
    return lambda z: F.binary_cross_entropy_with_logits(z, targets, reduction="sum")
