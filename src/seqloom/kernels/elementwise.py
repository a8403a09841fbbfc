"""The elementwise halves of recurrent steps as compiled loops: all gates of a step in one pass over memory, forward and backward.

Arrays are time first: `share` (T, B, W) the inputs' share, `gates` (T, B, W) the recurrent products, which the gates' values replace,
`past` (S, T + 1, B, D) the states, h first, `side` (K, T, B, D) what a kernel keeps besides. Step t reads past[:, t] and writes past[:, t + 1]
of the rows from `first` to `last`; `slot` is its place in gates and side, t or 0 where nothing is kept for a gradient. Backward, `d` (S, B, D) is the
gradient of the state after the step on entry and, on exit, the elementwise part of that of the state before it; `dx` and `dr` are those of share and
products. Rows are worked off in short loops over few arrays, which the compiler turns into vector instructions. Left out: the equations, which
stand at the cells.
"""

from __future__ import annotations

import math

import numpy as np
from numba import njit, types
from numba.extending import overload

from seqloom.kernels.host import cached_njit

OPTIONS = {"nogil": True, "fastmath": {"contract"}, "error_model": "numpy"}
njit_strict, njit_strict_entry = njit(**OPTIONS), cached_njit(OPTIONS)

f32 = np.float32
LOG2E, ROUND, LN2_HIGH, LN2_LOW = (
    f32(1 / math.log(2)),
    f32(1.5 * 2**23),
    f32(0.693359375),
    f32(math.log(2) - 0.693359375),
)
TAYLOR = tuple(f32(1 / math.factorial(n)) for n in range(7))
E0, E1, E2, E3, E4, E5, E6 = TAYLOR
TOP, BOTTOM, BIAS, SHIFT = f32(88), f32(-87), np.int32(127), np.int32(23)


def exp(x):
    """eˣ. In single precision 2ᵏ eʳ with |r| ≤ ln 2 / 2 and six terms of the series, to 2e-7; NaN stays NaN."""
    return math.exp(x)


@overload(exp, jit_options=OPTIONS)
def _exp(x):
    def single(x):
        x = TOP if x > TOP else x
        x = BOTTOM if x < BOTTOM else x
        k = (x * LOG2E + ROUND) - ROUND
        r = x - k * LN2_HIGH - k * LN2_LOW
        p = (((((E6 * r + E5) * r + E4) * r + E3) * r + E2) * r + E1) * r + E0
        return p * np.int32((np.int32(k) + BIAS) << SHIFT).view(np.float32)

    return single if x == types.float32 else lambda x: math.exp(x)


def tanh(x):
    """tanh x."""
    return math.tanh(x)


@overload(tanh, jit_options=OPTIONS)
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
