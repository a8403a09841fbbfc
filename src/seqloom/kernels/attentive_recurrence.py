"""All time steps of a recurrent decoder that attends with its previous h, in one compiled loop: the fast form
of `AttentiveRNN` with query: previous in `nn/rnn_decoder.py`, called by `fused/attentive_recurrence.py`.

Before each step of `recurrence.py`, h is projected to a query, attends to the memory, and the context is
projected and added to x_proj. Arrays, C-contiguous, float32 or float64:
- keys (B, S, A), values (B, S, M), visible (B, S) bool;
- query (A, D) and context (W, M): the projections, transposed for the backward pass; vector (A,): the
  additive score's u, empty where the score is scale · q·k;
- saved for the gradient: queries (T, B, A), contexts (T, B, M), weights (T, B, S).
Rows of a step are independent; a reduction over A or M is one vector loop over rows that stay in the L1
cache. Parts, threads and cache blocking are those of `recurrence.py`. Fallback: the loop of
`AttentiveRNN.attend_from_previous`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqloom.kernels.elementwise import exp, njit_strict, njit_strict_entry, njit_strict_reassoc, tanh
from seqloom.kernels.gemm import gemm, gemm_workspace
from seqloom.kernels.parallel import next_part, parallel_parts
from seqloom.kernels.recurrence import gemm_forward, step_backward, step_forward, step_scratch


class AttentionArrays(NamedTuple):
    """The memory and the weights of the attention."""

    keys: np.ndarray
    values: np.ndarray
    visible: np.ndarray
    query: np.ndarray
    context: np.ndarray
    vector: np.ndarray
    scale: float


class AttentionSaved(NamedTuple):
    """What the forward pass saves for the backward pass."""

    queries: np.ndarray
    contexts: np.ndarray
    weights: np.ndarray


class AttentionGrads(NamedTuple):
    """dcontexts: on entry the gradients of the contexts, on exit with their share through x_proj; dvectors
    has a row for each part.
    """

    dcontexts: np.ndarray
    dqueries: np.ndarray
    dkeys: np.ndarray
    dvectors: np.ndarray


@njit_strict_reassoc
def score(q, k, vector, scale, scratch):
    """uᵀ tanh(q + k), or scale · q·k"""
    total = q.dtype.type(0)
    if vector.size:
        for a in range(len(q)):
            scratch[a] = tanh(q[a] + k[a])
        for a in range(len(q)):
            total += vector[a] * scratch[a]
    else:
        for a in range(len(q)):
            total += q[a] * k[a]
        total *= scale
    return total


@njit_strict_reassoc
def dot(a, b):
    """a·b"""
    total = a.dtype.type(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit_strict
def masked_softmax(scores, visible, length):
    """Overwrites `scores` by the softmax over the visible positions; zeros where none is visible."""
    top = -np.inf
    total = scores.dtype.type(0)
    for s in range(length):
        if visible[s] and scores[s] > top:
            top = scores[s]
    for s in range(length):
        scores[s] = exp(scores[s] - scores.dtype.type(top)) if visible[s] else scores.dtype.type(0)
        total += scores[s]
    if total > 0:
        for s in range(length):
            scores[s] /= total


@njit_strict
def gemm_add(a, matrix, out, row_begin, row_end, workspace):
    """out[rows] ← out[rows] + a[rows] matrixᵀ"""
    n, k = matrix.shape
    size = matrix.itemsize
    x = a.ctypes.data + row_begin * k * size
    y = out.ctypes.data + row_begin * n * size
    gemm(x, k, matrix.ctypes.data, k, y, n, row_end - row_begin, n, k, True, matrix, workspace)


@njit_strict
def attend_step(
    t, slot, row_begin, row_end, states, x_proj, attention, scale, attention_saved, scratch, workspace
):
    """α = softmax s(query h, keys), c = Σ α values, x_proj ← x_proj + context c"""
    keys, values, visible, query, context, vector, _ = attention
    queries, contexts, weights = attention_saved
    length = keys.shape[1]
    dim = values.shape[2]
    gemm_forward(states[0, t], query, queries[slot], row_begin, row_end, 0, len(query), workspace)
    for b in range(row_begin, row_end):
        q = queries[slot, b]
        w = weights[slot, b]
        c = contexts[t, b]
        for s in range(length):
            if visible[b, s]:
                w[s] = score(q, keys[b, s], vector, scale, scratch)
        masked_softmax(w, visible[b], length)
        for m in range(dim):
            c[m] = 0
        for s in range(length):
            if visible[b, s]:
                v = values[b, s]
                weight = w[s]
                for m in range(dim):
                    c[m] += weight * v[m]
    gemm_add(contexts[t], context, x_proj[t], row_begin, row_end, workspace)


@njit_strict
def attend_step_backward(
    t, row_begin, row_end, grads, attention, attention_saved, attention_grads, part, scratch, dscores,
    workspace,
):  # fmt: skip
    """From dx_proj to the gradients of the query, the keys and the score; adds to dcontexts[t] and, for h, to
    dstate[0].
    """
    keys, values, visible, query, context, vector, scale = attention
    queries, _, weights = attention_saved
    dcontexts, dqueries, dkeys, dvectors = attention_grads
    dvector = dvectors[part]
    length = keys.shape[1]
    one = scratch.dtype.type(1)
    gemm_add(grads.dx_proj[t], context, dcontexts[t], row_begin, row_end, workspace)
    for b in range(row_begin, row_end):
        q = queries[t, b]
        w = weights[t, b]
        dq = dqueries[t, b]
        dc = dcontexts[t, b]
        mean = scratch.dtype.type(0)
        for s in range(length):
            if visible[b, s]:
                dscores[s] = dot(values[b, s], dc)
                mean += w[s] * dscores[s]
        for a in range(len(q)):
            dq[a] = 0
        for s in range(length):
            if visible[b, s]:
                slope = w[s] * (dscores[s] - mean)
                k = keys[b, s]
                dk = dkeys[b, s]
                if vector.size:
                    for a in range(len(q)):
                        scratch[a] = tanh(q[a] + k[a])
                    for a in range(len(q)):
                        dvector[a] += slope * scratch[a]
                    for a in range(len(q)):
                        scratch[a] = slope * vector[a] * (one - scratch[a] * scratch[a])
                    for a in range(len(q)):
                        dq[a] += scratch[a]
                        dk[a] += scratch[a]
                else:
                    slope *= scratch.dtype.type(scale)
                    for a in range(len(q)):
                        dq[a] += slope * k[a]
                        dk[a] += slope * q[a]
    gemm_add(dqueries[t], query, grads.dstate[0], row_begin, row_end, workspace)


@njit_strict
def forward_part(
    counter, row_bounds, workers, batch_sizes, spec, arrays, dropout, attention, attention_saved, save
):
    """Takes parts through all steps until none are left."""
    hidden = arrays.hidden
    max_columns = max(*hidden.shape, *attention.query.shape, *attention.context.shape)
    workspace = gemm_workspace(hidden, max_columns, workers)
    scratch = np.empty(attention_saved.queries.shape[2], hidden.dtype)
    scale = hidden.dtype.type(attention.scale)
    part = next_part(counter)
    while part < len(row_bounds) - 1:
        for t in range(len(batch_sizes)):
            row_begin = row_bounds[part]
            row_end = min(batch_sizes[t], row_bounds[part + 1])
            slot = t if save else 0
            if row_end > row_begin:
                attend_step(
                    t, slot, row_begin, row_end, arrays.states, arrays.x_proj, attention, scale,
                    attention_saved, scratch, workspace,
                )  # fmt: skip
                step_forward(t, slot, row_begin, row_end, spec, arrays, dropout, workspace)
        part = next_part(counter)


@njit_strict
def backward_part(
    counter, row_bounds, workers, batch_sizes, spec, arrays, dropout, grads, attention, attention_saved,
    attention_grads,
):  # fmt: skip
    """Takes parts through all steps in reverse until none are left."""
    hidden = arrays.hidden
    max_columns = max(*hidden.shape, *attention.query.shape, *attention.context.shape)
    workspace = gemm_workspace(hidden, max_columns, workers)
    scratch = np.empty(attention_saved.queries.shape[2], hidden.dtype)
    dscores = np.empty(attention.keys.shape[1], hidden.dtype)
    recurrence_scratch = step_scratch(spec, grads.dstate)
    part = next_part(counter)
    while part < len(row_bounds) - 1:
        for t in range(len(batch_sizes) - 1, -1, -1):
            row_begin = row_bounds[part]
            row_end = min(batch_sizes[t], row_bounds[part + 1])
            if row_end > row_begin:
                step_backward(
                    t, row_begin, row_end, spec, arrays, dropout, grads, recurrence_scratch, workspace
                )
                attend_step_backward(
                    t, row_begin, row_end, grads, attention, attention_saved, attention_grads, part, scratch,
                    dscores, workspace,
                )  # fmt: skip
        part = next_part(counter)


forward_parts = parallel_parts(forward_part)
backward_parts = parallel_parts(backward_part)


@njit_strict_entry
def forward(rows, workers, spec, arrays, dropout, attention, attention_saved, save):
    """As recurrence.forward; also fills attention_saved and overwrites x_proj."""
    forward_parts(
        rows.row_bounds, workers, rows.batch_sizes, spec, arrays, dropout, attention, attention_saved, save
    )


@njit_strict_entry
def backward(rows, workers, spec, arrays, dropout, grads, attention, attention_saved, attention_grads):
    """As recurrence.backward; also fills attention_grads."""
    backward_parts(
        rows.row_bounds, workers, rows.batch_sizes, spec, arrays, dropout, grads, attention, attention_saved,
        attention_grads,
    )  # fmt: skip
