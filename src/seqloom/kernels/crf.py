"""Sums and maxima over all paths of labels as compiled loops, forward and backward: the fast form of crf.py, whose equations they are.

Arrays: `scores` (B, T, K), `lengths` (B,), `steps` (K, K), `first` and `last` (K,), all in double precision. ln Σⱼ exp(a[j] + steps[j, k]) for all k
is one product with exp(steps): K² multiplications instead of as many exponentials. Where that would underflow, below e^-575 of the
largest, it is summed as it is written.
"""

from __future__ import annotations

import math

import numpy as np

from seqloom.kernels.elementwise import njit_strict, njit_strict_entry

TINY, HUGE = 1e-250, 600.0


@njit_strict
def max_of(values):
    found = values[0]
    for k in range(1, len(values)):
        found = max(found, values[k])
    return found


@njit_strict
def logsumexp_column(values, steps, k):
    """ln Σⱼ exp(values[j] + steps[j, k])"""
    most, total = -np.inf, 0.0
    for j in range(len(values)):
        most = max(most, values[j] + steps[j, k])
    for j in range(len(values)):
        total += math.exp(values[j] + steps[j, k] - most)
    return most + math.log(total)


@njit_strict
def logsumexp_step(values, steps, powers, shift, out):
    """out[k] ← ln Σⱼ exp(values[j] + steps[j, k]),   powers = exp(steps - shift)"""
    most = max_of(values)
    out[:] = 0.0
    for j in range(len(values)):
        power = math.exp(values[j] - most)
        for k in range(len(out)):
            out[k] += power * powers[j, k]
    for k in range(len(out)):
        out[k] = math.log(out[k]) + most + shift if out[k] > TINY else logsumexp_column(values, steps, k)


@njit_strict_entry
def crf_forward(scores, lengths, steps, first, last, sums, totals):
    """Fills sums, the α of each row up to its length, and totals, ln Z; 0 for a row without a token."""
    shift = max_of(steps.ravel())
    powers = np.exp(steps - shift)
    room = np.empty((len(first), 1))
    for b in range(len(scores)):
        totals[b] = 0.0
        for t in range(lengths[b]):
            if t == 0:
                sums[b, 0] = first
            else:
                logsumexp_step(sums[b, t - 1], steps, powers, shift, sums[b, t])
            for k in range(len(first)):
                sums[b, t, k] += scores[b, t, k]
        if lengths[b] > 0:
            room[:, 0] = last
            totals[b] = logsumexp_column(sums[b, lengths[b] - 1], room, 0)


@njit_strict_entry
def crf_backward(scores, lengths, steps, last, sums, totals, given, dscores, dsteps, dfirst, dlast):
    """The gradients of Σ_b given[b] ln Z_b; those of the scores are given[b] P(yₜ = k). All arrays come as zeros."""
    labels, shift = len(last), max_of(steps.ravel())
    powers, turned = np.exp(steps - shift), np.ascontiguousarray(steps.T)
    powers_turned = np.ascontiguousarray(powers.T)
    both = np.zeros_like(steps)
    after, ahead, left, right = np.empty(labels), np.empty(labels), np.empty(labels), np.empty(labels)
    for b in range(len(scores)):
        after[:] = last  # β
        for t in range(lengths[b] - 1, -1, -1):
            for k in range(labels):
                dscores[b, t, k] = given[b] * math.exp(sums[b, t, k] + after[k] - totals[b])
            if t == lengths[b] - 1:
                dlast += dscores[b, t]
            if t == 0:
                dfirst += dscores[b, 0]
                continue
            for k in range(labels):
                ahead[k] = scores[b, t, k] + after[k]
            before = sums[b, t - 1]
            a, c = max_of(before), max_of(ahead)
            excess = a + c + shift - totals[b]
            if excess < HUGE:
                for k in range(labels):
                    left[k] = given[b] * math.exp(before[k] - a + excess)
                    right[k] = math.exp(ahead[k] - c)
                for j in range(labels):
                    for k in range(labels):
                        both[j, k] += left[j] * right[k]
            else:
                for j in range(labels):
                    for k in range(labels):
                        dsteps[j, k] += given[b] * math.exp(before[j] + steps[j, k] + ahead[k] - totals[b])
            logsumexp_step(ahead, turned, powers_turned, shift, after)
    dsteps += both * powers


@njit_strict_entry
def viterbi(scores, lengths, steps, first, last, tags):
    """Fills tags with each row's best path; padding stays as it is."""
    labels, longest = len(first), scores.shape[1]
    best, value = np.empty(labels), np.empty(labels)
    came = np.empty((longest, labels), np.int32)
    for b in range(len(scores)):
        for t in range(lengths[b]):
            if t == 0:
                value[:] = first
            else:
                value[:] = -np.inf
                came[t] = 0
                for j in range(labels):
                    for k in range(labels):
                        if best[j] + steps[j, k] > value[k]:
                            value[k], came[t, k] = best[j] + steps[j, k], j
            for k in range(labels):
                best[k] = value[k] + scores[b, t, k]
        if lengths[b] > 0:
            tag = np.argmax(best + last)
            for t in range(lengths[b] - 1, -1, -1):
                tags[b, t] = tag
                tag = came[t, tag]
