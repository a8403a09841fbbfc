"""y = x̂ Ŵᵀ + b with int8 weights for few rows x: the fast form of `Int8Linear` in `nn/int8.py`, called
by `fused/linear.py`.

Arrays by address: x (m, k), b (n,) and y (m, n) float32 with consecutive rows, k even; W as panels (n/16,
k/2, 16, 2) of int8 with float32 scales (n,); W, its scales and b are padded to a multiple of 16 rows. x is
first quantised to int16, a scale for each row.

Threads take chunks of panels; ROW_BLOCK rows of x meet a panel while it is in the L1 cache and the next one
is prefetched. Fallback: the product of the dequantised matrices by torch, which has gradients.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.gemm_tiles import INT8_COLS, INT8_ROWS, tile_int8
from seqloom.kernels.host import c_worker, fetch_add, load_arg, njit_entry, njit_helper
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, parallel_rows, run_parallel
from seqloom.kernels.simd import f32_view
from seqloom.kernels.small_gemm import chunk_size

ROW_BLOCK = 32 * INT8_ROWS  # rows of x in one cache block
INT32_MAX = (1 << 31) - 1
PREFETCH_BYTES = 2048  # how far ahead the first tile of a panel prefetches

# The task: m, n, k, then addresses
M, N, K, X, W, B, Y, W_SCALES, X_SCALES, TASK_SIZE = range(ARGS, ARGS + 10)


@njit_helper
def int8_tile(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, rows):
    """Up to INT8_ROWS rows and 16 columns of y."""
    if rows >= INT8_ROWS:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, INT8_ROWS)
    elif rows == 7:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 7)
    elif rows == 6:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 6)
    elif rows == 5:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 5)
    elif rows == 4:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 4)
    elif rows == 3:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 3)
    elif rows == 2:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 2)
    else:
        tile_int8(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, 1)


@njit_helper
def int8_panels(task, begin, end):
    """Panels [begin, end) of INT8_COLS columns of y each, ROW_BLOCK rows at a time."""
    m = load_arg(task, M)
    n = load_arg(task, N)
    k = load_arg(task, K)
    x = load_arg(task, X)
    weights = load_arg(task, W)
    bias = load_arg(task, B)
    out = load_arg(task, Y)
    scales = load_arg(task, W_SCALES)
    x_scales = load_arg(task, X_SCALES)
    y_stride = 4 * n
    pairs = k // 2
    scratch = np.empty((INT8_ROWS, INT8_COLS), np.float32)
    for block in range(0, m, ROW_BLOCK):
        block_end = min(m, block + ROW_BLOCK)
        for panel in range(begin, end):
            column = INT8_COLS * panel
            w = weights + column * k
            b = bias + 4 * column
            w_scales = scales + 4 * column
            columns = min(INT8_COLS, n - column)
            for i in range(block, block_end, INT8_ROWS):
                rows = block_end - i
                x_row = x + 2 * i * k
                scale = x_scales + 4 * i
                y_row = out + i * y_stride + 4 * column
                # later tiles have this panel in the cache and prefetch the next one
                prefetch_bytes = INT8_COLS * k if i > block else PREFETCH_BYTES
                if columns == INT8_COLS:
                    int8_tile(y_row, y_stride, b, w, w_scales, x_row, scale, pairs, prefetch_bytes, rows)
                else:  # the last panel is wider than y
                    target = scratch.ctypes.data
                    int8_tile(
                        target, 4 * INT8_COLS, b, w, w_scales, x_row, scale, pairs, prefetch_bytes, rows
                    )
                    for j in range(min(INT8_ROWS, rows)):
                        f32_view(y_row + j * y_stride, columns)[:] = scratch[j, :columns]


@c_worker
def int8_worker(task):
    items = load_arg(task, NUM_ITEMS)
    chunk = load_arg(task, CHUNK)
    while True:
        begin = fetch_add(task, chunk)
        if begin >= items:
            return
        int8_panels(task, begin, min(begin + chunk, items))


@njit_helper
def quantize_row(x, k, x_int16, offset, pair_stride, limit):
    """x̂ = round(x / t) into `x_int16`, pair by pair, `pair_stride` elements apart; returns t = max |x| /
    limit, NaN for NaN and infinity.
    """
    bits = f32_view(x, k).view(np.int32)
    values = f32_view(x, k)
    top = np.int32(0)
    for j in range(k):
        magnitude = np.int32(bits[j] & np.int32(0x7FFFFFFF))
        top = magnitude if magnitude > top else top
    largest = np.int32(top).view(np.float32)
    factor = np.float32(0) if top == 0 else limit / largest
    not_finite = top >= np.int32(0x7F800000)
    if not_finite or not factor < np.float32(3e38):  # NaN, infinity, or too small to invert
        factor = np.float32(0)
    if factor == 0:
        for j in range(0, k, 2):
            x_int16[offset + pair_stride * (j // 2)] = 0
            x_int16[offset + pair_stride * (j // 2) + 1] = 0
        return np.float32(np.nan) if not_finite else np.float32(0)
    for j in range(k // 2):
        x_int16[offset + pair_stride * j] = np.int16(np.rint(values[2 * j] * factor))
        x_int16[offset + pair_stride * j + 1] = np.int16(np.rint(values[2 * j + 1] * factor))
    return largest / limit


@njit_helper
def quantize_rows(row_begin, row_end, x, k, rows, x_int16, x_scales):
    """Rows of x in 16 bits; the rows of one tile are interleaved pair by pair."""
    limit = np.float32(min(32767, INT32_MAX // (127 * k)))
    for i in range(row_begin, row_end):
        tile = i // INT8_ROWS * INT8_ROWS
        offset = tile * k + 2 * (i - tile)
        pair_stride = 2 * min(INT8_ROWS, rows - tile)
        x_scales[i] = quantize_row(x + 4 * i * k, k, x_int16, offset, pair_stride, limit)


quantize_parallel = parallel_rows(quantize_rows)


@njit_entry
def gemm_int8(worker, m, n, k, x, w, bias, y, scales, num_threads):
    """y ← x̂ Ŵᵀ + bias with W in int8, its rows' scales, and x in 16 bits, as finely as sums of 32 bits
    allow; k is even.
    """
    x_scales = np.empty(m, np.float32)
    x_int16 = np.empty(m * k, np.int16)
    quantize_parallel(m, num_threads, x, k, m, x_int16, x_scales)
    task = np.empty(TASK_SIZE, np.int64)
    items = -(-n // INT8_COLS)
    task[NEXT] = 0
    task[NUM_ITEMS] = items
    task[CHUNK] = chunk_size(items, INT8_COLS * k, num_threads)
    task[M] = m
    task[N] = n
    task[K] = k
    task[X] = x_int16.ctypes.data
    task[W] = w
    task[B] = bias
    task[Y] = y
    task[W_SCALES] = scales
    task[X_SCALES] = x_scales.ctypes.data
    run_parallel(worker, task, num_threads)
    # keeps the arrays until here
    x_scales[0] = 0
    x_int16[0] = 0
