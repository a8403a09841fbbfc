"""The interpreter of decoding programs: one step of a Transformer in one call, so that nothing between its
operations waits for Python. The fast form of the blocks of `nn/transformer.py`; `fused/program.py` builds the
programs, `nn/decode.py` reads the blocks.

A program is an int64 array of instructions: an opcode, counts, then addresses and strides in bytes;
`OP_SIZES` has their lengths. Arrays are float32 with consecutive rows; `constants` (float32) holds the ε of
norms and the scale of attention, by index. Products and attention are those of `small_gemm.py` and
`decode_attention.py`, with their cache blocking; the other instructions take 16 rows, or ACTIVATE_CHUNK
numbers, at a time, which fit into the L1 cache. Fallback: the blocks' own `forward`.
"""

from __future__ import annotations

import math

import numpy as np

from seqloom.kernels.decode_attention import decode_attention
from seqloom.kernels.elementwise import exp, tanh
from seqloom.kernels.host import c_worker, fetch_add, load_arg, njit_entry, njit_helper, njit_reassoc
from seqloom.kernels.int8_gemm import gemm_int8
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, parallel_rows, run_parallel
from seqloom.kernels.simd import f32_view
from seqloom.kernels.small_gemm import gemm_f32

NORM, LINEAR, LINEAR_INT8, ADD, WRITE_CACHE, ATTEND, ACTIVATE, GATE, ROTATE = range(9)
OP_SIZES = (8, 8, 9, 5, 14, 29, 4, 5, 9)  # length of each instruction with its opcode
ACTIVATIONS = ("relu", "gelu", "gelu_tanh", "swish", "sigmoid", "tanh")
ACTIVATE_CHUNK = 4096  # numbers that a thread activates at a time
ACTIVATE_COUNT, ACTIVATE_FUNCTION, ACTIVATE_X, ACTIVATE_TASK_SIZE = range(ARGS, ARGS + 4)

f32 = np.float32
ZERO = f32(0)
HALF = f32(0.5)
ONE = f32(1)
SQRT_HALF = f32(math.sqrt(0.5))
SQRT_2_OVER_PI = f32(math.sqrt(2 / math.pi))
GELU_CUBIC = f32(0.044715)
# Abramowitz and Stegun 7.1.26
ERF_P = f32(0.3275911)
ERF_1 = f32(0.254829592)
ERF_2 = f32(-0.284496736)
ERF_3 = f32(1.421413741)
ERF_4 = f32(-1.453152027)
ERF_5 = f32(1.061405429)


@njit_helper
def erf(x):
    """The error function to an absolute 1.5e-7 (Abramowitz and Stegun 7.1.26)."""
    a = abs(x)
    t = ONE / (ONE + ERF_P * a)
    y = ONE - ((((ERF_5 * t + ERF_4) * t + ERF_3) * t + ERF_2) * t + ERF_1) * t * exp(-a * a)
    return y if x > ZERO else -y


@njit_helper
def activate(x, function):
    """x ← f(x); `function` is an index in ACTIVATIONS."""
    if function == 0:
        for i in range(len(x)):
            x[i] = x[i] if x[i] > ZERO else ZERO
    elif function == 1:
        for i in range(len(x)):
            x[i] = HALF * x[i] * (ONE + erf(x[i] * SQRT_HALF))
    elif function == 2:
        for i in range(len(x)):
            a = x[i]
            x[i] = HALF * a * (ONE + tanh(SQRT_2_OVER_PI * (a + GELU_CUBIC * a * a * a)))
    elif function == 3:
        for i in range(len(x)):
            x[i] = x[i] / (ONE + exp(-x[i]))
    elif function == 4:
        for i in range(len(x)):
            x[i] = ONE / (ONE + exp(-x[i]))
    else:
        for i in range(len(x)):
            x[i] = tanh(x[i])


@c_worker
def activation_worker(task):
    items = load_arg(task, NUM_ITEMS)
    count = load_arg(task, ACTIVATE_COUNT)
    function = load_arg(task, ACTIVATE_FUNCTION)
    x = load_arg(task, ACTIVATE_X)
    while True:
        item = fetch_add(task, load_arg(task, CHUNK))
        if item >= items:
            return
        begin = ACTIVATE_CHUNK * item
        activate(f32_view(x + 4 * begin, min(ACTIVATE_CHUNK, count - begin)), function)


@njit_reassoc
def sum_of(x):
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@njit_reassoc
def sum_squares(x, mean):
    total = 0.0
    for i in range(len(x)):
        total += (x[i] - mean) ** 2
    return total


@njit_helper
def norm(x, y, gain, bias, epsilon, centred):
    """y = gain ⊙ (x - mean) / √(variance + ε) + bias (LayerNorm), or with mean 0 if not `centred` (RMSNorm).
    Empty gain or bias: none.
    """
    size = len(x)
    mean = sum_of(x) / size if centred else 0.0
    factor = f32(1 / math.sqrt(sum_squares(x, mean) / size + epsilon))
    mean_f32 = f32(mean)
    if len(bias):
        for i in range(size):
            y[i] = (x[i] - mean_f32) * factor * gain[i] + bias[i]
    elif len(gain):
        for i in range(size):
            y[i] = (x[i] - mean_f32) * factor * gain[i]
    else:
        for i in range(size):
            y[i] = (x[i] - mean_f32) * factor


