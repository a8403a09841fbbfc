"""y = W x + b for few rows x, compiled: what decoding spends its time on. The tiles stand in tiles.py, the threads are torch's own.

For few rows the time goes into reading W, and torch's product is made for many. Left out: what torch does well, many rows and gradients.
Arrays are given by their addresses, which costs a call the least.
"""

from __future__ import annotations

import numpy as np

from seqloom.nn.threads import PIECES, REST, TAKEN, TURN, by_rows, compiled, inner, number, share, take
from seqloom.nn.tiles import ACROSS, DEEP, HIGH, PANEL, TALL, WIDE, bytes_, floats, floats_at, outer, turned

NEAR = 1 << 15  # bytes of weights that one turn takes at least
CLOSE = 1 << 17  # bytes of inputs, and of weights, that meet while both are near
BLOCK = 32 * DEEP  # inputs that some panels meet while both are near
MOST = (1 << 31) - 1
PACKED = REST + 11  # where the inputs stand side by side; 0 where they do not
FLOAT_JOB = REST + 12  # numbers that tell a product of floats
MANY = 16  # rows from which it pays to put inputs side by side
FURTHER = 2048  # bytes that are fetched before they are needed


@inner
def turn(pieces, size, threads):
    """How many pieces of `size` bytes one turn takes: enough to be worth the trip, few enough to share evenly."""
    return (
        pieces
        if threads == 1
        else max(1, min(-(-pieces // (2 * threads)), max(NEAR // size, pieces // (8 * threads))))
    )


@inner
def float_piece(rows, left, size, y, row, b, step, w, long, x, far):
    """Three columns of y, or the fewer that are left, for so many rows."""
    if left < WIDE:
        for i in range(rows):
            if left == 2:
                floats(y + i * row, row, b + i * step, step, w, long, x + i * far, far, size, 1, 2)
            else:
                floats(y + i * row, row, b + i * step, step, w, long, x + i * far, far, size, 1, 1)
        return
    for i in range(0, rows, HIGH):
        to, under, at, some = y + i * row, b + i * step, x + i * far, rows - i
        if some >= 4:
            floats(to, row, under, step, w, long, at, far, size, 4, WIDE)
        elif some == 3:
            floats(to, row, under, step, w, long, at, far, size, 3, WIDE)
        elif some == 2:
            floats(to, row, under, step, w, long, at, far, size, 2, WIDE)
        else:
            floats(to, row, under, step, w, long, at, far, size, 1, WIDE)


@inner
def float_pieces(job, first, last):
    """Pieces of three columns of y. Some rows meet some pieces while both are near."""
    rows, columns, size = number(job, REST), number(job, REST + 1), number(job, REST + 2)
    far, long, step, row = (
        number(job, REST + 3),
        number(job, REST + 4),
        number(job, REST + 5),
        number(job, REST + 6),
    )
    x, w, b, y = number(job, REST + 7), number(job, REST + 8), number(job, REST + 9), number(job, REST + 10)
    high, wide = max(HIGH, CLOSE // (4 * HIGH * size) * HIGH), max(1, CLOSE // (4 * WIDE * size))
    if rows <= high:
        wide = last - first
    for chunk in range(first, last, wide):
        for i in range(0, rows, high):
            for piece in range(chunk, min(chunk + wide, last)):
                n = WIDE * piece
                under, to = b + i * step + 4 * n, y + i * row + 4 * n
                float_piece(
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


@inner
def pack_rows(first, last, x, size, rows, packed):
    """`TALL` rows side by side, number by number; zeros where there are no more rows."""
    for begin in range(first, last, 8):
        to = packed + 4 * (begin // TALL * TALL * size + begin % TALL)
        even = size // 8 * 8 if begin + 8 <= rows else 0
        for k in range(0, even, 8):
            turned(to + 4 * TALL * k, 4 * TALL, x + 4 * (begin * size + k), 4 * size)
        for k in range(even, size):
            y = floats_at(to + 4 * TALL * k, 8)
            for i in range(8):
                y[i] = (
                    floats_at(x + 4 * ((begin + i) * size + k), 1)[0] if begin + i < rows else np.float32(0)
                )


pack_all = by_rows(pack_rows)


@inner
def outer_tile(to, row, b, w, long, x, size, rows, left):
    """Sixteen rows and six columns of y: eight rows where no more are needed, and one column at a time where fewer are left."""
    if left < ACROSS:
        for n in range(left):
            outer(to + 4 * n, row, b + 4 * n, w + n * long, long, x, size, 2, 1)
    elif rows <= 8:
        outer(to, row, b, w, long, x, size, 1, ACROSS)
    else:
        outer(to, row, b, w, long, x, size, 2, ACROSS)


@inner
def outer_pieces(job, first, last):
    """Pieces of six columns of y. Some pieces meet all rows while they are near."""
    rows, columns, size = number(job, REST), number(job, REST + 1), number(job, REST + 2)
    long, row = number(job, REST + 4), number(job, REST + 6)
    w, b, y, x = number(job, REST + 8), number(job, REST + 9), number(job, REST + 10), number(job, PACKED)
    wide, spare = max(1, CLOSE // (4 * ACROSS * size)), np.empty((TALL, ACROSS), np.float32)
    for chunk in range(first, last, wide):
        for i in range(0, rows, TALL):
            at, left = x + 4 * i * size, min(TALL, rows - i)
            for piece in range(chunk, min(chunk + wide, last)):
                n = ACROSS * piece
                to = y + i * row + 4 * n
                if left == TALL:
                    outer_tile(to, row, b + 4 * n, w + n * long, long, at, size, left, columns - n)
                    continue
                outer_tile(
                    spare.ctypes.data, 4 * ACROSS, b + 4 * n, w + n * long, long, at, size, left, columns - n
                )
                some = min(ACROSS, columns - n)
                for j in range(left):
                    floats_at(to + j * row, some)[:] = spare[j, :some]


@inner
def byte_tile(to, row, b, w, s, at, steps, pairs, ahead, left):
    """Up to six rows and sixteen columns of y."""
    if left >= 6:
        bytes_(to, row, b, w, s, at, steps, pairs, ahead, 6)
    elif left == 5:
        bytes_(to, row, b, w, s, at, steps, pairs, ahead, 5)
    elif left == 4:
        bytes_(to, row, b, w, s, at, steps, pairs, ahead, 4)
    elif left == 3:
        bytes_(to, row, b, w, s, at, steps, pairs, ahead, 3)
    elif left == 2:
        bytes_(to, row, b, w, s, at, steps, pairs, ahead, 2)
    else:
        bytes_(to, row, b, w, s, at, steps, pairs, ahead, 1)


@inner
def byte_pieces(job, first, last):
    """Panels of sixteen columns of y, `BLOCK` rows at a time."""
    rows, columns, size = number(job, REST), number(job, REST + 1), number(job, REST + 2)
    x, weights, bias, out = (
        number(job, REST + 3),
        number(job, REST + 4),
        number(job, REST + 5),
        number(job, REST + 6),
    )
    scales, steps = number(job, REST + 7), number(job, REST + 8)
    row, pairs = 4 * columns, size // 2
    spare = np.empty((DEEP, PANEL), np.float32)
    for block in range(0, rows, BLOCK):
        end = min(rows, block + BLOCK)
        for piece in range(first, last):
            n = PANEL * piece
            w, b, s, wide = weights + n * size, bias + 4 * n, scales + 4 * n, min(PANEL, columns - n)
            for i in range(block, end, DEEP):
                left, at, step, to = end - i, x + 2 * i * size, steps + 4 * i, out + i * row + 4 * n
                ahead = (
                    PANEL * size if i > block else FURTHER
                )  # later tiles find this panel near, so they fetch the next
                if wide == PANEL:
                    byte_tile(to, row, b, w, s, at, step, pairs, ahead, left)
                else:  # the last panel is wider than y
                    byte_tile(spare.ctypes.data, 4 * PANEL, b, w, s, at, step, pairs, ahead, left)
                    for j in range(min(DEEP, left)):
                        floats_at(to + j * row, wide)[:] = spare[j, :wide]


def float_work(job):
    pieces, some = number(job, PIECES), number(job, TURN)
    while True:
        first = take(job, some)
        if first >= pieces:
            return
        if number(job, PACKED):
            outer_pieces(job, first, min(first + some, pieces))
        else:
            float_pieces(job, first, min(first + some, pieces))


def byte_work(job):
    pieces, some = number(job, PIECES), number(job, TURN)
    while True:
        first = take(job, some)
        if first >= pieces:
            return
        byte_pieces(job, first, min(first + some, pieces))


@inner
def into(job, work, rows, columns, size, x, far, weights, long, base, step, out, row, threads):
    """out ← x Wᵀ + base, all single precision; rows begin so many bytes apart. `job` has room for FLOAT_JOB numbers."""
    pieces = -(-columns // WIDE)
    job[TAKEN], job[PIECES], job[TURN], job[PACKED] = (
        0,
        pieces,
        turn(pieces, WIDE * size * max(4, rows), threads),
        0,
    )
    job[REST], job[REST + 1], job[REST + 2] = rows, columns, size
    job[REST + 3], job[REST + 4], job[REST + 5], job[REST + 6] = far, long, step, row
    job[REST + 7], job[REST + 8], job[REST + 9], job[REST + 10] = x, weights, base, out
    share(work, job, threads)


@compiled
def multiply(work, rows, columns, size, x, weights, bias, out, threads):
    """out (rows, columns) ← x (rows, size) Wᵀ + bias, all single precision."""
    job = np.empty(FLOAT_JOB, np.int64)
    if rows < MANY:
        into(
            job, work, rows, columns, size, x, 4 * size, weights, 4 * size, bias, 0, out, 4 * columns, threads
        )
        return
    full = -(-rows // TALL) * TALL
    packed = np.empty(full * size, np.float32)
    pack_all(full, threads, x, size, rows, packed.ctypes.data)
    pieces = -(-columns // ACROSS)
    job[TAKEN], job[PIECES], job[TURN], job[PACKED] = (
        0,
        pieces,
        turn(pieces, 4 * ACROSS * size, threads),
        packed.ctypes.data,
    )
    job[REST], job[REST + 1], job[REST + 2], job[REST + 4], job[REST + 6] = (
        rows,
        columns,
        size,
        4 * size,
        4 * columns,
    )
    job[REST + 8], job[REST + 9], job[REST + 10] = weights, bias, out
    share(work, job, threads)
    packed[0] = 0


@inner
def rounded(x, size, whole, first, step, most):
    """x̂ = round(x / t) into the 16-bit `whole`, pair by pair with `step` numbers from one pair to the next; gives t = max |x| / `most`. NaN and
    infinity make t NaN."""
    bits, values = floats_at(x, size).view(np.int32), floats_at(x, size)
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


@inner
def round_rows(first, last, x, size, rows, whole, steps):
    most = np.float32(min(32767, MOST // (127 * size)))
    for i in range(first, last):  # the rows of a tile stand side by side
        begin = i // DEEP * DEEP
        steps[i] = rounded(
            x + 4 * i * size, size, whole, begin * size + 2 * (i - begin), 2 * min(DEEP, rows - begin), most
        )


round_all = by_rows(round_rows)


@compiled
def multiply_bytes(work, rows, columns, size, x, weights, bias, out, scales, threads):
    """out ← x̂ Ŵᵀ + bias with W in bytes, its rows' scales, and x in 16 bits, as fine as sums of 32 bits allow; size is even."""
    steps, whole = np.empty(rows, np.float32), np.empty(rows * size, np.int16)
    round_all(rows, threads, x, size, rows, whole, steps)
    job = np.empty(REST + 9, np.int64)
    pieces = -(-columns // PANEL)
    job[TAKEN], job[PIECES], job[TURN] = 0, pieces, turn(pieces, PANEL * size, threads)
    job[REST], job[REST + 1], job[REST + 2], job[REST + 3] = rows, columns, size, whole.ctypes.data
    job[REST + 4], job[REST + 5], job[REST + 6], job[REST + 7], job[REST + 8] = (
        weights,
        bias,
        out,
        scales,
        steps.ctypes.data,
    )
    share(work, job, threads)
    steps[0], whole[0] = 0, 0
