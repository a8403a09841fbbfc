"""How alike two sets of vectors of the same examples are: CKA (Kornblith et al.)   [K2, K4]

    CKA(K, L) = HSIC(K, L) / √(HSIC(K, K) HSIC(L, L))

K and L are the Gram matrices of the two sets. HSIC has a biased estimate, ⟨HKH, HLH⟩ with H = I - 1/n, and an unbiased one (Song et al.), whose
ratio is here called debiased. They are different numbers: with few examples of many features the biased one is near 1 for anything. CKA does not
change if either set is rotated or scaled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from seqloom.errors import DataError
from seqloom.results import Result

Estimate = Literal["biased", "debiased"]
Kernel = Literal["linear", "rbf"]
MOST_GRAM = 2000  # examples whose Gram matrices are kept


@dataclass(frozen=True)
class Similarity(Result):
    """CKA of each layer of one run (a row) with each layer of another (a column)."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cka: np.ndarray
    estimate: str
    kernel: str
    examples: int
    tokens: tuple[int, ...] = ()  # that each of the two runs read
    cut: int = 0  # texts of which only the part was read that both runs read whole


def compare_layers(
    rows: dict[str, np.ndarray], columns: dict[str, np.ndarray], estimate: Estimate, kernel: Kernel
) -> Similarity:
    """CKA of each of some layers with each of others; vectors (n, D) of the same examples."""
    examples = len(next(iter(rows.values())))
    if kernel == "rbf":
        if examples > MOST_GRAM:
            raise DataError(
                f"the RBF kernel compares all pairs of texts: give at most {MOST_GRAM:,} of them, not {examples:,}"
            )
        grams = [{name: rbf_gram(x) for name, x in side.items()} for side in (rows, columns)]
        found = [[kernel_cka(k, other, estimate) for other in grams[1].values()] for k in grams[0].values()]
    else:
        found = [[linear_cka(x, y, estimate) for y in columns.values()] for x in rows.values()]
    return Similarity(tuple(rows), tuple(columns), np.array(found), estimate, kernel, examples)


def linear_cka(x: np.ndarray, y: np.ndarray, estimate: Estimate = "debiased") -> float:
    """CKA with the kernel x·x', from the features themselves: (n, p), (n, q), in O(n p q)."""
    x, y = centred(x), centred(y)
    if len(x) != len(y):
        raise DataError(f"{len(x)} vectors cannot be compared with {len(y)}: give the same examples")
    return hsic_features(x, y, estimate) / np.sqrt(
        hsic_features(x, x, estimate) * hsic_features(y, y, estimate)
    )


def hsic_features(x: np.ndarray, y: np.ndarray, estimate: Estimate) -> float:
    """HSIC of the Gram matrices x xᵀ and y yᵀ of centred features, up to a factor that both estimates share."""
    n = len(x)
    total = float(np.square(x.T @ y).sum())  # ⟨x xᵀ, y yᵀ⟩
    if estimate == "biased":
        return total
    if n < 4:
        raise DataError(f"the debiased estimate needs at least 4 examples, not {n}")
    squares_x, squares_y = np.square(x).sum(1), np.square(y).sum(1)  # the diagonals of the Gram matrices
    shared = float(squares_x @ squares_y)
    return total - n / (n - 2) * shared + float(squares_x.sum() * squares_y.sum()) / ((n - 1) * (n - 2))


def kernel_cka(k: np.ndarray, l: np.ndarray, estimate: Estimate = "debiased") -> float:  # noqa: E741
    """CKA of two Gram matrices (n, n)."""
    return hsic_grams(k, l, estimate) / np.sqrt(hsic_grams(k, k, estimate) * hsic_grams(l, l, estimate))


def hsic_grams(k: np.ndarray, l: np.ndarray, estimate: Estimate) -> float:  # noqa: E741
    """HSIC of two Gram matrices: (⟨K̃, L̃⟩ + 1ᵀK̃1 1ᵀL̃1 / ((n-1)(n-2)) - 2/(n-2) 1ᵀK̃L̃1) for K̃ without its diagonal, or ⟨HKH, HLH⟩."""
    n = len(k)
    if estimate == "biased":
        return float((centred_gram(k) * centred_gram(l)).sum())
    k, l = k - np.diag(np.diag(k)), l - np.diag(np.diag(l))  # noqa: E741
    sums_k, sums_l = k.sum(0), l.sum(0)
    return float(
        (k * l).sum() + sums_k.sum() * sums_l.sum() / ((n - 1) * (n - 2)) - 2 / (n - 2) * (sums_k @ sums_l)
    )


def rbf_gram(x: np.ndarray, width: float = 0.5) -> np.ndarray:
    """exp(-‖x - x'‖² / (2 s²)), s² = width² · the median of ‖x - x'‖²."""
    squares = np.square(x).sum(1)
    distances = np.maximum(squares[:, None] + squares[None] - 2 * x @ x.T, 0)
    return np.exp(-distances / (2 * width**2 * np.median(distances)))


def centred(x: np.ndarray) -> np.ndarray:
    x = np.asarray(x, np.float64)
    return x - x.mean(0)


def centred_gram(k: np.ndarray) -> np.ndarray:
    return k - k.mean(0) - k.mean(1, keepdims=True) + k.mean()
