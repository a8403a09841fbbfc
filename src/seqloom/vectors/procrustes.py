"""Two languages in one space: the rotation that maps vectors onto those of their translations  [K5]."""

from __future__ import annotations

import numpy as np

from seqloom.errors import DataError


def procrustes(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """R = argmin ‖X R − Y‖² with R Rᵀ = I:   Xᵀ Y = U Λ Vᵀ,  R = U Vᵀ   [K5, D-29]

    Rows are pairs. The lecture takes the SVD of Yᵀ X and prints the same U Vᵀ, which is the transpose of this
    R.
    """
    if x.ndim != 2 or x.shape != y.shape:
        raise DataError(
            f"rows must be pairs of vectors of one size, not arrays of shape {x.shape} and {y.shape}"
        )
    u, _, vt = np.linalg.svd(x.T @ y)
    return u @ vt
