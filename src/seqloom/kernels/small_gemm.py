"""y = x Wᵀ + b for few rows x: the fast form of `nn/linear.py` (float32) and `nn/int8.py` (int8), called by `fused/linear.py`.

Arrays are passed by address, which makes the cheapest call: x (m, k) and W (n, k) with consecutive rows, b (n,), y (m, n), all float32.
int8 weights are panels (n/16, k/2, 16, 2) of bytes with float32 scales (n,), padded to a multiple of 16 rows; k is even.

Threads take chunks of columns of y, so each reads its own part of W once. Within a chunk, CACHE_BLOCK_BYTES of x and of W are multiplied
while both are in the L2 cache; the tiles of `gemm_tiles.py` keep their sums in registers. From PACK_MIN_ROWS rows on, x is first packed
column by column, 16 rows side by side. Fallback: torch's product, which is faster for many rows and has gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqloom.kernels.gemm_tiles import (
    INT8_COLS,
    INT8_ROWS,
    PACKED_COLS,
    PACKED_ROWS,
    TILE_COLS,
    TILE_ROWS,
    tile_f32,
    tile_int8,
    tile_packed_f32,
    transpose_8x8,
)
from seqloom.kernels.host import fetch_add, load_arg, njit_entry, njit_helper
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, parallel_rows, run_parallel
from seqloom.kernels.simd import f32_view

MIN_CHUNK_BYTES = 1 << 15  # bytes of W that a thread takes at a time, at least
CACHE_BLOCK_BYTES = 1 << 17  # bytes of x and of W in one cache block (L2)
ROW_BLOCK = 32 * INT8_ROWS  # rows of x in one cache block of the int8 product
INT32_MAX = (1 << 31) - 1
PACK_MIN_ROWS = 16  # from this many rows on packing x pays off
PREFETCH_BYTES = 2048  # how far ahead the first tile of a panel prefetches

# The task of a float32 product: m, n, k, the strides of x, W, b and y in bytes, their addresses, the address of packed x or 0
M, N, K, X_STRIDE, W_STRIDE, B_STRIDE, Y_STRIDE, X, W, B, Y, PACKED_X, F32_TASK_SIZE = range(ARGS, ARGS + 13)
# The task of an int8 product, from ARGS on: m, n, k, then addresses
INT8_X, INT8_W, INT8_B, INT8_Y, W_SCALES, X_SCALES, INT8_TASK_SIZE = range(ARGS + 3, ARGS + 10)


class GemmArgs(NamedTuple):
    """A float32 product by addresses and strides in bytes: x (m, k), W (n, k), addend (m, n) or (n,) with stride 0, y (m, n)."""

    m: int
    n: int
    k: int
    x: int
    x_stride: int
    w: int
    w_stride: int
    addend: int
    b_stride: int
    y: int
    y_stride: int


@njit_helper
def chunk_size(items, item_bytes, num_threads):
    """How many items a thread takes at a time: enough to be worth an atomic addition, few enough to balance the threads."""
    if num_threads == 1:
        return items
    balanced = max(MIN_CHUNK_BYTES // item_bytes, items // (8 * num_threads))
    return max(1, min(-(-items // (2 * num_threads)), balanced))


@njit_helper
def f32_tile(rows, columns_left, k, y, y_stride, b, b_stride, w, w_stride, x, x_stride):
    """TILE_COLS columns of y, or the fewer that are left, for `rows` rows."""
    if columns_left < TILE_COLS:
        for i in range(rows):
            y_row = y + i * y_stride
            b_row = b + i * b_stride
            x_row = x + i * x_stride
            if columns_left == 2:
                tile_f32(y_row, y_stride, b_row, b_stride, w, w_stride, x_row, x_stride, k, 1, 2)
            else:
                tile_f32(y_row, y_stride, b_row, b_stride, w, w_stride, x_row, x_stride, k, 1, 1)
        return
    for i in range(0, rows, TILE_ROWS):
        y_row = y + i * y_stride
        b_row = b + i * b_stride
        x_row = x + i * x_stride
        left = rows - i
        if left >= 4:
            tile_f32(y_row, y_stride, b_row, b_stride, w, w_stride, x_row, x_stride, k, 4, TILE_COLS)
        elif left == 3:
            tile_f32(y_row, y_stride, b_row, b_stride, w, w_stride, x_row, x_stride, k, 3, TILE_COLS)
        elif left == 2:
            tile_f32(y_row, y_stride, b_row, b_stride, w, w_stride, x_row, x_stride, k, 2, TILE_COLS)
        else:
            tile_f32(y_row, y_stride, b_row, b_stride, w, w_stride, x_row, x_stride, k, 1, TILE_COLS)


@njit_helper
def f32_columns(task, begin, end):
    """Items [begin, end) of TILE_COLS columns of y each, by cache blocks of rows and columns."""
    m = load_arg(task, M)
    n = load_arg(task, N)
    k = load_arg(task, K)
    x_stride = load_arg(task, X_STRIDE)
    w_stride = load_arg(task, W_STRIDE)
    b_stride = load_arg(task, B_STRIDE)
    y_stride = load_arg(task, Y_STRIDE)
    x = load_arg(task, X)
    w = load_arg(task, W)
    b = load_arg(task, B)
    y = load_arg(task, Y)
    block_rows = max(TILE_ROWS, CACHE_BLOCK_BYTES // (4 * TILE_ROWS * k) * TILE_ROWS)
    block_items = max(1, CACHE_BLOCK_BYTES // (4 * TILE_COLS * k))
    if m <= block_rows:
        block_items = end - begin
    for block in range(begin, end, block_items):
        for i in range(0, m, block_rows):
            for item in range(block, min(block + block_items, end)):
                column = TILE_COLS * item
                b_row = b + i * b_stride + 4 * column
                y_row = y + i * y_stride + 4 * column
                rows = min(block_rows, m - i)
                w_row = w + column * w_stride
                x_row = x + i * x_stride
                f32_tile(
                    rows, n - column, k, y_row, y_stride, b_row, b_stride, w_row, w_stride, x_row, x_stride
                )


@njit_helper
def pack_rows(row_begin, row_end, x, k, rows, packed):
    """Packs rows of x by PACKED_ROWS: column by column, the rows side by side; zeros beyond the last row."""
    for row in range(row_begin, row_end, 8):
        target = packed + 4 * (row // PACKED_ROWS * PACKED_ROWS * k + row % PACKED_ROWS)
        even = k // 8 * 8 if row + 8 <= rows else 0
        for j in range(0, even, 8):
            transpose_8x8(target + 4 * PACKED_ROWS * j, 4 * PACKED_ROWS, x + 4 * (row * k + j), 4 * k)
        for j in range(even, k):
            column = f32_view(target + 4 * PACKED_ROWS * j, 8)
            for i in range(8):
                inside = row + i < rows
                column[i] = f32_view(x + 4 * ((row + i) * k + j), 1)[0] if inside else np.float32(0)


pack_parallel = parallel_rows(pack_rows)


@njit_helper
def packed_tile(y, y_stride, b, w, w_stride, x, k, rows, columns_left):
    """16 rows and 6 columns of y: 8 rows where no more are needed, and one column at a time where fewer than 6 are left."""
    if columns_left < PACKED_COLS:
        for n in range(columns_left):
            tile_packed_f32(y + 4 * n, y_stride, b + 4 * n, w + n * w_stride, w_stride, x, k, 2, 1)
    elif rows <= 8:
        tile_packed_f32(y, y_stride, b, w, w_stride, x, k, 1, PACKED_COLS)
    else:
        tile_packed_f32(y, y_stride, b, w, w_stride, x, k, 2, PACKED_COLS)


@njit_helper
def packed_columns(task, begin, end):
    """Items [begin, end) of PACKED_COLS columns of y each, for packed x; a block of W meets all rows while it is in the L2 cache."""
    m = load_arg(task, M)
    n = load_arg(task, N)
    k = load_arg(task, K)
    w_stride = load_arg(task, W_STRIDE)
    y_stride = load_arg(task, Y_STRIDE)
    w = load_arg(task, W)
    b = load_arg(task, B)
    y = load_arg(task, Y)
    x = load_arg(task, PACKED_X)
    block_items = max(1, CACHE_BLOCK_BYTES // (4 * PACKED_COLS * k))
    scratch = np.empty((PACKED_ROWS, PACKED_COLS), np.float32)
    for block in range(begin, end, block_items):
        for i in range(0, m, PACKED_ROWS):
            x_row = x + 4 * i * k
            rows = min(PACKED_ROWS, m - i)
            for item in range(block, min(block + block_items, end)):
                column = PACKED_COLS * item
                y_row = y + i * y_stride + 4 * column
                b_row = b + 4 * column
                w_row = w + column * w_stride
                left = n - column
                if rows == PACKED_ROWS:
                    packed_tile(y_row, y_stride, b_row, w_row, w_stride, x_row, k, rows, left)
                    continue
                # a tile writes 16 rows, more than y has left
                target = scratch.ctypes.data
                packed_tile(target, 4 * PACKED_COLS, b_row, w_row, w_stride, x_row, k, rows, left)
                columns = min(PACKED_COLS, left)
                for j in range(rows):
                    f32_view(y_row + j * y_stride, columns)[:] = scratch[j, :columns]


@njit_helper
def int8_tile(y, y_stride, b, w, w_scales, x, x_scales, pairs, prefetch_bytes, rows):
    """Up to 6 rows and 16 columns of y."""
    if rows >= 6:
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
    x = load_arg(task, INT8_X)
    weights = load_arg(task, INT8_W)
    bias = load_arg(task, INT8_B)
    out = load_arg(task, INT8_Y)
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


def f32_worker(task):
    items = load_arg(task, NUM_ITEMS)
    chunk = load_arg(task, CHUNK)
    while True:
        begin = fetch_add(task, chunk)
        if begin >= items:
            return
        if load_arg(task, PACKED_X):
            packed_columns(task, begin, min(begin + chunk, items))
        else:
            f32_columns(task, begin, min(begin + chunk, items))


def int8_worker(task):
    items = load_arg(task, NUM_ITEMS)
    chunk = load_arg(task, CHUNK)
    while True:
        begin = fetch_add(task, chunk)
        if begin >= items:
            return
        int8_panels(task, begin, min(begin + chunk, items))


@njit_helper
def gemm_f32_into(task, worker, gemm, num_threads):
    """y ← x Wᵀ + addend for a `GemmArgs`, in float32. `task` has F32_TASK_SIZE elements."""
    items = -(-gemm.n // TILE_COLS)
    task[NEXT] = 0
    task[NUM_ITEMS] = items
    task[CHUNK] = chunk_size(items, TILE_COLS * gemm.k * max(4, gemm.m), num_threads)
    task[PACKED_X] = 0
    task[M] = gemm.m
    task[N] = gemm.n
    task[K] = gemm.k
    task[X_STRIDE] = gemm.x_stride
    task[W_STRIDE] = gemm.w_stride
    task[B_STRIDE] = gemm.b_stride
    task[Y_STRIDE] = gemm.y_stride
    task[X] = gemm.x
    task[W] = gemm.w
    task[B] = gemm.addend
    task[Y] = gemm.y
    run_parallel(worker, task, num_threads)


@njit_entry
def gemm_f32(worker, m, n, k, x, w, bias, y, num_threads):
    """y (m, n) ← x (m, k) Wᵀ + bias, in float32, rows consecutive."""
    task = np.empty(F32_TASK_SIZE, np.int64)
    if m < PACK_MIN_ROWS:
        gemm_f32_into(task, worker, GemmArgs(m, n, k, x, 4 * k, w, 4 * k, bias, 0, y, 4 * n), num_threads)
        return
    padded_rows = -(-m // PACKED_ROWS) * PACKED_ROWS
    packed = np.empty(padded_rows * k, np.float32)
    pack_parallel(padded_rows, num_threads, x, k, m, packed.ctypes.data)
    items = -(-n // PACKED_COLS)
    task[NEXT] = 0
    task[NUM_ITEMS] = items
    task[CHUNK] = chunk_size(items, 4 * PACKED_COLS * k, num_threads)
    task[PACKED_X] = packed.ctypes.data
    task[M] = m
    task[N] = n
    task[K] = k
    task[W_STRIDE] = 4 * k
    task[Y_STRIDE] = 4 * n
    task[W] = w
    task[B] = bias
    task[Y] = y
    run_parallel(worker, task, num_threads)
    packed[0] = 0  # keeps the array until here


@njit_helper
def quantize_row(x, k, x_int16, offset, pair_stride, limit):
    """x̂ = round(x / t) into `x_int16`, pair by pair, `pair_stride` elements apart; returns t = max |x| / limit, NaN for NaN and infinity."""
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
    """y ← x̂ Ŵᵀ + bias with W in int8, its rows' scales, and x in 16 bits, as finely as sums of 32 bits allow; k is even."""
    x_scales = np.empty(m, np.float32)
    x_int16 = np.empty(m * k, np.int16)
    quantize_parallel(m, num_threads, x, k, m, x_int16, x_scales)
    task = np.empty(INT8_TASK_SIZE, np.int64)
    items = -(-n // INT8_COLS)
    task[NEXT] = 0
    task[NUM_ITEMS] = items
    task[CHUNK] = chunk_size(items, INT8_COLS * k, num_threads)
    task[M] = m
    task[N] = n
    task[K] = k
    task[INT8_X] = x_int16.ctypes.data
    task[INT8_W] = w
    task[INT8_B] = bias
    task[INT8_Y] = y
    task[W_SCALES] = scales
    task[X_SCALES] = x_scales.ctypes.data
    run_parallel(worker, task, num_threads)
    # keeps the arrays until here
    x_scales[0] = 0
    x_int16[0] = 0
