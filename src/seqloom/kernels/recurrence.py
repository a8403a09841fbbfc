"""All steps of time in one compiled loop, forward and backward: the products, the kernels between them, dropout and zoneout around them.

The arrays are those of kernels.py. Besides: `live` (T,) the rows that are real at each step, `hidden` the recurrent matrix, (W, D) forward and
turned backward, as products read it, `seen` (T, B, D) h as they read it, `drop` (B, D) what multiplies it there, `zone` (S, T, B, D) the share
of the old state that stays, or `rate` for all of it alike. An array without elements is an option not taken. `late` is the block whose product
reads r ⊙ h, -1 for none; `around` the columns of the gates around the step.

Rows of a batch go through time each alone: `bounds` part them, and each thread takes a part at a time. Where there is one part, the threads share
its products, which `work` is.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.cells import (
    gated,
    gated_backward,
    gru_inside,
    gru_inside_backward,
    gru_outside,
    gru_outside_backward,
    gru_reset,
    gru_reset_backward,
    lstm,
    lstm_backward,
    vanilla,
    vanilla_backward,
)
from seqloom.kernels.elementwise import njit_strict, njit_strict_entry
from seqloom.kernels.gemm import gemm, gemm_workspace
from seqloom.kernels.parallel import next_part, parallel_parts

CELLS = ("vanilla", "lstm", "gru_outside", "gru_inside")


@njit_strict
def cell_forward(kind, t, slot, first, last, share, gates, past, side, bias, form):
    if kind == 0:
        vanilla(t, slot, first, last, share, gates, past, side, bias, form)
    elif kind == 1:
        lstm(t, slot, first, last, share, gates, past, side, bias, form)
    elif kind == 2:
        gru_outside(t, slot, first, last, share, gates, past, side, bias, form)
    else:
        gru_inside(t, slot, first, last, share, gates, past, side, bias, form)


@njit_strict
def cell_backward(kind, t, first, last, gates, past, side, bias, d, dx, dr, form):
    if kind == 0:
        vanilla_backward(t, first, last, gates, past, side, bias, d, dx, dr, form)
    elif kind == 1:
        lstm_backward(t, first, last, gates, past, side, bias, d, dx, dr, form)
    elif kind == 2:
        gru_outside_backward(t, first, last, gates, past, side, bias, d, dx, dr, form)
    else:
        gru_inside_backward(t, first, last, gates, past, side, bias, d, dx, dr, form)


@njit_strict
def gemm_forward(read, hidden, out, first, last, begin, end, tools):
    """out[first:last, begin:end] ← read[first:last] hidden[begin:end]ᵀ"""
    if end > begin:
        (width, dim), size = hidden.shape, hidden.itemsize
        a, w = read.ctypes.data + first * dim * size, hidden.ctypes.data + begin * dim * size
        c = out.ctypes.data + (first * width + begin) * size
        gemm(a, dim, w, dim, c, width, last - first, end - begin, dim, False, hidden, tools)


@njit_strict
def gemm_backward(given, hidden, out, first, last, begin, end, add, tools):
    """out[first:last] ← given[first:last, begin:end] hidden[:, begin:end]ᵀ, added where asked"""
    if end > begin:
        (dim, width), size = hidden.shape, hidden.itemsize
        a, w = given.ctypes.data + (first * width + begin) * size, hidden.ctypes.data + begin * size
        c = out.ctypes.data + first * dim * size
        gemm(a, width, w, width, c, dim, last - first, dim, end - begin, add, hidden, tools)


@njit_strict
def step_forward(
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
    tools,
):
    """One step of time: the products, the kernel, and what stands around it."""
    (width, dim), states = hidden.shape, past.shape[0]
    if drop.size:
        for b in range(first, last):
            for j in range(dim):
                seen[slot, b, j] = past[0, t, b, j] * drop[b, j]
    place = slot if drop.size else t
    read = seen[place]
    gemm_forward(read, hidden, gates[slot], first, last, 0, width if late < 0 else late * dim, tools)
    if late >= 0:
        gemm_forward(read, hidden, gates[slot], first, last, (late + 1) * dim, width, tools)
        gru_reset(t, slot, place, first, last, share, gates, seen, side)
        gemm_forward(side[0, slot], hidden, gates[slot], first, last, late * dim, (late + 1) * dim, tools)
    cell_forward(kind, t, slot, first, last, share, gates, past, side, bias, form)
    for which in range(len(around)):
        gated(
            t, slot, first, last, share, gates, past, side, around[which], side.shape[0] - len(around) + which
        )
    if zone.size or rate > 0:
        for s in range(states):
            for b in range(first, last):
                for j in range(dim):
                    share_kept = zone[s, t, b, j] if zone.size else hidden.dtype.type(rate)
                    past[s, t + 1, b, j] += share_kept * (past[s, t, b, j] - past[s, t + 1, b, j])


@njit_strict
def step_backward(
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
    tools,
):
    """The gradient of one step of time. `spare` is room for what stays inside it."""
    kept, stays, reset, into = spare
    (dim, width), states = hidden.shape, past.shape[0]
    for b in range(first, last):
        for j in range(dim):
            d[0, b, j] += dy[t, b, j]
    if zone.size or rate > 0:
        for s in range(states):
            for b in range(first, last):
                for j in range(dim):
                    stays[s, b, j] = d[s, b, j] * (zone[s, t, b, j] if zone.size else hidden.dtype.type(rate))
                    d[s, b, j] -= stays[s, b, j]
    for which in range(len(around) - 1, -1, -1):
        gated_backward(
            t,
            first,
            last,
            gates,
            past,
            side,
            d,
            dx,
            dr,
            kept[which],
            around[which],
            side.shape[0] - len(around) + which,
        )
    cell_backward(kind, t, first, last, gates, past, side, bias, d, dx, dr, form)
    for which in range(len(around)):
        for b in range(first, last):
            for j in range(dim):
                d[0, b, j] += kept[which, b, j]
    out = into if drop.size else d[0]
    if late >= 0:
        gemm_backward(dr[t], hidden, reset, first, last, late * dim, (late + 1) * dim, False, tools)
        gru_reset_backward(t, first, last, gates, seen, reset, dx)
    gemm_backward(
        dr[t], hidden, out, first, last, 0, width if late < 0 else late * dim, drop.size == 0, tools
    )
    if late >= 0:
        gemm_backward(dr[t], hidden, out, first, last, (late + 1) * dim, width, True, tools)
        for b in range(first, last):
            for j in range(dim):
                out[b, j] += reset[b, j]
    if drop.size:
        for b in range(first, last):
            for j in range(dim):
                d[0, b, j] += into[b, j] * drop[b, j]
    if zone.size or rate > 0:
        for s in range(states):
            for b in range(first, last):
                for j in range(dim):
                    d[s, b, j] += stays[s, b, j]


@njit_strict
def forward_part(
    ticket,
    bounds,
    work,
    threads,
    kind,
    form,
    late,
    around,
    live,
    keep,
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
):
    shared = gemm_workspace(hidden, max(hidden.shape), work, threads)
    part = next_part(ticket)
    while part < len(bounds) - 1:
        for t in range(len(live)):
            first, last, slot = bounds[part], min(live[t], bounds[part + 1]), t if keep else 0
            if last > first:
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
    ticket,
    bounds,
    work,
    threads,
    kind,
    form,
    late,
    around,
    live,
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
):
    shared = gemm_workspace(hidden, max(hidden.shape), work, threads)
    spare = (
        np.empty((len(around), *d.shape[1:]), d.dtype),
        np.zeros_like(d),
        np.empty_like(d[0]),
        np.empty_like(d[0]),
    )
    part = next_part(ticket)
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
        part = next_part(ticket)


forward_parts, backward_parts = parallel_parts(forward_part), parallel_parts(backward_part)


@njit_strict_entry
def forward(bounds, work, threads, *arguments):
    """Fills past, gates, side and seen; where nothing is kept, the last three have room for one step."""
    forward_parts(bounds, work, threads, *arguments)


@njit_strict_entry
def backward(bounds, work, threads, *arguments):
    """From the gradients of the outputs and of the last state (in d) to those of share and products; d becomes the first state's."""
    backward_parts(bounds, work, threads, *arguments)
