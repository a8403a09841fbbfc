"""The loops behind surprise.py: each row of logits (N, V) while it is in the nearest cache."""

from __future__ import annotations

import numpy as np
from numba import njit

from seqloom.nn.kernels import OPTIONS, compiled, power

summed = njit(
    **{**OPTIONS, "fastmath": {"contract", "reassoc"}}
)  # a sum in any order is one that vectors can make


@summed
def highest(row):
    top = row[0]
    for j in range(len(row)):
        top = row[j] if row[j] > top else top
    return top


@summed
def total(row):
    result = row.dtype.type(0)
    for j in range(len(row)):
        result += row[j]
    return result


@summed
def spread(row, top, out):
    """out ← exp(row - top), and its sum"""
    for j in range(len(row)):
        out[j] = power(row[j] - top)
    return total(out)


@compiled
def forward(logits, targets, smoothing, keep, p, losses, nats):
    """Fills losses, nats and, where a gradient is wanted, P; else P has room for one row."""
    one, share = logits.dtype.type(1), logits.dtype.type(smoothing)
    for i in range(len(logits)):
        row, out = logits[i], p[i if keep else 0]
        top = highest(row)
        mass = spread(row, top, out)
        log_mass = top + np.log(mass)
        nats[i] = log_mass - row[targets[i]]
        losses[i] = nats[i]
        if smoothing > 0:
            losses[i] = (one - share) * nats[i] + share * (log_mass - total(row) / len(row))
        if keep:
            scale = one / mass
            for j in range(len(out)):
                out[j] *= scale


@compiled
def backward(p, targets, smoothing, dlosses, gradient):
    one, share = p.dtype.type(1), p.dtype.type(smoothing)
    for i in range(len(p)):
        row, out, d = p[i], gradient[i], dlosses[i]
        rest = share / p.dtype.type(len(row))
        for j in range(len(row)):
            out[j] = d * (row[j] - rest)
        out[targets[i]] -= d * (one - share)
