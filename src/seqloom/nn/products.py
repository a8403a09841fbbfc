"""Matrix products inside compiled loops: torch's own, called by address, so that a loop over time needs no trip to Python.

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


def address(name: str) -> int:
    """Where the routine stands in this process."""
    for path in [Path(torch.__file__).parent / "lib" / "libtorch_cpu.so", None]:
        try:
            return ctypes.cast(getattr(ctypes.CDLL(None if path is None else str(path)), name), ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name.rstrip("_")]
    ctypes.pythonapi.PyCapsule_GetName.restype, ctypes.pythonapi.PyCapsule_GetName.argtypes = ctypes.c_char_p, [ctypes.py_object]
    ctypes.pythonapi.PyCapsule_GetPointer.restype = ctypes.c_void_p
    ctypes.pythonapi.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return ctypes.pythonapi.PyCapsule_GetPointer(capsule, ctypes.pythonapi.PyCapsule_GetName(capsule))


# A name that the compiler's cache can keep; the address behind it is this process's own.
llvm.add_symbol("seqloom_sgemm", address("sgemm_"))
llvm.add_symbol("seqloom_dgemm", address("dgemm_"))
SIGNATURE = typing.signature(types.void, *[types.intp] * 13)
single, double = types.ExternalFunction("seqloom_sgemm", SIGNATURE), types.ExternalFunction("seqloom_dgemm", SIGNATURE)
LETTERS = np.array([ord("N"), ord("T")], np.uint8)


def routine(like: np.ndarray, *arguments: int) -> None:
    """The routine for the array's kind of number."""
    raise NotImplementedError


@overload(routine)
def _routine(like, *arguments):
    chosen = single if like.dtype == types.float32 else double

    def call(like, *arguments):
        chosen(*arguments)

    return call


def product(a, lda, b, ldb, transposed, c, ldc, m, n, k, add, like, numbers, scales):
    """C ← A B (or A Bᵀ where transposed) [+ C where add]: A (m, k), B (k, n) or (n, k), C (m, n), given by address and row length. `numbers`
    (6 int32) and `scales` (0 and 1 in the arrays' precision) are room for what the routine reads by address."""
    raise NotImplementedError


@overload(product)
def _product(a, lda, b, ldb, transposed, c, ldc, m, n, k, add, like, numbers, scales):
    def call(a, lda, b, ldb, transposed, c, ldc, m, n, k, add, like, numbers, scales):
        numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5] = n, m, k, ldb, lda, ldc
        at, scale, letters = numbers.ctypes.data, scales.ctypes.data, LETTERS.ctypes.data
        size = scales.itemsize
        routine(
            like, letters + (1 if transposed else 0), letters, at, at + 4, at + 8, scale + size, b, at + 12, a, at + 16,
            scale + (size if add else 0), c, at + 20,
        )  # fmt: skip

    return call
