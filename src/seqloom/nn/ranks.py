"""The best few of each row of logits, compiled: the largest and the total in one pass each, while the row is near."""

from __future__ import annotations

import numpy as np
from numba import njit

from seqloom.nn.kernels import power
from seqloom.nn.threads import (
    OPTIONS,
    PIECES,
    REST,
    TAKEN,
    TURN,
    compiled,
    inner,
    number,
    share,
    summed,
    take,
)
from seqloom.nn.tiles import floats_at, longs_at

SPAN = 64  # numbers that are looked at together
LOGITS, VOCABULARY, COUNT, BAN, BANNED, VALUES, TOKENS, TOTALS, END = range(REST, REST + 9)
ordered = njit(
    **{**OPTIONS, "fastmath": {"contract", "nsz", "reassoc", "nnan"}}
)  # the largest of numbers alone


@ordered
def largest(x, first, last):
    top = x[first]
    for i in range(first, last):
        top = x[i] if x[i] > top else top
    return top


@inner
def peaks(x, found):
    """The largest of each span, into `found`, and of all."""
    for span in range(len(found)):
        found[span] = largest(x, span * SPAN, min((span + 1) * SPAN, len(x)))
    return largest(found, 0, len(found))


@summed
def total(x, top):
    """Σ exp(xᵢ - top)"""
    found = np.float32(0)
    for i in range(len(x)):
        found += power(x[i] - top)
    return found


@inner
def rank(x, ban, values, tokens, spans):
    """ln Σ exp x, and the best of x that are not banned, largest first, the lower place first among equals; -inf where there are no more."""
    count, top = len(values), peaks(x, spans)
    rest = top + np.float32(np.log(total(x, top)))
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


def rank_work(job):
    pieces, some, count, size = (
        number(job, PIECES),
        number(job, TURN),
        number(job, COUNT),
        number(job, VOCABULARY),
    )
    ban, totals = longs_at(number(job, BAN), number(job, BANNED)), floats_at(number(job, TOTALS), pieces)
    spans = np.empty(-(-size // SPAN), np.float32)
    while True:
        first = take(job, some)
        if first >= pieces:
            return
        for row in range(first, min(first + some, pieces)):
            values, tokens = (
                floats_at(number(job, VALUES) + 4 * row * count, count),
                longs_at(number(job, TOKENS) + 8 * row * count, count),
            )
            totals[row] = rank(
                floats_at(number(job, LOGITS) + 4 * row * size, size), ban, values, tokens, spans
            )


@compiled
def ranks(work, rows, numbers, threads):
    """Fills the arrays of the numbers, which begin with `LOGITS`."""
    job = np.empty(END, np.int64)
    job[TAKEN], job[PIECES], job[TURN] = 0, rows, rows if threads == 1 else -(-rows // (4 * threads))
    for place in range(len(numbers)):
        job[LOGITS + place] = numbers[place]
    share(work, job, threads)
