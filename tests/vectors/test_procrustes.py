"""Procrustes: the right rotation, and the lecture's transposed one beside it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.linalg import orthogonal_procrustes

from seqloom.vectors.procrustes import procrustes


def test_x7_the_printed_solution_is_transposed() -> None:
    """On Y = X Q our R is Q; the printed recipe, U Vᵀ from the SVD of Yᵀ X, gives Qᵀ and leaves a large error."""
    random = np.random.default_rng(0)
    x, (q, _) = random.standard_normal((50, 8)), np.linalg.qr(random.standard_normal((8, 8)))
    y = x @ q
    r = procrustes(x, y)
    np.testing.assert_allclose(r, q, atol=1e-12)
    u, _, vt = np.linalg.svd(y.T @ x)
    printed = u @ vt
    np.testing.assert_allclose(printed, q.T, atol=1e-12)
    assert np.linalg.norm(x @ r - y) < 1e-12 and np.linalg.norm(x @ printed - y) > 10


def test_it_is_scipys_and_a_rotation() -> None:
    random = np.random.default_rng(1)
    x, y = random.standard_normal((2, 30, 5))
    r = procrustes(x, y)
    np.testing.assert_allclose(r, orthogonal_procrustes(x, y)[0], atol=1e-12)
    np.testing.assert_allclose(r @ r.T, np.eye(5), atol=1e-12)
    with pytest.raises(ValueError, match="one size"):
        procrustes(x, y[:, :4])