@njit_helper
def norm_rows(row_begin, row_end, op, constants):
    """NORM, rows, dim, x, y, gain, bias, the index of ε, negative for RMSNorm."""
    dim = op[2]
    x = op[3]
    y = op[4]
    index = op[7]
    gain = f32_view(op[5], dim if op[5] else 0)
    bias = f32_view(op[6], dim if op[6] else 0)
    epsilon = constants[abs(index)]
    for b in range(row_begin, row_end):
        offset = 4 * b * dim
        norm(f32_view(x + offset, dim), f32_view(y + offset, dim), gain, bias, epsilon, index > 0)


@njit_helper
def copy(target, source, size):
    x = f32_view(source, size)
    y = f32_view(target, size)
    for i in range(size):
        y[i] = x[i]


@njit_helper
def write_cache_rows(row_begin, row_end, op):
    """WRITE_CACHE, rows, groups, K, K', new keys, new values, their row stride, then for the cached keys and
    for the cached values: address, row stride, group stride.
    """
    groups = op[2]
    key_dim = op[3]
    value_dim = op[4]
    new_keys = op[5]
    new_values = op[6]
    stride = op[7]
    for b in range(row_begin, row_end):
        for g in range(groups):
            copy(op[8] + b * op[9] + g * op[10], new_keys + b * stride + 4 * g * key_dim, key_dim)
            copy(op[11] + b * op[12] + g * op[13], new_values + b * stride + 4 * g * value_dim, value_dim)


@njit_helper
def add_rows(row_begin, row_end, op):
    """ADD, rows, dim, x, y: x ← x + y"""
    dim = op[2]
    size = dim * (row_end - row_begin)
    offset = 4 * dim * row_begin
    x = f32_view(op[3] + offset, size)
    y = f32_view(op[4] + offset, size)
    for i in range(size):
        x[i] += y[i]


@njit_helper
def gate_rows(row_begin, row_end, op):
    """GATE, rows, dim, x, y: y = swish(a) ⊙ b for x = [a; b] in each row."""
    dim = op[2]
    for b in range(row_begin, row_end):
        both = f32_view(op[3] + 8 * b * dim, 2 * dim)
        out = f32_view(op[4] + 4 * b * dim, dim)
        for i in range(dim):
            out[i] = both[i] / (ONE + exp(-both[i])) * both[dim + i]


@njit_helper
def rotate_rows(row_begin, row_end, op):
    """ROTATE, rows, heads, K, pairs in halves, x, row stride, table of cosines and sines, its row stride.

    Each pair (a, b) of queries and keys becomes (a cos - b sin, a sin + b cos).
    """
    key_dim = op[3]
    half = key_dim // 2
    pair_stride = 1 if op[4] else 2  # from one pair to the next
    partner = half if op[4] else 1  # from a to b
    for b in range(row_begin, row_end):
        table = f32_view(op[7] + b * op[8], 2 * half)
        for h in range(op[2]):
            x = f32_view(op[5] + b * op[6] + 4 * h * key_dim, key_dim)
            for i in range(half):
                left = x[pair_stride * i]
                right = x[pair_stride * i + partner]
                cos = table[i]
                sin = table[half + i]
                x[pair_stride * i] = left * cos - right * sin
                x[pair_stride * i + partner] = left * sin + right * cos


norm_parallel = parallel_rows(norm_rows)
write_cache = parallel_rows(write_cache_rows)
add_parallel = parallel_rows(add_rows)
gate_parallel = parallel_rows(gate_rows)
rotate_parallel = parallel_rows(rotate_rows)


@njit_entry
def run_program(
    program, constants, f32_worker, int8_worker, decode_worker, activation_worker, op_sizes, num_threads
):
    """Runs the program."""
    at = 0
    while at < len(program):
        opcode = program[at]
        op = program[at : at + op_sizes[opcode]]
        if opcode == NORM:
            norm_parallel(op[1], num_threads, op, constants)
        elif opcode == LINEAR:
            gemm_f32(f32_worker, op[1], op[2], op[3], op[4], op[5], op[6], op[7], num_threads)
        elif opcode == LINEAR_INT8:
            gemm_int8(int8_worker, op[1], op[2], op[3], op[4], op[5], op[6], op[7], op[8], num_threads)
        elif opcode == ADD:
            add_parallel(op[1], num_threads, op)
        elif opcode == WRITE_CACHE:
            write_cache(op[1], num_threads, op)
        elif opcode == ATTEND:
            decode_attention(decode_worker, op[1], constants[op[2]], op[3:], num_threads)
        elif opcode == ACTIVATE:
            task = np.empty(ACTIVATE_TASK_SIZE, np.int64)
            items = -(-op[1] // ACTIVATE_CHUNK)
            task[NEXT] = 0
            task[NUM_ITEMS] = items
            task[CHUNK] = 1
            task[ACTIVATE_COUNT] = op[1]
            task[ACTIVATE_FUNCTION] = op[2]
            task[ACTIVATE_X] = op[3]
            run_parallel(activation_worker, task, min(num_threads, items))
        elif opcode == ROTATE:
            rotate_parallel(op[1], num_threads, op)
        else:
            gate_parallel(op[1], num_threads, op)
        at += op_sizes[opcode]
