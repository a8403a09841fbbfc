"""The best few of each row of logits, compiled: the largest and the total in one pass each, while the row is near."""

from __future__ import annotations

import numpy as np
from numba import njit

from seqloom.kernels.elementwise import exp
from seqloom.kernels.host import OPTIONS, fetch_add, load_arg, njit_entry, njit_helper, njit_reassoc
from seqloom.kernels.parallel import ARGS, CHUNK, NEXT, NUM_ITEMS, run_parallel
from seqloom.kernels.simd import f32_view, i64_view

SPAN = 64  # numbers that are looked at together
LOGITS, VOCABULARY, COUNT, BAN, BANNED, VALUES, TOKENS, TOTALS, END = range(ARGS, ARGS + 9)
njit_nnan = njit(
    **{**OPTIONS, "fastmath": {"contract", "nsz", "reassoc", "nnan"}}
)  # the largest of numbers alone


@njit_nnan
def max_of(x, first, last):
    top = x[first]
    for i in range(first, last):
        top = x[i] if x[i] > top else top
    return top


@njit_helper
def span_maxima(x, found):
    """The largest of each span, into `found`, and of all."""
    for span in range(len(found)):
        found[span] = max_of(x, span * SPAN, min((span + 1) * SPAN, len(x)))
    return max_of(found, 0, len(found))


@njit_reassoc
def sum_exp(x, top):
    """Σ exp(xᵢ - top)"""
    found = np.float32(0)
    for i in range(len(x)):
        found += exp(x[i] - top)
    return found


@njit_helper
def topk_row(x, ban, values, tokens, spans):
    """ln Σ exp x, and the best of x that are not banned, largest first, the lower place first among equals; -inf where there are no more."""
    count, top = len(values), span_maxima(x, spans)
    rest = top + np.float32(np.log(sum_exp(x, top)))
    values[:], tokens[:] = -np.inf, 0
    for span in range(len(spans)):
        if not spans[span] > values[count - 1]:
            continue
        for i in range(span * SPAN, min((span + 1) * SPAN, len(x))):
            if x[i] > values[count - 1]:
                free = True
                for token in ban:
                    free = free and token != i
                if free:
                    place = count - 1
                    while place > 0 and x[i] > values[place - 1]:
                        values[place], tokens[place] = values[place - 1], tokens[place - 1]
                        place -= 1
                    values[place], tokens[place] = x[i], i
    for place in range(count):
        values[place] -= rest
    return rest


def topk_worker(job):
    pieces, some, count, size = (
        load_arg(job, NUM_ITEMS),
        load_arg(job, CHUNK),
        load_arg(job, COUNT),
        load_arg(job, VOCABULARY),
    )
    ban, totals = i64_view(load_arg(job, BAN), load_arg(job, BANNED)), f32_view(load_arg(job, TOTALS), pieces)
    spans = np.empty(-(-size // SPAN), np.float32)
    while True:
        first = fetch_add(job, some)
        if first >= pieces:
            return
        for row in range(first, min(first + some, pieces)):
            values, tokens = (
                f32_view(load_arg(job, VALUES) + 4 * row * count, count),
                i64_view(load_arg(job, TOKENS) + 8 * row * count, count),
            )
            totals[row] = topk_row(
                f32_view(load_arg(job, LOGITS) + 4 * row * size, size), ban, values, tokens, spans
            )


@njit_entry
def topk(work, rows, numbers, threads):
    """Fills the arrays of the numbers, which begin with `LOGITS`."""
    job = np.empty(END, np.int64)
    job[NEXT], job[NUM_ITEMS], job[CHUNK] = 0, rows, rows if threads == 1 else -(-rows // (4 * threads))
    for place in range(len(numbers)):
        job[LOGITS + place] = numbers[place]
    run_parallel(work, job, threads)
