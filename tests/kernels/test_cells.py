"""The product r ⊙ h serves any cell: one whose gates are fewer than the GRU's, and one that uses r elsewhere too."""

from __future__ import annotations

import numpy as np
import pytest

BATCH, DIM, GATES = 2, 3, 1


def test_the_reset_product_and_its_gradient() -> None:
    pytest.importorskip("numba")
    from seqloom.kernels.cells import reset_product, reset_product_backward

    random = np.random.default_rng(0)
    x_proj, product = random.normal(size=(2, 1, BATCH, (GATES + 1) * DIM))
    h = random.normal(size=(1, BATCH, DIM))
    gates, saved = product.copy(), np.zeros((1, 1, BATCH, DIM))
    reset_product(0, 0, 0, 0, BATCH, GATES * DIM, x_proj, gates, h, saved)
    r = 1 / (1 + np.exp(-(x_proj + product)[0, :, :DIM]))
    np.testing.assert_allclose(gates[0, :, :DIM], r)
    np.testing.assert_array_equal(gates[0, :, DIM:], product[0, :, DIM:])  # the candidate's columns wait
    np.testing.assert_allclose(saved[0, 0], r * h[0])

    other_use, grad = random.normal(size=(2, BATCH, DIM))
    dx_proj = np.zeros_like(x_proj)
    dx_proj[0, :, :DIM] = other_use
    dproduct = grad.copy()
    reset_product_backward(0, 0, BATCH, gates, h, dproduct, dx_proj)
    np.testing.assert_allclose(dx_proj[0, :, :DIM], other_use + grad * h[0] * r * (1 - r))
    np.testing.assert_allclose(dproduct, grad * r)
