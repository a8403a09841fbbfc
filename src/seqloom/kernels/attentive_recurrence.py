"""A recurrent decoder's attention inside the compiled loop over time: before each step the last h asks the memory, and what it finds joins the
step's share. The steps themselves are those of sweeps.py.

Besides its arrays: `keys` (B, S, A), `values` (B, S, M), `visible` (B, S), `query` (A, D) and `context` (W, M) the matrices before the score and
after the pooling, both turned backward, `vector` (A,) the additive score's u, without elements where s = scale · q·k; kept for the gradient:
`asked` (T, B, A), `found` (T, B, M), `weights` (T, B, S). Rows of a step stand alone, and a reduction over A or M is one vector loop.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from seqloom.kernels.elementwise import OPTIONS, exp, njit_strict, njit_strict_entry, tanh
from seqloom.kernels.gemm import gemm, gemm_workspace
from seqloom.kernels.parallel import next_part, parallel_parts
from seqloom.kernels.recurrence import gemm_forward, step_backward, step_forward

summed = njit(
    **{**OPTIONS, "fastmath": {"contract", "reassoc"}}
)  # a sum in any order is one that vectors can make


@summed
def score(q, k, vector, scale, room):
    """uᵀ tanh(q + k), or scale · q·k"""
    total = q.dtype.type(0)
    if vector.size:
        for a in range(len(q)):
            room[a] = tanh(q[a] + k[a])
        for a in range(len(q)):
            total += vector[a] * room[a]
    else:
        for a in range(len(q)):
            total += q[a] * k[a]
        total *= scale
    return total


@summed
def dot(a, b):
    """a·b"""
    total = a.dtype.type(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@njit_strict
def masked_softmax(scores, visible, length):
    """Softmax over what is visible; zeros where nothing is."""
    top, total = -np.inf, scores.dtype.type(0)
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
def gemm_add(a, matrix, out, first, last, tools):
    """out[first:last] ← out[first:last] + a[first:last] matrixᵀ"""
    (n, k), size = matrix.shape, matrix.itemsize
    at, to = a.ctypes.data + first * k * size, out.ctypes.data + first * n * size
    gemm(at, k, matrix.ctypes.data, k, to, n, last - first, n, k, True, matrix, tools)


@njit_strict
def attend_step(
    t,
    slot,
    first,
    last,
    past,
    share,
    keys,
    values,
    visible,
    query,
    context,
    vector,
    scale,
    asked,
    found,
    weights,
    room,
    tools,
):
    """α = softmax s(h query, keys), c = Σ α values, share ← share + c context"""
    length, size = keys.shape[1], values.shape[2]
    gemm_forward(past[0, t], query, asked[slot], first, last, 0, len(query), tools)
    for b in range(first, last):
        q, w, c = asked[slot, b], weights[slot, b], found[t, b]
        for s in range(length):
            if visible[b, s]:
                w[s] = score(q, keys[b, s], vector, scale, room)
        masked_softmax(w, visible[b], length)
        for m in range(size):
            c[m] = 0
        for s in range(length):
            if visible[b, s]:
                v, weight = values[b, s], w[s]
                for m in range(size):
                    c[m] += weight * v[m]
    gemm_add(found[t], context, share[t], first, last, tools)


@njit_strict
def attend_step_backward(
    t,
    first,
    last,
    keys,
    values,
    visible,
    query,
    context,
    vector,
    scale,
    asked,
    weights,
    dx,
    d,
    dfound,
    dasked,
    dkeys,
    dvector,
    room,
    de,
    tools,
):
    """From the share's gradient to those of the query, the keys and the score; dfound[t] becomes that of the pooled values, d[0] gets h's part."""
    length, one = keys.shape[1], room.dtype.type(1)
    gemm_add(dx[t], context, dfound[t], first, last, tools)
    for b in range(first, last):
        q, w, dq, dc = asked[t, b], weights[t, b], dasked[t, b], dfound[t, b]
        mean = room.dtype.type(0)
        for s in range(length):
            if visible[b, s]:
                de[s] = dot(values[b, s], dc)
                mean += w[s] * de[s]
        for a in range(len(q)):
            dq[a] = 0
        for s in range(length):
            if visible[b, s]:
                slope, k, dk = w[s] * (de[s] - mean), keys[b, s], dkeys[b, s]
                if vector.size:
                    for a in range(len(q)):
                        room[a] = tanh(q[a] + k[a])
                    for a in range(len(q)):
                        dvector[a] += slope * room[a]
                    for a in range(len(q)):
                        room[a] = slope * vector[a] * (one - room[a] * room[a])
                    for a in range(len(q)):
                        dq[a] += room[a]
                        dk[a] += room[a]
                else:
                    slope *= room.dtype.type(scale)
                    for a in range(len(q)):
                        dq[a] += slope * k[a]
                        dk[a] += slope * q[a]
    gemm_add(dasked[t], query, d[0], first, last, tools)


@njit_strict
def forward_part(
    ticket, bounds, work, threads, kind, form, late, around, live, keep, share, gates, past, side, bias, hidden, seen, drop, zone, rate,
    keys, values, visible, query, context, vector, scale, asked, found, weights,
):  # fmt: skip
    shared, room = (
        gemm_workspace(hidden, max(*hidden.shape, *query.shape, *context.shape), work, threads),
        np.empty(asked.shape[2], hidden.dtype),
    )
    factor, part = hidden.dtype.type(scale), next_part(ticket)
    while part < len(bounds) - 1:
        for t in range(len(live)):
            first, last, slot = bounds[part], min(live[t], bounds[part + 1]), t if keep else 0
            if last > first:
                attend_step(
                    t,
                    slot,
                    first,
                    last,
                    past,
                    share,
                    keys,
                    values,
                    visible,
                    query,
                    context,
                    vector,
                    factor,
                    asked,
                    found,
                    weights,
                    room,
                    shared,
                )
                step_forward(
                    t,
                    slot,
                    first,
                    last,
                    kind,
                    form,
                    late,
                    around,
                    share,
                    gates,
                    past,
                    side,
                    bias,
                    hidden,
                    seen,
                    drop,
                    zone,
                    rate,
                    shared,
                )
        part = next_part(ticket)


@njit_strict
def backward_part(
    ticket, bounds, work, threads, kind, form, late, around, live, gates, past, side, bias, hidden, seen, drop, zone, rate, dy, d, dx, dr,
    keys, values, visible, query, context, vector, scale, asked, weights, dfound, dasked, dkeys, dvectors,
):  # fmt: skip
    shared, room = (
        gemm_workspace(hidden, max(*hidden.shape, *query.shape, *context.shape), work, threads),
        np.empty(asked.shape[2], hidden.dtype),
    )
    spare = (
        np.empty((len(around), *d.shape[1:]), d.dtype),
        np.zeros_like(d),
        np.empty_like(d[0]),
        np.empty_like(d[0]),
    )
    de, part = np.empty(keys.shape[1], hidden.dtype), next_part(ticket)
    while part < len(bounds) - 1:
        for t in range(len(live) - 1, -1, -1):
            first, last = bounds[part], min(live[t], bounds[part + 1])
            if last > first:
                step_backward(
                    t,
                    first,
                    last,
                    kind,
                    form,
                    late,
                    around,
                    gates,
                    past,
                    side,
                    bias,
                    hidden,
                    seen,
                    drop,
                    zone,
                    rate,
                    dy,
                    d,
                    dx,
                    dr,
                    spare,
                    shared,
                )
                attend_step_backward(
                    t, first, last, keys, values, visible, query, context, vector, scale, asked, weights, dx, d, dfound, dasked, dkeys,
                    dvectors[part], room, de, shared,
                )  # fmt: skip
        part = next_part(ticket)


forward_parts, backward_parts = parallel_parts(forward_part), parallel_parts(backward_part)


@njit_strict_entry
def forward(bounds, work, threads, *arguments):
    """As sweeps.forward, and fills asked, found and weights; share is changed."""
    forward_parts(bounds, work, threads, *arguments)


@njit_strict_entry
def backward(bounds, work, threads, *arguments):
    """As sweeps.backward; dfound holds the gradients of the contexts on entry and those of the pooled values on exit. Each part has a row of
    dvectors."""
    backward_parts(bounds, work, threads, *arguments)
