"""Attention of one query in each row, compiled: what decoding one token at a time looks up. Keys and values are read where they lie, in whatever
row of a larger array, so a beam that changes its mind moves none of them, and the beams of a sentence read the same memory.

Left out: other scores than scaled products, and several queries: torch's kernel has them.
"""

from __future__ import annotations

import numpy as np

from seqloom.nn.kernels import power
from seqloom.nn.threads import PIECES, REST, TAKEN, TURN, compiled, inner, number, share, take
from seqloom.nn.tiles import adds, bytes_at, dots, floats_at, ints_at

# The job's numbers. Of arrays the address and the bytes from one row, group, place or head to the next; address 0 where there is none. The table
# says in which row of keys and values a place lies; where `BY_ROW`, the mask is theirs.
(
    SCALE, HEADS, GROUPS, KEY, VALUE, FIRST, LAST, QUERY, QUERY_ROW, OUT, KEYS, KEYS_ROW, KEYS_GROUP, KEYS_PLACE,
    VALUES, VALUES_ROW, VALUES_GROUP, VALUES_PLACE, TABLE, TABLE_ROW, TABLE_PLACE, MASK, MASK_ROW, BY_ROW, BIAS, BIAS_ROW, BIAS_HEAD, END,
) = range(REST, REST + 28)  # fmt: skip


@inner
def look(job, b, g, weights, rows, addresses):
    """yₕ = Σⱼ αⱼ vⱼ, α = softmaxⱼ(scale q·kⱼ + biasⱼ) for the heads h of group g in row b."""
    key, value, first, last = number(job, KEY), number(job, VALUE), number(job, FIRST), number(job, LAST)
    heads, table, mask, bias = number(job, HEADS), number(job, TABLE), number(job, MASK), number(job, BIAS)
    each = heads // number(job, GROUPS)
    scale = floats_at(number(job, SCALE), 1)[0]
    if table == 0:
        rows[:] = b
    else:
        step = number(job, TABLE_PLACE) // 4
        entry = ints_at(table + b * number(job, TABLE_ROW), step * last + 1)
        for s in range(first, last):
            rows[s] = entry[step * s]
    keys, keys_row, keys_place = number(job, KEYS) + g * number(job, KEYS_GROUP), number(job, KEYS_ROW), number(job, KEYS_PLACE)
    values, values_row, values_place = number(job, VALUES) + g * number(job, VALUES_GROUP), number(job, VALUES_ROW), number(job, VALUES_PLACE)
    for s in range(first, last):
        addresses[0, s] = keys + rows[s] * keys_row + s * keys_place
        addresses[1, s] = values + rows[s] * values_row + s * values_place
    at, where, there = weights.ctypes.data, addresses[0].ctypes.data, addresses[1].ctypes.data
    whole = first + (last - first) // 4 * 4
    for h in range(g * each, (g + 1) * each):
        q, y = number(job, QUERY) + b * number(job, QUERY_ROW) + 4 * key * h, number(job, OUT) + 4 * value * (b * heads + h)
        for s in range(first, whole, 4):
            dots(at, q, where, s, 4, key // 8)
        for s in range(whole, last):
            dots(at, q, where, s, 1, key // 8)
        for s in range(first, last):
            weights[s] *= scale
        if bias:
            more = floats_at(bias + b * number(job, BIAS_ROW) + h * number(job, BIAS_HEAD), last)
            for s in range(first, last):
                weights[s] += more[s]
        if mask:
            seen = bytes_at(mask + (rows[first] if number(job, BY_ROW) else b) * number(job, MASK_ROW), last)
            for s in range(first, last):
                if not seen[s]:
                    weights[s] = -np.inf
        top, total = np.float32(-np.inf), np.float32(0)
        for s in range(first, last):
            top = weights[s] if weights[s] > top else top
        floats_at(y, value)[:] = 0
        if top == -np.inf:
            continue
        for s in range(first, last):
            weights[s] = power(weights[s] - top)
        for s in range(first, last):
            total += weights[s]
        total = np.float32(1) / total
        for s in range(first, last):
            weights[s] *= total
        for s in range(first, whole, 4):
            adds(y, at, there, s, 4, value // 8)
        for s in range(whole, last):
            adds(y, at, there, s, 1, value // 8)


def look_work(job):
    pieces, some, groups, last = number(job, PIECES), number(job, TURN), number(job, GROUPS), number(job, LAST)
    weights, rows, addresses = np.empty(last, np.float32), np.empty(last, np.int64), np.empty((2, last), np.int64)
    while True:
        begin = take(job, some)
        if begin >= pieces:
            return
        for piece in range(begin, min(begin + some, pieces)):
            look(job, piece // groups, piece % groups, weights, rows, addresses)


@compiled
def attend(work, pieces, scale, numbers, threads):
    """Fills the array `OUT` of the numbers, which begin with `HEADS`; a piece is a row's group."""
    job, held = np.empty(END, np.int64), np.array([scale], np.float32)
    job[TAKEN], job[PIECES], job[TURN], job[SCALE] = 0, pieces, pieces if threads == 1 else -(-pieces // (4 * threads)), held.ctypes.data
    for place in range(len(numbers)):
        job[HEADS + place] = numbers[place]
    share(work, job, threads)
    held[0] = 0
