"""Attention of one query in each row, compiled: what decoding one token at a time looks up. Keys and values are read where they lie, in whatever
row of a larger array, so a beam that changes its mind moves none of them, and the beams of a sentence read the same memory.

Left out: other scores than scaled products, and several queries: torch's kernel has them.
"""

from __future__ import annotations

import numpy as np

from seqloom.nn.kernels import power
from seqloom.nn.ranks import largest
from seqloom.nn.threads import PIECES, REST, TAKEN, TURN, compiled, inner, number, share, summed, take
from seqloom.nn.tiles import SIDE, bytes_at, dots, floats_at, ints_at, mix

# The job's numbers. Of arrays the address and the bytes from one row, group, place or head to the next; address 0 where there is none. The table
# says in which row of keys and values a place lies; where `BY_ROW`, the mask is theirs.
(
    SCALE, HEADS, GROUPS, KEY, VALUE, FIRST, LAST, QUERY, QUERY_ROW, OUT, KEYS, KEYS_ROW, KEYS_GROUP, KEYS_PLACE,
    VALUES, VALUES_ROW, VALUES_GROUP, VALUES_PLACE, TABLE, TABLE_ROW, TABLE_PLACE, MASK, MASK_ROW, BY_ROW, BIAS, BIAS_ROW, BIAS_HEAD, END,
) = range(REST, REST + 28)  # fmt: skip


@inner
def find(job, b, rows, addresses):
    """In which rows the keys and values of row b lie, and where those of its first group begin; the last stands there until the eights are full."""
    first, count, table = number(job, FIRST), number(job, LAST) - number(job, FIRST), number(job, TABLE)
    if table == 0:
        rows[:] = b
    else:
        step = number(job, TABLE_PLACE) // 4
        entry = ints_at(table + b * number(job, TABLE_ROW), step * (first + count) + 1)
        for s in range(count):
            rows[s] = entry[step * (first + s)]
    keys, keys_row, keys_place = number(job, KEYS), number(job, KEYS_ROW), number(job, KEYS_PLACE)
    values, values_row, values_place = number(job, VALUES), number(job, VALUES_ROW), number(job, VALUES_PLACE)
    for s in range(count):
        addresses[0, s] = keys + rows[s] * keys_row + (first + s) * keys_place
        addresses[1, s] = values + rows[s] * values_row + (first + s) * values_place
    for s in range(count, addresses.shape[1]):
        addresses[0, s] = addresses[0, count - 1]


@summed
def exponents(x, top):
    """x ← exp(x - top), and their sum."""
    found = np.float32(0)
    for i in range(len(x)):
        x[i] = power(x[i] - top)
        found += x[i]
    return found


@inner
def look(job, b, g, room, rows, addresses):
    """yₕ = Σⱼ αⱼ vⱼ, α = softmaxⱼ(scale q·kⱼ + biasⱼ) for the heads h of group g in row b."""
    key, value, first, count = (
        number(job, KEY),
        number(job, VALUE),
        number(job, FIRST),
        number(job, LAST) - number(job, FIRST),
    )
    heads, mask, bias, each = (
        number(job, HEADS),
        number(job, MASK),
        number(job, BIAS),
        number(job, HEADS) // number(job, GROUPS),
    )
    keys, values = g * number(job, KEYS_GROUP), g * number(job, VALUES_GROUP)
    scale, weights = floats_at(number(job, SCALE), 1)[0], room[:count]
    at, where, there = room.ctypes.data, addresses[0].ctypes.data, addresses[1].ctypes.data
    for h in range(g * each, (g + 1) * each):
        q, y = (
            number(job, QUERY) + b * number(job, QUERY_ROW) + 4 * key * h,
            number(job, OUT) + 4 * value * (b * heads + h),
        )
        for s in range(0, count, SIDE):
            dots(at, q, where, keys, s, key // 8)
        for s in range(count):
            weights[s] *= scale
        if bias:
            more = floats_at(bias + b * number(job, BIAS_ROW) + h * number(job, BIAS_HEAD), first + count)
            for s in range(count):
                weights[s] += more[first + s]
        if mask:
            seen = bytes_at(
                mask + (rows[0] if number(job, BY_ROW) else b) * number(job, MASK_ROW), first + count
            )
            for s in range(count):
                weights[s] = weights[s] if seen[first + s] else -np.float32(np.inf)
        top = largest(weights, 0, count)
        if top == -np.inf:
            floats_at(y, value)[:] = 0
            continue
        part = np.float32(1) / exponents(weights, top)
        for s in range(count):
            weights[s] *= part
        wide = value // 64 * 64
        for d in range(0, wide, 64):
            mix(y + 4 * d, at, there, values + 4 * d, count, 8)
        for d in range(wide, value, 8):
            mix(y + 4 * d, at, there, values + 4 * d, count, 1)


def look_work(job):
    pieces, some, groups, count = (
        number(job, PIECES),
        number(job, TURN),
        number(job, GROUPS),
        number(job, LAST) - number(job, FIRST),
    )
    full = -(-count // SIDE) * SIDE
    room, rows, addresses, found = (
        np.empty(full, np.float32),
        np.empty(count, np.int64),
        np.empty((2, full), np.int64),
        -1,
    )
    while True:
        begin = take(job, some)
        if begin >= pieces:
            return
        for piece in range(begin, min(begin + some, pieces)):
            b, g = piece // groups, piece % groups
            if b != found:
                find(job, b, rows, addresses)
                found = b
            look(job, b, g, room, rows, addresses)


@compiled
def attend(work, pieces, scale, numbers, threads):
    """Fills the array `OUT` of the numbers, which begin with `HEADS`; a piece is a row's group."""
    job, held = np.empty(END, np.int64), np.array([scale], np.float32)
    job[TAKEN], job[PIECES], job[TURN], job[SCALE] = (
        0,
        pieces,
        pieces if threads == 1 else -(-pieces // (4 * threads)),
        held.ctypes.data,
    )
    for place in range(len(numbers)):
        job[HEADS + place] = numbers[place]
    share(work, job, threads)
    held[0] = 0
