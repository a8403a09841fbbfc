"""One step of a Transformer as one call of compiled code: norms, products, attention and functions are told in a row of whole numbers and then
done one after another, so that between them nothing waits for Python. Products and attention stand in few.py and look.py.

An instruction is its number and what it needs: counts, then addresses. Arrays are in single precision, their rows consecutive.
"""

from __future__ import annotations

import math

import numpy as np

from seqloom.kernels.decode_attention import decode_attention
from seqloom.kernels.elementwise import exp, tanh
from seqloom.kernels.host import fetch_add, load_arg, njit_entry, njit_helper, njit_reassoc
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, parallel_rows, run_parallel
from seqloom.kernels.simd import f32_view
from seqloom.kernels.small_gemm import gemm_f32, gemm_int8

NORM, LINEAR, LINEAR_INT8, ADD, WRITE_CACHE, ATTEND, ACTIVATE, GATE, ROTATE = range(9)
OP_SIZES = (8, 8, 9, 5, 14, 29, 4, 5, 9)  # of the instructions, each with its number
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "swish", "sigmoid", "tanh")
ACTIVATE_CHUNK = 4096  # numbers that are bent together

f32 = np.float32
HALF, ONE, TWO, ZERO, ROOT, CUBE, ROOT_HALF = (
    f32(0.5),
    f32(1),
    f32(2),
    f32(0),
    f32(math.sqrt(2 / math.pi)),
    f32(0.044715),
    f32(math.sqrt(0.5)),
)
P, A1, A2, A3, A4, A5 = (
    f32(0.3275911),
    f32(0.254829592),
    f32(-0.284496736),
    f32(1.421413741),
    f32(-1.453152027),
    f32(1.061405429),
)


