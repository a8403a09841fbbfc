"""Attention with one query in each row: the fast form of the caches of `nn/attention.py`, called by
`fused/decode_attention.py` and by the decoding programs of `program.py`.

Keys and values are read in place, from any row of a larger buffer: a beam search that reorders its rows moves
none of them, and the beams of a sentence share one memory. Layout, by address and strides in bytes (the task
below), all float32: query (B, H, 1, K), keys (N, G, S, K), values (N, G, S, K'), out (B, H, 1, K'); row table
(B, S) or (B, 1) int32; mask (B or N, S) bytes; bias (B, H, S) float32. Sizes K and K' are multiples of 8;
unit stride in K.

An item is one row and one group of heads that share keys: its addresses (8 bytes a key) and weights (4 bytes
a key) stay in the L1 cache. Fallback: torch's kernel (`fused/sdpa.py`) on gathered keys and values, which
also has several queries and other masks.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.elementwise import exp
from seqloom.kernels.gemm_tiles import DOT_ROWS, dot_rows, weighted_sum
from seqloom.kernels.host import c_worker, fetch_add, load_arg, njit_entry, njit_helper, njit_reassoc
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, run_parallel
from seqloom.kernels.simd import f32_view, i32_view, u8_view
from seqloom.kernels.topk import max_of

# The task: addresses, 0 for an absent array, and strides in bytes from one row, group, position or head to
# the next. FIRST and END bound the visible keys. The row table says in which row of keys and values a
# position is. With MASK_BY_KEY_ROW the mask's rows are those of the keys.
(
    SCALE,
    HEADS,
    GROUPS,
    KEY_DIM,
    VALUE_DIM,
    FIRST,
    LAST,
    QUERY,
    QUERY_ROW,
    OUT,
    KEYS,
    KEYS_ROW,
    KEYS_GROUP,
    KEYS_POSITION,
    VALUES,
    VALUES_ROW,
    VALUES_GROUP,
    VALUES_POSITION,
    ROW_TABLE,
    TABLE_ROW,
    TABLE_POSITION,
    MASK,
    MASK_ROW,
    MASK_BY_KEY_ROW,
    BIAS,
    BIAS_ROW,
    BIAS_HEAD,
    TASK_SIZE,
) = range(ARGS, ARGS + 28)


@njit_helper
def resolve_rows(task, b, rows, addresses):
    """Fills `rows` with the buffer row of each visible position of row b, and `addresses` with the addresses
    of its keys and values in group 0.

    Pads the keys' addresses to a multiple of 8 by repeating the last address.
    """
    first = load_arg(task, FIRST)
    count = load_arg(task, LAST) - first
    table = load_arg(task, ROW_TABLE)
    if table == 0:
        rows[:] = b
    else:
        stride = load_arg(task, TABLE_POSITION) // 4
        entry = i32_view(table + b * load_arg(task, TABLE_ROW), stride * (first + count) + 1)
        for s in range(count):
            rows[s] = entry[stride * (first + s)]
    keys = load_arg(task, KEYS)
    keys_row = load_arg(task, KEYS_ROW)
    keys_position = load_arg(task, KEYS_POSITION)
    values = load_arg(task, VALUES)
    values_row = load_arg(task, VALUES_ROW)
    values_position = load_arg(task, VALUES_POSITION)
    for s in range(count):
        addresses[0, s] = keys + rows[s] * keys_row + (first + s) * keys_position
        addresses[1, s] = values + rows[s] * values_row + (first + s) * values_position
    for s in range(count, addresses.shape[1]):
        addresses[0, s] = addresses[0, count - 1]


@njit_reassoc
def exp_sum(x, top):
    """x ← exp(x - top); returns their sum."""
    total = np.float32(0)
    for i in range(len(x)):
        x[i] = exp(x[i] - top)
        total += x[i]
    return total


@njit_helper
def attend_group(task, b, g, scratch, rows, addresses):
    """yₕ = Σⱼ αⱼ vⱼ, α = softmaxⱼ(scale q·kⱼ + biasⱼ) for the heads h of group g in row b; 0 where no key is
    visible.
    """
    key_dim = load_arg(task, KEY_DIM)
    value_dim = load_arg(task, VALUE_DIM)
    first = load_arg(task, FIRST)
    count = load_arg(task, LAST) - first
    heads = load_arg(task, HEADS)
    mask = load_arg(task, MASK)
    bias = load_arg(task, BIAS)
    heads_per_group = heads // load_arg(task, GROUPS)
    keys_offset = g * load_arg(task, KEYS_GROUP)
    values_offset = g * load_arg(task, VALUES_GROUP)
    scale = f32_view(load_arg(task, SCALE), 1)[0]
    weights = scratch[:count]
    weights_address = scratch.ctypes.data
    key_addresses = addresses[0].ctypes.data
    value_addresses = addresses[1].ctypes.data
    for h in range(g * heads_per_group, (g + 1) * heads_per_group):
        q = load_arg(task, QUERY) + b * load_arg(task, QUERY_ROW) + 4 * key_dim * h
        y = load_arg(task, OUT) + 4 * value_dim * (b * heads + h)
        for s in range(0, count, DOT_ROWS):
            dot_rows(weights_address, q, key_addresses, keys_offset, s, key_dim // 8)
        for s in range(count):
            weights[s] *= scale
        if bias:
            bias_row = bias + b * load_arg(task, BIAS_ROW) + h * load_arg(task, BIAS_HEAD)
            added = f32_view(bias_row, first + count)
            for s in range(count):
                weights[s] += added[first + s]
        if mask:
            mask_row = rows[0] if load_arg(task, MASK_BY_KEY_ROW) else b
            visible = u8_view(mask + mask_row * load_arg(task, MASK_ROW), first + count)
            for s in range(count):
                weights[s] = weights[s] if visible[first + s] else -np.float32(np.inf)
        top = max_of(weights, 0, count)
        if top == -np.inf:
            f32_view(y, value_dim)[:] = 0
            continue
        factor = np.float32(1) / exp_sum(weights, top)
        for s in range(count):
            weights[s] *= factor
        wide = value_dim // 64 * 64
        for d in range(0, wide, 64):
            weighted_sum(y + 4 * d, weights_address, value_addresses, values_offset + 4 * d, count, 8)
        for d in range(wide, value_dim, 8):
            weighted_sum(y + 4 * d, weights_address, value_addresses, values_offset + 4 * d, count, 1)


@c_worker
def decode_worker(task):
    items = load_arg(task, NUM_ITEMS)
    chunk = load_arg(task, CHUNK)
    groups = load_arg(task, GROUPS)
    count = load_arg(task, LAST) - load_arg(task, FIRST)
    padded = -(-count // DOT_ROWS) * DOT_ROWS
    scratch = np.empty(padded, np.float32)
    rows = np.empty(count, np.int64)
    addresses = np.empty((2, padded), np.int64)
    resolved = -1
    while True:
        begin = fetch_add(task, chunk)
        if begin >= items:
            return
        for item in range(begin, min(begin + chunk, items)):
            b = item // groups
            g = item % groups
            if b != resolved:
                resolve_rows(task, b, rows, addresses)
                resolved = b
            attend_group(task, b, g, scratch, rows, addresses)


@njit_entry
def decode_attention(worker, items, scale, arguments, num_threads):
    """Computes `items` items, a group of a row each; `arguments` is the task from HEADS on."""
    task = np.empty(TASK_SIZE, np.int64)
    scale_array = np.array([scale], np.float32)
    task[NEXT] = 0
    task[NUM_ITEMS] = items
    task[CHUNK] = items if num_threads == 1 else -(-items // (4 * num_threads))
    task[SCALE] = scale_array.ctypes.data
    for i in range(len(arguments)):
        task[HEADS + i] = arguments[i]
    run_parallel(worker, task, num_threads)
    scale_array[0] = 0  # keeps the array until here
