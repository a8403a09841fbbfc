"""The loops behind surprise.py: each row of logits (N, V) while it is in the nearest cache."""

from __future__ import annotations

import numpy as np
from numba import njit

from seqloom.kernels.elementwise import OPTIONS, exp, njit_strict_entry

njit_reassoc = njit(
    **{**OPTIONS, "fastmath": {"contract", "reassoc"}}
)  # a sum in any order is one that vectors can make


@njit_reassoc
def row_max(row):
    top = row[0]
    for j in range(len(row)):
        top = row[j] if row[j] > top else top
    return top


@njit_reassoc
def row_sum(row):
    result = row.dtype.type(0)
    for j in range(len(row)):
        result += row[j]
    return result


@njit_reassoc
def exp_shifted(row, top, out):
    """out ← exp(row - top), and its sum"""
    for j in range(len(row)):
        out[j] = exp(row[j] - top)
    return row_sum(out)


@njit_strict_entry
def forward(logits, targets, smoothing, keep, p, losses, nats):
    """Fills losses, nats and, where a gradient is wanted, P; else P has room for one row."""
    one, share = logits.dtype.type(1), logits.dtype.type(smoothing)
    for i in range(len(logits)):
        row, out = logits[i], p[i if keep else 0]
        top = row_max(row)
        mass = exp_shifted(row, top, out)
        log_mass = top + np.log(mass)
        nats[i] = log_mass - row[targets[i]]
        losses[i] = nats[i]
        if smoothing > 0:
            losses[i] = (one - share) * nats[i] + share * (log_mass - row_sum(row) / len(row))
        if keep:
            scale = one / mass
            for j in range(len(out)):
                out[j] *= scale


@njit_strict_entry
def backward(p, targets, smoothing, dlosses, gradient):
    one, share = p.dtype.type(1), p.dtype.type(smoothing)
    for i in range(len(p)):
        row, out, d = p[i], gradient[i], dlosses[i]
        rest = share / p.dtype.type(len(row))
        for j in range(len(row)):
            out[j] = d * (row[j] - rest)
        out[targets[i]] -= d * (one - share)
