"""-ln P of the targets and its gradient: the fast form of `nn/embedding.py`, called by
`fused/linear.py`.

Arrays, C-contiguous, float32 or float64: logits (N, V), targets (N,) int64, p (N, V) or a single row if
nothing is saved, losses and nll (N,). Each row passes through memory once: its maximum, exponentials and sums
are taken while it is in the L1 or L2 cache. Fallback: log_softmax and gather.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.elementwise import exp, njit_strict_entry, njit_strict_reassoc


@njit_strict_reassoc
def row_max(row):
    top = row[0]
    for j in range(len(row)):
        top = row[j] if row[j] > top else top
    return top


@njit_strict_reassoc
def row_sum(row):
    result = row.dtype.type(0)
    for j in range(len(row)):
        result += row[j]
    return result


@njit_strict_reassoc
def exp_shifted(row, top, out):
    """out ← exp(row - top); returns its sum."""
    for j in range(len(row)):
        out[j] = exp(row[j] - top)
    return row_sum(out)


@njit_strict_entry
def forward(logits, targets, smoothing, save, p, losses, nll):
    """Fills losses, nll and, with `save`, P."""
    one = logits.dtype.type(1)
    epsilon = logits.dtype.type(smoothing)
    for i in range(len(logits)):
        row = logits[i]
        out = p[i if save else 0]
        top = row_max(row)
        total = exp_shifted(row, top, out)
        logsumexp = top + np.log(total)
        nll[i] = logsumexp - row[targets[i]]
        losses[i] = nll[i]
        if smoothing > 0:
            losses[i] = (one - epsilon) * nll[i] + epsilon * (logsumexp - row_sum(row) / len(row))
        if save:
            scale = one / total
            for j in range(len(out)):
                out[j] *= scale


@njit_strict_entry
def backward(p, targets, smoothing, dlosses, dlogits):
    """dlogits ← dℓ (P - (1 - ε) one-hot(target) - ε / V)"""
    one = p.dtype.type(1)
    epsilon = p.dtype.type(smoothing)
    for i in range(len(p)):
        row = p[i]
        out = dlogits[i]
        d = dlosses[i]
        uniform = epsilon / p.dtype.type(len(row))
        for j in range(len(row)):
            out[j] = d * (row[j] - uniform)
        out[targets[i]] -= d * (one - epsilon)
