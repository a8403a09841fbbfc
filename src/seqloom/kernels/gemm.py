"""Matrix products inside compiled loops over time (`recurrence.py`, `attentive_recurrence.py`), so that a
step makes no trip to Python.

C ← A Bᵀ for A (m, k), B (n, k), C (m, n), by address and row length in elements, rows consecutive. float32
products of up to SMALL_GEMM_ROWS rows use the tiles of `small_gemm.py`; others use the BLAS that torch is
linked with, and thus torch's threads (`host.py`; fallback: scipy's). BLAS is column-major, so it computes the
transposed product.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numba import types
from numba.extending import overload

from seqloom.kernels.elementwise import njit_strict
from seqloom.kernels.host import dgemm, register_blas, sgemm
from seqloom.kernels.small_gemm import F32_TASK_SIZE, GemmArgs, gemm_f32_into

register_blas()

SMALL_GEMM_ROWS = 160  # up to this many rows the tiles of small_gemm.py are faster than BLAS
TRANS_FLAGS = np.array([ord("N"), ord("T")], np.uint8)


class GemmWorkspace(NamedTuple):
    """What all products of a loop share."""

    blas_sizes: np.ndarray  # (6,) int32, read by BLAS by address
    zero_one: np.ndarray  # [0, 1] in the arrays' dtype, the factors that BLAS reads by address
    task: np.ndarray  # of the tiles
    zeros: np.ndarray  # as many as the widest product has columns
    gemm_address: int
    num_threads: int


@njit_strict
def gemm_workspace(like, max_columns, workers):
    return GemmWorkspace(
        np.empty(6, np.int32),
        np.array([0, 1], like.dtype),
        np.empty(F32_TASK_SIZE, np.int64),
        np.zeros(max_columns, like.dtype),
        workers.gemm_address,
        workers.num_threads,
    )


def gemm(a, lda, b, ldb, c, ldc, m, n, k, add, like, workspace):
    """C ← A Bᵀ [+ C if add]; `like` is an array of their dtype."""
    raise NotImplementedError


@overload(gemm)
def _gemm(a, lda, b, ldb, c, ldc, m, n, k, add, like, workspace):
    single = like.dtype == types.float32
    routine = sgemm if single else dgemm

    def blas_gemm(a, lda, b, ldb, c, ldc, m, n, k, add, like, workspace):
        sizes = workspace.blas_sizes
        sizes[0] = n
        sizes[1] = m
        sizes[2] = k
        sizes[3] = ldb
        sizes[4] = lda
        sizes[5] = ldc
        at = sizes.ctypes.data
        zero = workspace.zero_one.ctypes.data
        one = zero + workspace.zero_one.itemsize
        beta = one if add else zero
        no_trans = TRANS_FLAGS.ctypes.data
        trans = no_trans + 1
        routine(trans, no_trans, at, at + 4, at + 8, one, b, at + 12, a, at + 16, beta, c, at + 20)

    blas = njit_strict(blas_gemm)

    def small_or_blas_gemm(a, lda, b, ldb, c, ldc, m, n, k, add, like, workspace):
        if m > SMALL_GEMM_ROWS:
            blas(a, lda, b, ldb, c, ldc, m, n, k, add, like, workspace)
        else:
            addend = c if add else workspace.zeros.ctypes.data
            b_stride = 4 * ldc if add else 0
            arguments = GemmArgs(m, n, k, a, 4 * lda, b, 4 * ldb, addend, b_stride, c, 4 * ldc)
            gemm_f32_into(workspace.task, workspace.gemm_address, arguments, workspace.num_threads)

    return small_or_blas_gemm if single else blas_gemm
