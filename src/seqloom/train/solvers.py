"""Solvers: trainings without gradient steps on batches, for models whose best weights have a formula or are the minimum of a convex function.

A config chooses one by `train: {type: ClosedForm}` or `train: {type: LBFGS}`. They take seconds, so they have no checkpoints: a solver that was
killed begins again, to the same bits.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from seqloom.errors import ConfigError
from seqloom.models.base import Model
from seqloom.models.linear import MAX_FEATURES, LinearClassifier, LossOfScores, NaiveBayes, Regression
from seqloom.models.text_features import FeatureMatrix
from seqloom.threads import use_threads

FLOAT_TOLERANCE = 64 * np.finfo(np.float64).eps  # a smaller relative change of the loss is rounding
logger = logging.getLogger("seqloom.train")
Fitted = TypeVar("Fitted", bound=LinearClassifier)


class LabelledFeatures(NamedTuple):
    """The features x (texts, F) and the labels y (texts,) of texts."""

    x: FeatureMatrix
    y: np.ndarray

    @property
    def numbers_per_text(self) -> float:
        """The mean number of features of a text that are not 0."""
        stored = self.x.size if isinstance(self.x, np.ndarray) else self.x.nnz
        return stored / max(len(self.y), 1)


class Solver(Generic[Fitted]):
    """Finds the weights of a model for features that it can hold in memory.

    With `refit` the model is fitted a second time, with what was chosen, on the training and the held-out texts together; its held-out numbers
    are those of the first fit. Held-out files that the user names are never learnt from.
    """

    model: type[Fitted]

    def __init__(self, refit: bool = True):
        self.refit = refit

    def check(self, model: Model) -> None:
        """Raises unless the solver can fit the model."""
        if not isinstance(model, self.model):
            raise ConfigError(
                f"train.type: {type(self).__name__} fits a {self.model.__name__}, not a {type(model).__name__}; "
                "remove train.type to train by gradient steps"
            )

    def choose(
        self, model: Fitted, texts: LabelledFeatures, held_out: LabelledFeatures | None, seed: int
    ) -> int:
        """Chooses what the data has to decide: on the held-out texts, or on a tenth of the texts, drawn by the seed. Returns the number of
        passes over the texts."""
        return 0

    def fit(self, model: Fitted, texts: LabelledFeatures) -> int:
        """Fits the model with what was chosen; returns the number of passes."""
        raise NotImplementedError


class ClosedForm(Solver[NaiveBayes]):
    """The weights are a formula of the training texts, as in naive Bayes."""

    model = NaiveBayes

    def fit(self, model: NaiveBayes, texts: LabelledFeatures) -> int:
        with torch.no_grad():
            model.fit(texts.x, texts.y)
        return 1


class LBFGS(Solver[Regression]):
    """W, b = argmin Σ loss(W x + b, y) + λ/2 |W|², by limited-memory BFGS.

    l2: candidates for λ, which is 1/C of scikit-learn. The one that labels most held-out texts right is chosen, at a tie the strongest.
    tolerance: the largest element of the gradient at the end, divided by the number of texts.
    iterations: at most so many for each λ.
    """

    model = Regression

    def __init__(
        self,
        l2: tuple[float, ...] = (100 / 3, 10.0, 10 / 3, 1.0, 1 / 3, 0.1),
        tolerance: float = 1e-4,
        iterations: int = 1000,
        refit: bool = True,
    ):
        super().__init__(refit)
        if not l2 or min(l2) <= 0 or iterations < 1 or not tolerance > 0:
            raise ConfigError(
                "train: l2, tolerance and iterations must be above 0; correct the one that is not"
            )
        self.l2 = sorted(l2, reverse=True)
        self.tolerance = tolerance
        self.iterations = iterations
        self.chosen = min(self.l2, key=lambda l2: abs(math.log(l2)))  # the one closest to 1

    def choose(
        self, model: Regression, texts: LabelledFeatures, held_out: LabelledFeatures | None, seed: int
    ) -> int:
        if len(self.l2) == 1:
            return 0
        if held_out is None:
            texts, held_out = hold_out_tenth(texts, seed)
            if not len(held_out.y) or len(set(texts.y)) < model.labels:
                return 0  # too few texts to choose by
        passes, most_right = 0, -1
        for l2 in self.l2:
            passes += self.minimize(model, texts, l2)
            counts = count_right(model, held_out)
            logger.debug("l2 %.3g: %d of %d held-out texts right", l2, counts.right, counts.texts)
            if counts.right > most_right:
                most_right, self.chosen = counts.right, l2
        return passes

    def fit(self, model: Regression, texts: LabelledFeatures) -> int:
        return self.minimize(model, texts, self.chosen)

    def minimize(self, model: Regression, texts: LabelledFeatures, l2: float) -> int:
        """Fits all rows of the model; returns the number of passes over the texts.

        Each problem begins at zero and ends at a small gradient, as in scikit-learn: to end early is a part of the penalty.
        """
        from scipy.optimize import minimize

        product, transposed_product = products(texts.x)
        dim, count, passes = texts.x.shape[1], len(texts.y), 0
        limits = {"maxiter": self.iterations, "gtol": self.tolerance, "ftol": FLOAT_TOLERANCE, "maxls": 50}

        def solve(loss: LossOfScores, rows: int, penalty: float) -> tuple[np.ndarray, np.ndarray]:
            """The weight (rows, F) and the bias (rows,) at the minimum of a loss of the scores (texts, rows)."""
            nonlocal passes

            def loss_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
                weight, bias = values[:-rows].reshape(rows, dim), values[-rows:]
                z = torch.from_numpy(product(weight.T) + bias).requires_grad_()  # (texts, rows)
                with torch.enable_grad():
                    total = loss(z)
                    (gradient,) = torch.autograd.grad(total, z)
                dz = gradient.numpy()
                d_weight = transposed_product(dz).T + penalty * l2 * weight
                value = float(total.detach()) + penalty * l2 / 2 * float((weight**2).sum())
                return value / count, np.concatenate([d_weight.ravel(), dz.sum(0)]) / count

            start = np.zeros(rows * dim + rows)
            found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=limits)
            passes += int(found.nfev)
            return found.x[:-rows].reshape(rows, dim), found.x[-rows:]

        with use_threads(1):  # the products are small: a second thread waits more than it works
            weight, bias = model.solve_rows(torch.from_numpy(texts.y), solve)
        with torch.no_grad():
            model.weight.copy_(torch.from_numpy(weight))
            model.bias.copy_(torch.from_numpy(bias))
        return passes


Product = Callable[[np.ndarray], np.ndarray]


def products(x: FeatureMatrix) -> tuple[Product, Product]:
    """v ↦ x v and v ↦ xᵀ v. Dense features are multiplied by torch, whose number of threads can be set for one call."""
    if isinstance(x, np.ndarray):
        dense = torch.from_numpy(x)
        return (
            lambda v: (dense @ torch.from_numpy(np.ascontiguousarray(v))).numpy(),
            lambda v: (dense.T @ torch.from_numpy(np.ascontiguousarray(v))).numpy(),
        )
    transposed = x.T.tocsr()
    return lambda v: np.asarray(x @ v), lambda v: np.asarray(transposed @ v)


def hold_out_tenth(texts: LabelledFeatures, seed: int) -> tuple[LabelledFeatures, LabelledFeatures]:
    """Nine tenths of the texts, and a tenth that the seed draws."""
    order = np.random.default_rng(seed).permutation(len(texts.y))
    outside = np.sort(order[: len(order) // 10])
    inside = np.sort(order[len(order) // 10 :])
    return (
        LabelledFeatures(texts.x[inside], texts.y[inside]),
        LabelledFeatures(texts.x[outside], texts.y[outside]),
    )


class LabelCounts(NamedTuple):
    """How many texts a model labels right, of how many, and the sum of -ln P of the right labels."""

    right: int = 0
    nats: float = 0.0
    texts: int = 0

    @property
    def mean_nats(self) -> float:
        return self.nats / max(self.texts, 1)

    def __add__(self, other: tuple) -> LabelCounts:
        right, nats, texts = other
        return LabelCounts(self.right + right, self.nats + nats, self.texts + texts)


def count_right(model: LinearClassifier, texts: LabelledFeatures) -> LabelCounts:
    """What a model makes of the texts, in blocks of a bounded number of features."""
    rows = max(1, MAX_FEATURES // max(texts.x.shape[1], 1))
    counts = LabelCounts()
    for start in range(0, len(texts.y), rows):
        block = texts.x[start : start + rows]
        x = torch.from_numpy(block if isinstance(block, np.ndarray) else block.toarray())
        y = torch.from_numpy(texts.y[start : start + rows])
        with torch.no_grad():
            scores = model.feature_scores(x.to(model.text_features.weight)).double()
            nats = torch.nn.functional.cross_entropy(scores, y, reduction="sum")
        counts += LabelCounts(int((scores.argmax(1) == y).sum()), float(nats), len(y))
    return counts


SOLVERS: dict[str, type[Solver]] = {"ClosedForm": ClosedForm, "LBFGS": LBFGS}
