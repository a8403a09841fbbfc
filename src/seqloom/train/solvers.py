"""Solvers: trainings without gradient steps on batches, for models whose best weights have a formula or are the minimum of a convex function.

A config chooses one by `train: {type: ClosedForm}` or `train: {type: LBFGS}`. They take seconds, so they have no checkpoints: a solver that was
killed begins again, to the same bits.
"""

from __future__ import annotations

import logging
import math
from typing import Generic, NamedTuple, TypeVar

import numpy as np
import torch

from seqloom.errors import ConfigError
from seqloom.models.base import Model
from seqloom.models.linear import LinearClassifier, NaiveBayes, Regression
from seqloom.models.text_features import FeatureMatrix

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

    def choose(self, model: Fitted, train: LabelledFeatures, valid: LabelledFeatures) -> int:
        """Fits the model, choosing on the held-out texts what has to be chosen. Returns the number of passes over the training texts."""
        raise NotImplementedError

    def fit_again(self, model: Fitted, texts: LabelledFeatures) -> int:
        """Fits the model with what `choose` chose; returns the number of passes."""
        raise NotImplementedError


class ClosedForm(Solver[NaiveBayes]):
    """The weights are a formula of the training texts, as in naive Bayes."""

    model = NaiveBayes

    def choose(self, model: NaiveBayes, train: LabelledFeatures, valid: LabelledFeatures) -> int:
        return self.fit_again(model, train)

    def fit_again(self, model: NaiveBayes, texts: LabelledFeatures) -> int:
        with torch.no_grad():
            model.fit(texts.x, texts.y)
        return 1


class LBFGS(Solver[Regression]):
    """W, b = argmin Σ loss(W x + b, y) + λ/2 |W|², by limited-memory BFGS.

    l2: candidates for λ; the one with the least held-out loss is chosen. C of scikit-learn is 1/λ.
    tolerance: the largest element of the gradient at the end, divided by the number of texts.
    iterations: at most so many for each λ.
    """

    model = Regression

    def __init__(
        self,
        l2: tuple[float, ...] = (30.0, 10.0, 3.0, 1.0, 0.3, 0.1),
        tolerance: float = 1e-4,
        iterations: int = 300,
        refit: bool = True,
    ):
        super().__init__(refit)
        if not l2 or min(l2) <= 0 or iterations < 1 or not tolerance > 0:
            raise ConfigError(
                "train: l2, tolerance and iterations must be above 0; correct the one that is not"
            )
        self.l2 = sorted(l2, reverse=True)  # from the strongest on, each begins where the last one ended
        self.tolerance = tolerance
        self.iterations = iterations
        self.chosen = self.l2[0]

    def choose(self, model: Regression, train: LabelledFeatures, valid: LabelledFeatures) -> int:
        passes = 0
        best_loss, best_weights = math.inf, [p.detach().clone() for p in (model.weight, model.bias)]
        for l2 in self.l2:
            passes += self.minimize(model, train, l2)
            loss = held_out_loss(model, valid)
            logger.debug("l2 %g: held-out loss %.4f nats per label", l2, loss)
            if loss < best_loss:
                best_loss, self.chosen = loss, l2
                best_weights = [p.detach().clone() for p in (model.weight, model.bias)]
        set_weights(model, *best_weights)
        return passes

    def fit_again(self, model: Regression, texts: LabelledFeatures) -> int:
        return self.minimize(model, texts, self.chosen)

    def minimize(self, model: Regression, texts: LabelledFeatures, l2: float) -> int:
        """Minimises the loss from the present weights on; returns the number of passes over the texts."""
        from scipy.optimize import minimize

        x, y = texts.x, torch.from_numpy(texts.y)
        x_t = x.T if isinstance(x, np.ndarray) else x.T.tocsr()
        num_weights, count = model.weight.numel(), len(y)
        # Dense features are correlated. In the variables v = W L, L Lᵀ an upper bound of the Hessian, a few iterations suffice.
        inverse = None
        if isinstance(x, np.ndarray):
            factor = np.linalg.cholesky((x.T @ x / 4 + l2 * np.eye(x.shape[1])) / count)
            inverse = np.linalg.inv(factor)

        def loss_and_gradient(values: np.ndarray) -> tuple[float, np.ndarray]:
            weight, bias = values[:num_weights].reshape(model.weight.shape), values[num_weights:]
            weight = weight if inverse is None else weight @ inverse
            z = torch.from_numpy(np.asarray(x @ weight.T) + bias).requires_grad_()  # (texts, rows)
            with torch.enable_grad():
                loss = model.loss(z, y)
                (gradient,) = torch.autograd.grad(loss, z)
            dz = gradient.numpy()
            d_weight = np.asarray(x_t @ dz).T + l2 * weight
            d_weight = d_weight if inverse is None else d_weight @ inverse.T
            total = float(loss.detach()) + l2 / 2 * float((weight**2).sum())
            return total / count, np.concatenate([d_weight.ravel(), dz.sum(0)]) / count

        weight = model.weight.detach().double().numpy()
        weight = weight if inverse is None else np.linalg.solve(inverse.T, weight.T).T
        start = np.concatenate([weight.ravel(), model.bias.detach().double().numpy()])
        limits = {
            "maxiter": self.iterations,
            "maxfun": 2 * self.iterations,
            "gtol": self.tolerance,
            "ftol": 1e-14,
        }
        found = minimize(loss_and_gradient, start, jac=True, method="L-BFGS-B", options=limits)
        weight, bias = found.x[:num_weights].reshape(model.weight.shape), found.x[num_weights:]
        weight = weight if inverse is None else weight @ inverse
        set_weights(model, torch.from_numpy(weight), torch.from_numpy(bias))
        return int(found.nfev)


def set_weights(model: Regression, weight: torch.Tensor, bias: torch.Tensor) -> None:
    with torch.no_grad():
        model.weight.copy_(weight)
        model.bias.copy_(bias)


def held_out_loss(model: LinearClassifier, valid: LabelledFeatures) -> float:
    """The mean of -ln P of the right label."""
    x = valid.x if isinstance(valid.x, np.ndarray) else valid.x.toarray()
    with torch.no_grad():
        scores = model.feature_scores(torch.from_numpy(x).to(model.text_features.weight))
        return float(torch.nn.functional.cross_entropy(scores.double(), torch.from_numpy(valid.y)))


SOLVERS: dict[str, type[Solver]] = {"ClosedForm": ClosedForm, "LBFGS": LBFGS}
