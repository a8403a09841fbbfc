"""Sums and maxima over all label sequences, forward and backward: the fast form of `CRF` in `nn/crf.py`,
called by `fused/crf.py`.

Arrays, C-contiguous float64: scores (B, T, K), transitions (K, K), start and end (K,), alpha (B, T, K), log_z
(B,); lengths (B,) int64. ln Σⱼ exp(a[j] + transitions[j, k]) for all k is one product with exp(transitions):
K² multiplications instead of as many exponentials. Where that would underflow, below e^-575 of the largest,
the sum is computed literally. The K × K arrays stay in the cache from step to step. Fallback: the loops of
`nn/crf.py`.
"""

from __future__ import annotations

import math

import numpy as np

from seqloom.kernels.elementwise import njit_strict, njit_strict_entry

MIN_SUM = 1e-250  # below this a sum of products may have lost terms to underflow
MAX_EXCESS = 600.0  # above this the factors of a product would overflow


@njit_strict
def max_of(values):
    top = values[0]
    for k in range(1, len(values)):
        top = max(top, values[k])
    return top


@njit_strict
def logsumexp_column(values, transitions, k):
    """ln Σⱼ exp(values[j] + transitions[j, k])"""
    top = -np.inf
    total = 0.0
    for j in range(len(values)):
        top = max(top, values[j] + transitions[j, k])
    for j in range(len(values)):
        total += math.exp(values[j] + transitions[j, k] - top)
    return top + math.log(total)


@njit_strict
def logsumexp_step(values, transitions, exp_transitions, shift, out):
    """out[k] ← ln Σⱼ exp(values[j] + transitions[j, k]),   exp_transitions = exp(transitions - shift)"""
    top = max_of(values)
    out[:] = 0.0
    for j in range(len(values)):
        power = math.exp(values[j] - top)
        for k in range(len(out)):
            out[k] += power * exp_transitions[j, k]
    for k in range(len(out)):
        if out[k] > MIN_SUM:
            out[k] = math.log(out[k]) + top + shift
        else:
            out[k] = logsumexp_column(values, transitions, k)


@njit_strict_entry
def crf_forward(scores, lengths, transitions, start, end, alpha, log_z):
    """Fills alpha, each row up to its length, and log_z, ln Z; 0 for a row without a token."""
    shift = max_of(transitions.ravel())
    exp_transitions = np.exp(transitions - shift)
    end_column = np.empty((len(start), 1))
    for b in range(len(scores)):
        log_z[b] = 0.0
        for t in range(lengths[b]):
            if t == 0:
                alpha[b, 0] = start
            else:
                logsumexp_step(alpha[b, t - 1], transitions, exp_transitions, shift, alpha[b, t])
            for k in range(len(start)):
                alpha[b, t, k] += scores[b, t, k]
        if lengths[b] > 0:
            end_column[:, 0] = end
            log_z[b] = logsumexp_column(alpha[b, lengths[b] - 1], end_column, 0)


@njit_strict_entry
def crf_backward(
    scores, lengths, transitions, end, alpha, log_z, grad_output, dscores, dtransitions, dstart, dend
):
    """The gradients of Σ_b grad_output[b] ln Z_b; those of the scores are grad_output[b] P(yₜ = k). The
    gradients come as zeros.
    """
    labels = len(end)
    shift = max_of(transitions.ravel())
    exp_transitions = np.exp(transitions - shift)
    transposed = np.ascontiguousarray(transitions.T)
    exp_transposed = np.ascontiguousarray(exp_transitions.T)
    pairs = np.zeros_like(transitions)
    beta = np.empty(labels)
    following = np.empty(labels)
    left = np.empty(labels)
    right = np.empty(labels)
    for b in range(len(scores)):
        beta[:] = end
        for t in range(lengths[b] - 1, -1, -1):
            for k in range(labels):
                dscores[b, t, k] = grad_output[b] * math.exp(alpha[b, t, k] + beta[k] - log_z[b])
            if t == lengths[b] - 1:
                dend += dscores[b, t]
            if t == 0:
                dstart += dscores[b, 0]
                continue
            for k in range(labels):
                following[k] = scores[b, t, k] + beta[k]
            before = alpha[b, t - 1]
            top_before = max_of(before)
            top_following = max_of(following)
            excess = top_before + top_following + shift - log_z[b]
            if excess < MAX_EXCESS:
                for k in range(labels):
                    left[k] = grad_output[b] * math.exp(before[k] - top_before + excess)
                    right[k] = math.exp(following[k] - top_following)
                for j in range(labels):
                    for k in range(labels):
                        pairs[j, k] += left[j] * right[k]
            else:
                for j in range(labels):
                    for k in range(labels):
                        path = before[j] + transitions[j, k] + following[k] - log_z[b]
                        dtransitions[j, k] += grad_output[b] * math.exp(path)
            logsumexp_step(following, transposed, exp_transposed, shift, beta)
    dtransitions += pairs * exp_transitions


@njit_strict_entry
def viterbi(scores, lengths, transitions, start, end, tags):
    """Fills tags (B, T) int64 with each row's best path; leaves padding as it is."""
    labels = len(start)
    max_length = scores.shape[1]
    best = np.empty(labels)
    value = np.empty(labels)
    backpointers = np.empty((max_length, labels), np.int32)
    for b in range(len(scores)):
        for t in range(lengths[b]):
            if t == 0:
                value[:] = start
            else:
                value[:] = -np.inf
                backpointers[t] = 0
                for j in range(labels):
                    for k in range(labels):
                        if best[j] + transitions[j, k] > value[k]:
                            value[k] = best[j] + transitions[j, k]
                            backpointers[t, k] = j
            for k in range(labels):
                best[k] = value[k] + scores[b, t, k]
        if lengths[b] > 0:
            tag = np.argmax(best + end)
            for t in range(lengths[b] - 1, -1, -1):
                tags[b, t] = tag
                tag = backpointers[t, tag]