@njit_helper
def erf(x):
    """To 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    a = abs(x)
    t = ONE / (ONE + P * a)
    y = ONE - ((((A5 * t + A4) * t + A3) * t + A2) * t + A1) * t * exp(-a * a)
    return y if x > ZERO else -y


@njit_helper
def activate(x, kind):
    """x ← f(x)"""
    if kind == 0:
        for i in range(len(x)):
            x[i] = x[i] if x[i] > ZERO else ZERO
    elif kind == 1:
        for i in range(len(x)):
            x[i] = HALF * x[i] * (ONE + erf(x[i] * ROOT_HALF))
    elif kind == 2:
        for i in range(len(x)):
            a = x[i]
            x[i] = HALF * a * (ONE + tanh(ROOT * (a + CUBE * a * a * a)))
    elif kind == 3:
        for i in range(len(x)):
            x[i] = x[i] / (ONE + exp(-x[i]))
    elif kind == 4:
        for i in range(len(x)):
            x[i] = ONE / (ONE + exp(-x[i]))
    else:
        for i in range(len(x)):
            x[i] = tanh(x[i])


def activation_worker(job):
    pieces, count, kind, x = (
        load_arg(job, NUM_ITEMS),
        load_arg(job, ARGS),
        load_arg(job, ARGS + 1),
        load_arg(job, ARGS + 2),
    )
    while True:
        piece = fetch_add(job, load_arg(job, CHUNK))
        if piece >= pieces:
            return
        activate(
            f32_view(x + 4 * ACTIVATE_CHUNK * piece, min(ACTIVATE_CHUNK, count - ACTIVATE_CHUNK * piece)),
            kind,
        )


@njit_reassoc
def sum_of(x):
    found = 0.0
    for i in range(len(x)):
        found += x[i]
    return found


@njit_reassoc
def sum_squares(x, mean):
    found = 0.0
    for i in range(len(x)):
        found += (x[i] - mean) ** 2
    return found


@njit_helper
def norm(x, y, gain, bias, epsilon, centred):
    """y = gain ⊙ (x - mean) / √(variance + ε) + bias, or without the mean."""
    size = len(x)
    mean = sum_of(x) / size if centred else 0.0
    factor, middle = f32(1 / math.sqrt(sum_squares(x, mean) / size + epsilon)), f32(mean)
    if len(bias):
        for i in range(size):
            y[i] = (x[i] - middle) * factor * gain[i] + bias[i]
    elif len(gain):
        for i in range(size):
            y[i] = (x[i] - middle) * factor * gain[i]
    else:
        for i in range(size):
            y[i] = (x[i] - middle) * factor


@njit_helper
def norm_rows(first, last, c, numbers):
    dim, kind = c[2], c[7]  # the place of ε, turned round where the mean is left in
    gain, bias = f32_view(c[5], dim if c[5] else 0), f32_view(c[6], dim if c[6] else 0)
    for b in range(first, last):
        norm(
            f32_view(c[3] + 4 * b * dim, dim),
            f32_view(c[4] + 4 * b * dim, dim),
            gain,
            bias,
            numbers[abs(kind)],
            kind > 0,
        )


@njit_helper
def copy(to, source, size):
    x, y = f32_view(source, size), f32_view(to, size)
    for i in range(size):
        y[i] = x[i]


@njit_helper
def write_cache_rows(first, last, c):
    """New keys and values of each row into its place of the cache."""
    groups, key, value, k, v, row = c[2], c[3], c[4], c[5], c[6], c[7]
    for b in range(first, last):
        for g in range(groups):
            copy(c[8] + b * c[9] + g * c[10], k + b * row + 4 * g * key, key)
            copy(c[11] + b * c[12] + g * c[13], v + b * row + 4 * g * value, value)


@njit_helper
def add_rows(first, last, c):
    """x ← x + y"""
    size = c[2] * (last - first)
    x, y = f32_view(c[3] + 4 * c[2] * first, size), f32_view(c[4] + 4 * c[2] * first, size)
    for i in range(size):
        x[i] += y[i]


@njit_helper
def gate_rows(first, last, c):
    """out = swish(a) ⊙ b, where a and b stand in a row."""
    dim = c[2]
    for b in range(first, last):
        both, out = f32_view(c[3] + 8 * b * dim, 2 * dim), f32_view(c[4] + 4 * b * dim, dim)
        for i in range(dim):
            out[i] = both[i] / (ONE + exp(-both[i])) * both[dim + i]


@njit_helper
def rotate_rows(first, last, c):
    """Each pair of queries and keys turned by its angle: (a, b) becomes (a cos - b sin, a sin + b cos)."""
    half = c[3] // 2
    one, step = (1, half) if c[4] else (2, 1)  # from pair to pair, and from a to b
    for b in range(first, last):
        turns = f32_view(c[7] + b * c[8], 2 * half)
        for h in range(c[2]):
            x = f32_view(c[5] + b * c[6] + 4 * h * c[3], c[3])
            for i in range(half):
                left, right, cos, sin = x[one * i], x[one * i + step], turns[i], turns[half + i]
                x[one * i], x[one * i + step] = left * cos - right * sin, left * sin + right * cos


norms, write_cache, adds, gates, rotate = (
    parallel_rows(norm_rows),
    parallel_rows(write_cache_rows),
    parallel_rows(add_rows),
    parallel_rows(gate_rows),
    parallel_rows(rotate_rows),
)


@njit_entry
def run_program(code, numbers, float_work, byte_work, look_work, bend_work, sizes, threads):
    """Does what the code says."""
    at = 0
    while at < len(code):
        op = code[at]
        c = code[at : at + sizes[op]]
        if op == NORM:
            norms(c[1], threads, c, numbers)
        elif op == LINEAR:
            gemm_f32(float_work, c[1], c[2], c[3], c[4], c[5], c[6], c[7], threads)
        elif op == LINEAR_INT8:
            gemm_int8(byte_work, c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8], threads)
        elif op == ADD:
            adds(c[1], threads, c)
        elif op == WRITE_CACHE:
            write_cache(c[1], threads, c)
        elif op == ATTEND:
            decode_attention(look_work, c[1], numbers[c[2]], c[3:], threads)
        elif op == ACTIVATE:
            job = np.empty(ARGS + 3, np.int64)
            pieces = -(-c[1] // ACTIVATE_CHUNK)
            job[NEXT], job[NUM_ITEMS], job[CHUNK], job[ARGS], job[ARGS + 1], job[ARGS + 2] = (
                0,
                pieces,
                1,
                c[1],
                c[2],
                c[3],
            )
            run_parallel(bend_work, job, min(threads, pieces))
        elif op == ROTATE:
            rotate(c[1], threads, c)
        else:
            gates(c[1], threads, c)
        at += sizes[op]
