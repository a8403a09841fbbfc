"""y = W x + b for few rows x, compiled: what decoding spends its time on. The tiles stand in tiles.py, the threads are torch's own.

For few rows the time goes into reading W, and torch's product is made for many. Left out: what torch does well, many rows and gradients.
Arrays are given by their addresses, which costs a call the least.
"""

from __future__ import annotations

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
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_TASKS, parallel_rows, run_parallel
from seqloom.kernels.simd import f32_view

MIN_CHUNK_BYTES = 1 << 15  # bytes of weights that one turn takes at least
CACHE_BLOCK_BYTES = 1 << 17  # bytes of inputs, and of weights, that meet while both are near
ROW_BLOCK = 32 * INT8_ROWS  # inputs that some panels meet while both are near
INT32_MAX = (1 << 31) - 1
PACKED = ARGS + 11  # where the inputs stand side by side; 0 where they do not
FLOAT_JOB = ARGS + 12  # numbers that tell a product of floats
PACK_MIN_ROWS = 16  # rows from which it pays to put inputs side by side
PREFETCH_BYTES = 2048  # bytes that are fetched before they are needed


@njit_helper
def chunk_size(pieces, size, threads):
    """How many pieces of `size` bytes one turn takes: enough to be worth the trip, few enough to share evenly."""
    return (
        pieces
        if threads == 1
        else max(1, min(-(-pieces // (2 * threads)), max(MIN_CHUNK_BYTES // size, pieces // (8 * threads))))
    )


@njit_helper
def f32_tile(rows, left, size, y, row, b, step, w, long, x, far):
    """Three columns of y, or the fewer that are left, for so many rows."""
    if left < TILE_COLS:
        for i in range(rows):
            if left == 2:
                tile_f32(y + i * row, row, b + i * step, step, w, long, x + i * far, far, size, 1, 2)
            else:
                tile_f32(y + i * row, row, b + i * step, step, w, long, x + i * far, far, size, 1, 1)
        return
    for i in range(0, rows, TILE_ROWS):
        to, under, at, some = y + i * row, b + i * step, x + i * far, rows - i
        if some >= 4:
            tile_f32(to, row, under, step, w, long, at, far, size, 4, TILE_COLS)
        elif some == 3:
            tile_f32(to, row, under, step, w, long, at, far, size, 3, TILE_COLS)
        elif some == 2:
            tile_f32(to, row, under, step, w, long, at, far, size, 2, TILE_COLS)
        else:
            tile_f32(to, row, under, step, w, long, at, far, size, 1, TILE_COLS)


@njit_helper
def f32_columns(job, first, last):
    """Pieces of three columns of y. Some rows meet some pieces while both are near."""
    rows, columns, size = load_arg(job, ARGS), load_arg(job, ARGS + 1), load_arg(job, ARGS + 2)
    far, long, step, row = (
        load_arg(job, ARGS + 3),
        load_arg(job, ARGS + 4),
        load_arg(job, ARGS + 5),
        load_arg(job, ARGS + 6),
    )
    x, w, b, y = (
        load_arg(job, ARGS + 7),
        load_arg(job, ARGS + 8),
        load_arg(job, ARGS + 9),
        load_arg(job, ARGS + 10),
    )
    high, wide = (
        max(TILE_ROWS, CACHE_BLOCK_BYTES // (4 * TILE_ROWS * size) * TILE_ROWS),
        max(1, CACHE_BLOCK_BYTES // (4 * TILE_COLS * size)),
    )
    if rows <= high:
        wide = last - first
    for chunk in range(first, last, wide):
        for i in range(0, rows, high):
            for piece in range(chunk, min(chunk + wide, last)):
                n = TILE_COLS * piece
                under, to = b + i * step + 4 * n, y + i * row + 4 * n
                f32_tile(
                    min(high, rows - i),
                    columns - n,
                    size,
                    to,
                    row,
                    under,
                    step,
                    w + n * long,
                    long,
                    x + i * far,
                    far,
                )


@njit_helper
def pack_rows(first, last, x, size, rows, packed):
    """`TALL` rows side by side, number by number; zeros where there are no more rows."""
    for begin in range(first, last, 8):
        to = packed + 4 * (begin // PACKED_ROWS * PACKED_ROWS * size + begin % PACKED_ROWS)
        even = size // 8 * 8 if begin + 8 <= rows else 0
        for k in range(0, even, 8):
            transpose_8x8(to + 4 * PACKED_ROWS * k, 4 * PACKED_ROWS, x + 4 * (begin * size + k), 4 * size)
        for k in range(even, size):
            y = f32_view(to + 4 * PACKED_ROWS * k, 8)
            for i in range(8):
                y[i] = f32_view(x + 4 * ((begin + i) * size + k), 1)[0] if begin + i < rows else np.float32(0)


pack_parallel = parallel_rows(pack_rows)


@njit_helper
def packed_tile(to, row, b, w, long, x, size, rows, left):
    """Sixteen rows and six columns of y: eight rows where no more are needed, and one column at a time where fewer are left."""
    if left < PACKED_COLS:
        for n in range(left):
            tile_packed_f32(to + 4 * n, row, b + 4 * n, w + n * long, long, x, size, 2, 1)
    elif rows <= 8:
        tile_packed_f32(to, row, b, w, long, x, size, 1, PACKED_COLS)
    else:
        tile_packed_f32(to, row, b, w, long, x, size, 2, PACKED_COLS)


@njit_helper
def packed_columns(job, first, last):
    """Pieces of six columns of y. Some pieces meet all rows while they are near."""
    rows, columns, size = load_arg(job, ARGS), load_arg(job, ARGS + 1), load_arg(job, ARGS + 2)
    long, row = load_arg(job, ARGS + 4), load_arg(job, ARGS + 6)
    w, b, y, x = (
        load_arg(job, ARGS + 8),
        load_arg(job, ARGS + 9),
        load_arg(job, ARGS + 10),
        load_arg(job, PACKED),
    )
    wide, spare = (
        max(1, CACHE_BLOCK_BYTES // (4 * PACKED_COLS * size)),
        np.empty((PACKED_ROWS, PACKED_COLS), np.float32),
    )
    for chunk in range(first, last, wide):
        for i in range(0, rows, PACKED_ROWS):
            at, left = x + 4 * i * size, min(PACKED_ROWS, rows - i)
            for piece in range(chunk, min(chunk + wide, last)):
                n = PACKED_COLS * piece
                to = y + i * row + 4 * n
                if left == PACKED_ROWS:
                    packed_tile(to, row, b + 4 * n, w + n * long, long, at, size, left, columns - n)
                    continue
                packed_tile(
                    spare.ctypes.data,
                    4 * PACKED_COLS,
                    b + 4 * n,
                    w + n * long,
                    long,
                    at,
                    size,
                    left,
                    columns - n,
                )
                some = min(PACKED_COLS, columns - n)
                for j in range(left):
                    f32_view(to + j * row, some)[:] = spare[j, :some]


@njit_helper
def int8_tile(to, row, b, w, s, at, steps, pairs, ahead, left):
    """Up to six rows and sixteen columns of y."""
    if left >= 6:
        tile_int8(to, row, b, w, s, at, steps, pairs, ahead, 6)
    elif left == 5:
        tile_int8(to, row, b, w, s, at, steps, pairs, ahead, 5)
    elif left == 4:
        tile_int8(to, row, b, w, s, at, steps, pairs, ahead, 4)
    elif left == 3:
        tile_int8(to, row, b, w, s, at, steps, pairs, ahead, 3)
    elif left == 2:
        tile_int8(to, row, b, w, s, at, steps, pairs, ahead, 2)
    else:
        tile_int8(to, row, b, w, s, at, steps, pairs, ahead, 1)


@njit_helper
def int8_panels(job, first, last):
    """Panels of sixteen columns of y, `BLOCK` rows at a time."""
    rows, columns, size = load_arg(job, ARGS), load_arg(job, ARGS + 1), load_arg(job, ARGS + 2)
    x, weights, bias, out = (
        load_arg(job, ARGS + 3),
        load_arg(job, ARGS + 4),
        load_arg(job, ARGS + 5),
        load_arg(job, ARGS + 6),
    )
    scales, steps = load_arg(job, ARGS + 7), load_arg(job, ARGS + 8)
    row, pairs = 4 * columns, size // 2
    spare = np.empty((INT8_ROWS, INT8_COLS), np.float32)
    for block in range(0, rows, ROW_BLOCK):
        end = min(rows, block + ROW_BLOCK)
        for piece in range(first, last):
            n = INT8_COLS * piece
            w, b, s, wide = weights + n * size, bias + 4 * n, scales + 4 * n, min(INT8_COLS, columns - n)
            for i in range(block, end, INT8_ROWS):
                left, at, step, to = end - i, x + 2 * i * size, steps + 4 * i, out + i * row + 4 * n
                ahead = (
                    INT8_COLS * size if i > block else PREFETCH_BYTES
                )  # later tiles find this panel near, so they fetch the next
                if wide == INT8_COLS:
                    int8_tile(to, row, b, w, s, at, step, pairs, ahead, left)
                else:  # the last panel is wider than y
                    int8_tile(spare.ctypes.data, 4 * INT8_COLS, b, w, s, at, step, pairs, ahead, left)
                    for j in range(min(INT8_ROWS, left)):
                        f32_view(to + j * row, wide)[:] = spare[j, :wide]


def f32_worker(job):
    pieces, some = load_arg(job, NUM_TASKS), load_arg(job, CHUNK)
    while True:
        first = fetch_add(job, some)
        if first >= pieces:
            return
        if load_arg(job, PACKED):
            packed_columns(job, first, min(first + some, pieces))
        else:
            f32_columns(job, first, min(first + some, pieces))


def int8_worker(job):
    pieces, some = load_arg(job, NUM_TASKS), load_arg(job, CHUNK)
    while True:
        first = fetch_add(job, some)
        if first >= pieces:
            return
        int8_panels(job, first, min(first + some, pieces))


@njit_helper
def gemm_f32_into(job, work, rows, columns, size, x, far, weights, long, base, step, out, row, threads):
    """out ← x Wᵀ + base, all single precision; rows begin so many bytes apart. `job` has room for FLOAT_JOB numbers."""
    pieces = -(-columns // TILE_COLS)
    job[NEXT], job[NUM_TASKS], job[CHUNK], job[PACKED] = (
        0,
        pieces,
        chunk_size(pieces, TILE_COLS * size * max(4, rows), threads),
        0,
    )
    job[ARGS], job[ARGS + 1], job[ARGS + 2] = rows, columns, size
    job[ARGS + 3], job[ARGS + 4], job[ARGS + 5], job[ARGS + 6] = far, long, step, row
    job[ARGS + 7], job[ARGS + 8], job[ARGS + 9], job[ARGS + 10] = x, weights, base, out
    run_parallel(work, job, threads)


@njit_entry
def gemm_f32(work, rows, columns, size, x, weights, bias, out, threads):
    """out (rows, columns) ← x (rows, size) Wᵀ + bias, all single precision."""
    job = np.empty(FLOAT_JOB, np.int64)
    if rows < PACK_MIN_ROWS:
        gemm_f32_into(
            job, work, rows, columns, size, x, 4 * size, weights, 4 * size, bias, 0, out, 4 * columns, threads
        )
        return
    full = -(-rows // PACKED_ROWS) * PACKED_ROWS
    packed = np.empty(full * size, np.float32)
    pack_parallel(full, threads, x, size, rows, packed.ctypes.data)
    pieces = -(-columns // PACKED_COLS)
    job[NEXT], job[NUM_TASKS], job[CHUNK], job[PACKED] = (
        0,
        pieces,
        chunk_size(pieces, 4 * PACKED_COLS * size, threads),
        packed.ctypes.data,
    )
    job[ARGS], job[ARGS + 1], job[ARGS + 2], job[ARGS + 4], job[ARGS + 6] = (
        rows,
        columns,
        size,
        4 * size,
        4 * columns,
    )
    job[ARGS + 8], job[ARGS + 9], job[ARGS + 10] = weights, bias, out
    run_parallel(work, job, threads)
    packed[0] = 0


@njit_helper
def quantize_row(x, size, whole, first, step, most):
    """x̂ = round(x / t) into the 16-bit `whole`, pair by pair with `step` numbers from one pair to the next; gives t = max |x| / `most`. NaN and
    infinity make t NaN."""
    bits, values = f32_view(x, size).view(np.int32), f32_view(x, size)
    top = np.int32(0)
    for k in range(size):
        bare = np.int32(bits[k] & np.int32(0x7FFFFFFF))
        top = bare if bare > top else top
    high = np.int32(top).view(np.float32)
    factor = np.float32(0) if top == 0 else most / high
    bad = top >= np.int32(0x7F800000)
    if bad or not factor < np.float32(3e38):  # no number, or so small that it is nothing
        factor = np.float32(0)
    if factor == 0:
        for k in range(0, size, 2):
            whole[first + step * (k // 2)], whole[first + step * (k // 2) + 1] = 0, 0
        return np.float32(np.nan) if bad else np.float32(0)
    for k in range(size // 2):
        whole[first + step * k] = np.int16(np.rint(values[2 * k] * factor))
        whole[first + step * k + 1] = np.int16(np.rint(values[2 * k + 1] * factor))
    return high / most


@njit_helper
def quantize_rows(first, last, x, size, rows, whole, steps):
    most = np.float32(min(32767, INT32_MAX // (127 * size)))
    for i in range(first, last):  # the rows of a tile stand side by side
        begin = i // INT8_ROWS * INT8_ROWS
        steps[i] = quantize_row(
            x + 4 * i * size,
            size,
            whole,
            begin * size + 2 * (i - begin),
            2 * min(INT8_ROWS, rows - begin),
            most,
        )


quantize_parallel = parallel_rows(quantize_rows)


@njit_entry
def gemm_int8(work, rows, columns, size, x, weights, bias, out, scales, threads):
    """out ← x̂ Ŵᵀ + bias with W in bytes, its rows' scales, and x in 16 bits, as fine as sums of 32 bits allow; size is even."""
    steps, whole = np.empty(rows, np.float32), np.empty(rows * size, np.int16)
    quantize_parallel(rows, threads, x, size, rows, whole, steps)
    job = np.empty(ARGS + 9, np.int64)
    pieces = -(-columns // INT8_COLS)
    job[NEXT], job[NUM_TASKS], job[CHUNK] = 0, pieces, chunk_size(pieces, INT8_COLS * size, threads)
    job[ARGS], job[ARGS + 1], job[ARGS + 2], job[ARGS + 3] = rows, columns, size, whole.ctypes.data
    job[ARGS + 4], job[ARGS + 5], job[ARGS + 6], job[ARGS + 7], job[ARGS + 8] = (
        weights,
        bias,
        out,
        scales,
        steps.ctypes.data,
    )
    run_parallel(work, job, threads)
    steps[0], whole[0] = 0, 0
