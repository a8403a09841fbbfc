"""Register tiles of matrix products: vectors of 8 and of 16 numbers give the same bits."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from seqloom.fused.linear import ROW_BLOCK, linear

ROWS, COLUMNS, SIZE = 32, 12, 37


@pytest.fixture(scope="module")
def tiles():
    """Compiled products of packed x (ROWS, SIZE) and W (COLUMNS, SIZE) by vectors of 8 and of 16 rows."""
    numba = pytest.importorskip("numba")
    from seqloom.kernels.gemm_tiles import PACKED_ROWS, tile_packed_f32

    @numba.njit
    def by_8(y, bias, w, x):
        for row in range(0, ROWS, PACKED_ROWS):
            for column in range(0, COLUMNS, 6):
                at = y.ctypes.data + 4 * (row * COLUMNS + column)
                packed = x.ctypes.data + 4 * row * SIZE
                weights = w.ctypes.data + 4 * column * SIZE
                added = bias.ctypes.data + 4 * column
                tile_packed_f32(at, 4 * COLUMNS, added, weights, 4 * SIZE, packed, SIZE, 8, 2, 6)

    @numba.njit
    def by_16(y, bias, w, x):
        data = y.ctypes.data, 4 * COLUMNS, bias.ctypes.data, w.ctypes.data, 4 * SIZE, x.ctypes.data, SIZE
        tile_packed_f32(data[0], data[1], data[2], data[3], data[4], data[5], data[6], 16, 2, 12)

    return by_8, by_16


def test_the_width_of_vectors_does_not_change_the_bits(tiles):
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal((rows, SIZE), np.float32) for rows in (ROWS, COLUMNS))
    bias = rng.standard_normal(COLUMNS).astype(np.float32)
    packed = np.ascontiguousarray(x.reshape(2, 16, SIZE).transpose(0, 2, 1))
    results = []
    for tile in tiles:
        y = np.full((ROWS, COLUMNS), np.nan, np.float32)
        tile(y, bias, w, packed)
        np.testing.assert_allclose(
            y, x.astype(np.float64) @ w.T.astype(np.float64) + bias, rtol=1e-5, atol=1e-5
        )
        results.append(y)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("rows", [7, 8, 15, 17, 31, 32, 33, 64, 320, ROW_BLOCK + 3])
@pytest.mark.parametrize("columns", [1, 3, 4, 7, 11, 12, 13, 25, 100])
def test_every_rest_of_rows_and_columns_is_the_product(rows, columns):
    torch.manual_seed(columns)
    x, weight = torch.randn(rows, 40, dtype=torch.float32), torch.randn(columns, 40, dtype=torch.float32)
    with torch.no_grad():
        y = linear(x, weight)
    torch.testing.assert_close(y.double(), x.double() @ weight.double().T, rtol=1e-5, atol=1e-5)


def test_a_row_has_the_same_bits_among_more_rows():
    """A text does not depend on how many others are computed with it, from the number of rows on that are packed."""
    torch.manual_seed(0)
    x, weight = torch.randn(64, 48, dtype=torch.float32), torch.randn(30, 48, dtype=torch.float32)
    with torch.no_grad():
        whole = linear(x, weight)
        for rows in (16, 17, 32, 40):
            assert torch.equal(linear(x[:rows].contiguous(), weight), whole[:rows])
