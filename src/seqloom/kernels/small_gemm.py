"""y = x Wᵀ + b for few rows x in float32: the fast form of `nn/basic.py`, called by `fused/linear.py`.

Arrays are passed by address, which makes the cheapest call: x (m, k) and W (n, k) with consecutive rows, b
(n,), y (m, n), all float32.

Threads take chunks of columns of y, so each reads its own part of W once. Within a chunk, CACHE_BLOCK_BYTES
of x and of W are multiplied while both are in the L2 cache; the tiles of `gemm_tiles.py` keep their sums in
registers. From PACK_MIN_ROWS rows on, x is first packed column by column, 16 rows side by side. Fallback:
torch's product, which is faster for many rows and has gradients.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqloom.kernels.gemm_tiles import (
    PACKED_COLS,
    PACKED_LANES,
    PACKED_ROWS,
    TILE_COLS,
    TILE_ROWS,
    tile_f32,
    tile_packed_f32,
    transpose_8x8,
)
from seqloom.kernels.host import c_worker, fetch_add, load_arg, njit_entry, njit_helper
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, parallel_rows, run_parallel
from seqloom.kernels.simd import f32_view

MIN_CHUNK_BYTES = 1 << 15  # bytes of W that a thread takes at a time, at least
CACHE_BLOCK_BYTES = 1 << 17  # bytes of x and of W in one cache block (L2)
PACK_MIN_ROWS = 16  # from this many rows on packing x pays off

# The task of a float32 product: m, n, k, the strides of x, W, b and y in bytes, their addresses, the address
# of packed x or 0
M, N, K, X_STRIDE, W_STRIDE, B_STRIDE, Y_STRIDE, X, W, B, Y, PACKED_X, F32_TASK_SIZE = range(ARGS, ARGS + 13)


class GemmArgs(NamedTuple):
    """A float32 product by addresses and strides in bytes: x (m, k), W (n, k), addend (m, n) or (n,) with
    stride 0, y (m, n).
    """

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
    """How many items a thread takes at a time: enough to be worth an atomic addition, few enough to balance
    the threads.
    """
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
    """2 · PACKED_LANES rows and PACKED_COLS columns of y: half of the rows where no more are needed, and four columns
    or one at a time where fewer are left.
    """
    if columns_left >= PACKED_COLS:
        if rows <= PACKED_LANES:
            tile_packed_f32(y, y_stride, b, w, w_stride, x, k, PACKED_LANES, 1, PACKED_COLS)
        else:
            tile_packed_f32(y, y_stride, b, w, w_stride, x, k, PACKED_LANES, 2, PACKED_COLS)
        return
    n = 0
    while n < columns_left:
        column = 4 * n
        if columns_left - n < 4:
            if rows <= PACKED_LANES:
                tile_packed_f32(
                    y + column, y_stride, b + column, w + n * w_stride, w_stride, x, k, PACKED_LANES, 1, 1
                )
            else:
                tile_packed_f32(
                    y + column, y_stride, b + column, w + n * w_stride, w_stride, x, k, PACKED_LANES, 2, 1
                )
            n += 1
        else:
            if rows <= PACKED_LANES:
                tile_packed_f32(
                    y + column, y_stride, b + column, w + n * w_stride, w_stride, x, k, PACKED_LANES, 1, 4
                )
            else:
                tile_packed_f32(
                    y + column, y_stride, b + column, w + n * w_stride, w_stride, x, k, PACKED_LANES, 2, 4
                )
            n += 4


@njit_helper
def packed_columns(task, begin, end):
    """Items [begin, end) of PACKED_COLS columns of y each, for packed x; a block of W meets all rows while it
    is in the L2 cache.
    """
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
    scratch = np.empty((2 * PACKED_LANES, PACKED_COLS), np.float32)
    for block in range(begin, end, block_items):
        for i in range(0, m, 2 * PACKED_LANES):
            x_row = x + 4 * i * k
            rows = min(2 * PACKED_LANES, m - i)
            for item in range(block, min(block + block_items, end)):
                column = PACKED_COLS * item
                y_row = y + i * y_stride + 4 * column
                b_row = b + 4 * column
                w_row = w + column * w_stride
                left = n - column
                if rows == PACKED_LANES or rows == 2 * PACKED_LANES:
                    packed_tile(y_row, y_stride, b_row, w_row, w_stride, x_row, k, rows, left)
                    continue
                # a tile writes more rows than y has left
                target = scratch.ctypes.data
                packed_tile(target, 4 * PACKED_COLS, b_row, w_row, w_stride, x_row, k, rows, left)
                columns = min(PACKED_COLS, left)
                for j in range(rows):
                    f32_view(y_row + j * y_stride, columns)[:] = scratch[j, :columns]


@c_worker
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
