"""Matrix products inside compiled loops, so that a loop over time needs no trip to Python: for few rows in single precision those of few.py, else
torch's own, called by address.

The routine is the `sgemm_` that torch itself is linked with, and thus its threads; where a build does not show it, scipy's. Rows are
consecutive (C order); the routine counts columns first, so what it is given is the transposed product.
"""

from __future__ import annotations

import ctypes
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import torch
from numba import types
from numba.core import typing
from numba.extending import overload

from seqloom.kernels.elementwise import njit_strict
from seqloom.kernels.small_gemm import FLOAT_JOB, gemm_f32_into

SMALL_GEMM_ROWS = 160  # rows up to which the tiles of few.py are quicker than the library's product


def blas_address(name: str) -> int:
    """Where the routine stands in this process."""
    for path in [Path(torch.__file__).parent / "lib" / "libtorch_cpu.so", None]:
        try:
            return ctypes.cast(
                getattr(ctypes.CDLL(None if path is None else str(path)), name), ctypes.c_void_p
            ).value
        except (OSError, AttributeError):
            continue
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name.rstrip("_")]
    ctypes.pythonapi.PyCapsule_GetName.restype, ctypes.pythonapi.PyCapsule_GetName.argtypes = (
        ctypes.c_char_p,
        [ctypes.py_object],
    )
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.pythonapi.PyCapsule_GetPointer(capsule, ctypes.pythonapi.PyCapsule_GetName(capsule))


# A name that the compiler's cache can keep; the address behind it is this process's own.
llvm.add_symbol("seqloom_sgemm", blas_address("sgemm_"))
llvm.add_symbol("seqloom_dgemm", blas_address("dgemm_"))
SIGNATURE = typing.signature(types.void, *[types.intp] * 13)
sgemm, dgemm = (
    types.ExternalFunction("seqloom_sgemm", SIGNATURE),
    types.ExternalFunction("seqloom_dgemm", SIGNATURE),
)
TRANS_FLAGS = np.array([ord("N"), ord("T")], np.uint8)


@njit_strict
def gemm_workspace(like, widest, work, threads):
    """What all products of a loop share: the numbers and scales that the routine reads by address, the tiles' job and as many zeros as the
    `widest` product has columns, their work and its threads."""
    return (
        np.empty(6, np.int32),
        np.array([0, 1], like.dtype),
        np.empty(FLOAT_JOB, np.int64),
        np.zeros(widest, like.dtype),
        work,
        threads,
    )


def gemm(a, lda, b, ldb, c, ldc, m, n, k, add, like, tools):
    """C ← A Bᵀ [+ C where add]: A (m, k), B (n, k), C (m, n), given by address and row length; `like` is an array of their precision."""
    raise NotImplementedError


@overload(gemm)
def _product(a, lda, b, ldb, c, ldc, m, n, k, add, like, tools):
    single = like.dtype == types.float32
    routine = sgemm if single else dgemm

    def many(a, lda, b, ldb, c, ldc, m, n, k, add, like, tools):
        numbers, scales = tools[0], tools[1]
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5] = n, m, k, ldb, lda, ldc
        at, scale, letters, size = (
            numbers.ctypes.data,
            scales.ctypes.data,
            TRANS_FLAGS.ctypes.data,
            scales.itemsize,
        )
        more = scale + (size if add else 0)
        routine(
            letters + 1, letters, at, at + 4, at + 8, scale + size, b, at + 12, a, at + 16, more, c, at + 20
        )

    many_rows = njit_strict(many)

    def few_or_many(a, lda, b, ldb, c, ldc, m, n, k, add, like, tools):
        if m > SMALL_GEMM_ROWS:
            many_rows(a, lda, b, ldb, c, ldc, m, n, k, add, like, tools)
        else:
            base, step = (c, 4 * ldc) if add else (tools[3].ctypes.data, 0)
            gemm_f32_into(
                tools[2], tools[4], m, n, k, a, 4 * lda, b, 4 * ldb, base, step, c, 4 * ldc, tools[5]
            )

    return few_or_many if single else many
