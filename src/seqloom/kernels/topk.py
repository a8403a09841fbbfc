"""The k most likely tokens of each row of logits: the fast form of `fused/topk.py`, which holds the fallback
too.

Layout, by address: logits (B, V) float32 with consecutive rows, banned ids int64, results log_probs (B, k)
float32, tokens (B, k) int64, logsumexp (B,) float32. Maximum and sum of exponentials take one pass each, with
the row in L1 or L2; then only spans of SPAN logits whose maximum beats the k-th best so far are searched.
Rows are shared among threads.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.elementwise import exp
from seqloom.kernels.host import (
    OPTIONS,
    c_worker,
    fetch_add,
    load_arg,
    njit_entry,
    njit_helper,
    njit_reassoc,
    uncached_njit,
)
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, run_parallel
from seqloom.kernels.simd import f32_view, i64_view

SPAN = 64  # logits that share one maximum
LOGITS, VOCABULARY, COUNT, BANNED, NUM_BANNED, VALUES, TOKENS, LOGSUMEXP, TASK_SIZE = range(ARGS, ARGS + 9)
# without NaN a maximum is one vector instruction
njit_nnan = uncached_njit({**OPTIONS, "fastmath": {"contract", "nsz", "reassoc", "nnan"}})


@njit_nnan
def max_of(x, begin, end):
    top = x[begin]
    for i in range(begin, end):
        top = x[i] if x[i] > top else top
    return top


@njit_helper
def span_maxima(x, maxima):
    """Fills `maxima` with the maximum of each span; returns that of all."""
    for span in range(len(maxima)):
        maxima[span] = max_of(x, span * SPAN, min((span + 1) * SPAN, len(x)))
    return max_of(maxima, 0, len(maxima))


@njit_reassoc
def sum_exp(x, top):
    """Σ exp(xᵢ - top)"""
    total = np.float32(0)
    for i in range(len(x)):
        total += exp(x[i] - top)
    return total


@njit_helper
def topk_row(x, banned, values, tokens, maxima):
    """Fills values and tokens with the largest allowed x minus the logsumexp, largest first, the lower id
    first among equals; returns the logsumexp.

    Where fewer are allowed, the rest have -inf.
    """
    count = len(values)
    top = span_maxima(x, maxima)
    logsumexp = top + np.float32(np.log(sum_exp(x, top)))
    values[:] = -np.inf
    tokens[:] = 0
    for span in range(len(maxima)):
        if not maxima[span] > values[count - 1]:
            continue
        for i in range(span * SPAN, min((span + 1) * SPAN, len(x))):
            if x[i] > values[count - 1]:
                allowed = True
                for token in banned:
                    allowed = allowed and token != i
                if allowed:
                    rank = count - 1
                    while rank > 0 and x[i] > values[rank - 1]:
                        values[rank] = values[rank - 1]
                        tokens[rank] = tokens[rank - 1]
                        rank -= 1
                    values[rank] = x[i]
                    tokens[rank] = i
    for rank in range(count):
        values[rank] -= logsumexp
    return logsumexp


@c_worker
def topk_worker(task):
    items = load_arg(task, NUM_ITEMS)
    chunk = load_arg(task, CHUNK)
    count = load_arg(task, COUNT)
    size = load_arg(task, VOCABULARY)
    banned = i64_view(load_arg(task, BANNED), load_arg(task, NUM_BANNED))
    logsumexp = f32_view(load_arg(task, LOGSUMEXP), items)
    maxima = np.empty(-(-size // SPAN), np.float32)
    while True:
        begin = fetch_add(task, chunk)
        if begin >= items:
            return
        for row in range(begin, min(begin + chunk, items)):
            logits = f32_view(load_arg(task, LOGITS) + 4 * row * size, size)
            values = f32_view(load_arg(task, VALUES) + 4 * row * count, count)
            tokens = i64_view(load_arg(task, TOKENS) + 8 * row * count, count)
            logsumexp[row] = topk_row(logits, banned, values, tokens, maxima)


@njit_entry
def topk(worker, rows, arguments, num_threads):
    """Fills the result arrays of `arguments`, which are the task from LOGITS on."""
    task = np.empty(TASK_SIZE, np.int64)
    task[NEXT] = 0
    task[NUM_ITEMS] = rows
    task[CHUNK] = rows if num_threads == 1 else -(-rows // (4 * num_threads))
    for i in range(len(arguments)):
        task[LOGITS + i] = arguments[i]
    run_parallel(worker, task, num_threads)
