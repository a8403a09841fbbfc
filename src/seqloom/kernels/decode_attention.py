"""Attention of one query in each row, compiled: what decoding one token at a time looks up. Keys and values are read where they lie, in whatever
row of a larger array, so a beam that changes its mind moves none of them, and the beams of a sentence read the same memory.

Left out: other scores than scaled products, and several queries: torch's kernel has them.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.elementwise import exp
from seqloom.kernels.gemm_tiles import DOT_ROWS, dot_rows, weighted_sum
from seqloom.kernels.host import fetch_add, load_arg, njit_entry, njit_helper, njit_reassoc
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, run_parallel
from seqloom.kernels.simd import f32_view, i32_view, u8_view
from seqloom.kernels.topk import max_of

# The job's numbers. Of arrays the address and the bytes from one row, group, place or head to the next; address 0 where there is none. The table
# says in which row of keys and values a place lies; where `BY_ROW`, the mask is theirs.
(
    SCALE, HEADS, GROUPS, KEY, VALUE, FIRST, LAST, QUERY, QUERY_ROW, OUT, KEYS, KEYS_ROW, KEYS_GROUP, KEYS_POSITION,
    VALUES, VALUES_ROW, VALUES_GROUP, VALUES_POSITION, ROW_TABLE, TABLE_ROW, TABLE_POSITION, MASK, MASK_ROW, MASK_BY_KEY_ROW, BIAS, BIAS_ROW, BIAS_HEAD, END,
) = range(ARGS, ARGS + 28)  # fmt: skip


@njit_helper
def resolve_rows(job, b, rows, addresses):
    """In which rows the keys and values of row b lie, and where those of its first group begin; the last stands there until the eights are full."""
    first, count, table = (
        load_arg(job, FIRST),
        load_arg(job, LAST) - load_arg(job, FIRST),
        load_arg(job, ROW_TABLE),
    )
    if table == 0:
        rows[:] = b
    else:
        step = load_arg(job, TABLE_POSITION) // 4
        entry = i32_view(table + b * load_arg(job, TABLE_ROW), step * (first + count) + 1)
        for s in range(count):
            rows[s] = entry[step * (first + s)]
    keys, keys_row, keys_place = load_arg(job, KEYS), load_arg(job, KEYS_ROW), load_arg(job, KEYS_POSITION)
    values, values_row, values_place = (
        load_arg(job, VALUES),
        load_arg(job, VALUES_ROW),
        load_arg(job, VALUES_POSITION),
    )
    for s in range(count):
        addresses[0, s] = keys + rows[s] * keys_row + (first + s) * keys_place
        addresses[1, s] = values + rows[s] * values_row + (first + s) * values_place
    for s in range(count, addresses.shape[1]):
        addresses[0, s] = addresses[0, count - 1]


@njit_reassoc
def exp_sum(x, top):
    """x ← exp(x - top), and their sum."""
    found = np.float32(0)
    for i in range(len(x)):
        x[i] = exp(x[i] - top)
        found += x[i]
    return found


@njit_helper
def attend_group(job, b, g, room, rows, addresses):
    """yₕ = Σⱼ αⱼ vⱼ, α = softmaxⱼ(scale q·kⱼ + biasⱼ) for the heads h of group g in row b."""
    key, value, first, count = (
        load_arg(job, KEY),
        load_arg(job, VALUE),
        load_arg(job, FIRST),
        load_arg(job, LAST) - load_arg(job, FIRST),
    )
    heads, mask, bias, each = (
        load_arg(job, HEADS),
        load_arg(job, MASK),
        load_arg(job, BIAS),
        load_arg(job, HEADS) // load_arg(job, GROUPS),
    )
    keys, values = g * load_arg(job, KEYS_GROUP), g * load_arg(job, VALUES_GROUP)
    scale, weights = f32_view(load_arg(job, SCALE), 1)[0], room[:count]
    at, where, there = room.ctypes.data, addresses[0].ctypes.data, addresses[1].ctypes.data
    for h in range(g * each, (g + 1) * each):
        q, y = (
            load_arg(job, QUERY) + b * load_arg(job, QUERY_ROW) + 4 * key * h,
            load_arg(job, OUT) + 4 * value * (b * heads + h),
        )
        for s in range(0, count, DOT_ROWS):
            dot_rows(at, q, where, keys, s, key // 8)
        for s in range(count):
            weights[s] *= scale
        if bias:
            more = f32_view(bias + b * load_arg(job, BIAS_ROW) + h * load_arg(job, BIAS_HEAD), first + count)
            for s in range(count):
                weights[s] += more[first + s]
        if mask:
            seen = u8_view(
                mask + (rows[0] if load_arg(job, MASK_BY_KEY_ROW) else b) * load_arg(job, MASK_ROW),
                first + count,
            )
            for s in range(count):
                weights[s] = weights[s] if seen[first + s] else -np.float32(np.inf)
        top = max_of(weights, 0, count)
        if top == -np.inf:
            f32_view(y, value)[:] = 0
            continue
        part = np.float32(1) / exp_sum(weights, top)
        for s in range(count):
            weights[s] *= part
        wide = value // 64 * 64
        for d in range(0, wide, 64):
            weighted_sum(y + 4 * d, at, there, values + 4 * d, count, 8)
        for d in range(wide, value, 8):
            weighted_sum(y + 4 * d, at, there, values + 4 * d, count, 1)


def decode_worker(job):
    pieces, some, groups, count = (
        load_arg(job, NUM_ITEMS),
        load_arg(job, CHUNK),
        load_arg(job, GROUPS),
        load_arg(job, LAST) - load_arg(job, FIRST),
    )
    full = -(-count // DOT_ROWS) * DOT_ROWS
    room, rows, addresses, found = (
        np.empty(full, np.float32),
        np.empty(count, np.int64),
        np.empty((2, full), np.int64),
        -1,
    )
    while True:
        begin = fetch_add(job, some)
        if begin >= pieces:
            return
        for piece in range(begin, min(begin + some, pieces)):
            b, g = piece // groups, piece % groups
            if b != found:
                resolve_rows(job, b, rows, addresses)
                found = b
            attend_group(job, b, g, room, rows, addresses)


@njit_entry
def decode_attention(work, pieces, scale, numbers, threads):
    """Fills the array `OUT` of the numbers, which begin with `HEADS`; a piece is a row's group."""
    job, held = np.empty(END, np.int64), np.array([scale], np.float32)
    job[NEXT], job[NUM_ITEMS], job[CHUNK], job[SCALE] = (
        0,
        pieces,
        pieces if threads == 1 else -(-pieces // (4 * threads)),
        held.ctypes.data,
    )
    for place in range(len(numbers)):
        job[HEADS + place] = numbers[place]
    run_parallel(work, job, threads)
    held[0] = 0
