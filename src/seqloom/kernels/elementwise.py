"""exp, tanh, sigmoid for compiled loops over rows: the elementwise functions of `cells.py`,
`attentive_recurrence.py` and `program.py`.

Arguments are scalars or one-dimensional arrays in float32 or float64. In float32 exp is a short polynomial,
which LLVM vectorises, unlike a call of the C library; in float64 it is the library's. Fallback: torch's
functions, in the plain forms.
"""

from __future__ import annotations

import math

import numpy as np
from numba import types
from numba.extending import overload

from seqloom.kernels.host import cached_njit, uncached_njit

# Signed zeros count here, unlike in host.OPTIONS: the options of a kernel decide its bits, so both sets stay.
OPTIONS = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
njit_strict = uncached_njit(OPTIONS)
njit_strict_entry = cached_njit(OPTIONS)
# reassociation allowed, so that LLVM vectorises a sum
njit_strict_reassoc = uncached_njit({**OPTIONS, "fastmath": {"contract", "reassoc"}})

f32 = np.float32
LOG2E = f32(1 / math.log(2))
ROUND = f32(1.5 * 2**23)  # adding and subtracting it rounds to an integer
LN2_HIGH = f32(0.693359375)
LN2_LOW = f32(math.log(2) - 0.693359375)
E0, E1, E2, E3, E4, E5, E6 = (f32(1 / math.factorial(n)) for n in range(7))  # Taylor coefficients
MAX_EXPONENT = f32(88)
MIN_EXPONENT = f32(-87)
EXPONENT_BIAS = np.int32(127)
MANTISSA_BITS = np.int32(23)


def overload_strict(function):
    return overload(function, jit_options=OPTIONS)


def exp(x):
    """eˣ. In float32 2ᵏ eʳ with |r| ≤ ln 2 / 2 and six terms of the series, to a relative 2e-7; NaN stays
    NaN.
    """
    return math.exp(x)


@overload_strict(exp)
def _exp(x):
    def single(x):
        x = MAX_EXPONENT if x > MAX_EXPONENT else x
        x = MIN_EXPONENT if x < MIN_EXPONENT else x
        k = (x * LOG2E + ROUND) - ROUND
        r = x - k * LN2_HIGH - k * LN2_LOW
        p = (((((E6 * r + E5) * r + E4) * r + E3) * r + E2) * r + E1) * r + E0
        return p * np.int32((np.int32(k) + EXPONENT_BIAS) << MANTISSA_BITS).view(np.float32)

    return single if x == types.float32 else lambda x: math.exp(x)


def tanh(x):
    """tanh x."""
    return math.tanh(x)


@overload_strict(tanh)
def _tanh(x):
    return (lambda x: E0 - (E0 + E0) / (E0 + exp(x + x))) if x == types.float32 else lambda x: math.tanh(x)


@njit_strict
def sigmoid_add(a, b):
    """b ← σ(a + b)"""
    one = b.dtype.type(1)
    for j in range(len(b)):
        b[j] = one / (one + exp(-(a[j] + b[j])))


@njit_strict
def tanh_add(a, b):
    """b ← tanh(a + b)"""
    for j in range(len(b)):
        b[j] = tanh(a[j] + b[j])
