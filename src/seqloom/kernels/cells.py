"""The elementwise halves of recurrent steps as compiled loops: all gates of a step in one pass over memory, forward and backward.

Arrays are time first: `share` (T, B, W) the inputs' share, `gates` (T, B, W) the recurrent products, which the gates' values replace,
`past` (S, T + 1, B, D) the states, h first, `side` (K, T, B, D) what a kernel keeps besides. Step t reads past[:, t] and writes past[:, t + 1]
of the rows from `first` to `last`; `slot` is its place in gates and side, t or 0 where nothing is kept for a gradient. Backward, `d` (S, B, D) is the
gradient of the state after the step on entry and, on exit, the elementwise part of that of the state before it; `dx` and `dr` are those of share and
products. Rows are worked off in short loops over few arrays, which the compiler turns into vector instructions. Left out: the equations, which
stand at the cells.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.elementwise import (
    njit_strict,
    njit_strict_entry,
    sigmoid_add,
    tanh,
    tanh_add,
)

# Vanilla; form 0 is tanh, 1 is σ


@njit_strict_entry
def vanilla(t, slot, first, last, share, gates, past, side, bias, form):
    for b in range(first, last):
        after = past[0, t + 1, b]
        n = len(after)
        h = gates[slot, b, :n]
        if form == 0:
            tanh_add(share[t, b, :n], h)
        else:
            sigmoid_add(share[t, b, :n], h)
        for j in range(n):
            after[j] = h[j]


@njit_strict_entry
def vanilla_backward(t, first, last, gates, past, side, bias, d, dx, dr, form):
    one = d.dtype.type(1)
    for b in range(first, last):
        h, dh, da = gates[t, b], d[0, b], dx[t, b]
        if form == 0:
            for j in range(len(dh)):
                da[j] = dh[j] * (one - h[j] * h[j])
        else:
            for j in range(len(dh)):
                da[j] = dh[j] * h[j] * (one - h[j])
        for j in range(len(dh)):
            dh[j] = 0


# LSTM: i, f, g, o; form 0 reads tanh(c), 1 reads c


@njit_strict_entry
def lstm(t, slot, first, last, share, gates, past, side, bias, form):
    for b in range(first, last):
        a, g, c, after, h = share[t, b], gates[slot, b], past[1, t, b], past[1, t + 1, b], past[0, t + 1, b]
        n = len(h)
        sigmoid_add(a[: 2 * n], g[: 2 * n])
        tanh_add(a[2 * n : 3 * n], g[2 * n : 3 * n])
        sigmoid_add(a[3 * n : 4 * n], g[3 * n : 4 * n])
        i, f, new, o = g[:n], g[n : 2 * n], g[2 * n : 3 * n], g[3 * n : 4 * n]
        for j in range(n):
            after[j] = f[j] * c[j] + i[j] * new[j]
        if form == 0:
            for j in range(n):
                h[j] = o[j] * tanh(after[j])
        else:
            for j in range(n):
                h[j] = o[j] * after[j]


@njit_strict_entry
def lstm_backward(t, first, last, gates, past, side, bias, d, dx, dr, form):
    one = d.dtype.type(1)
    seen = np.empty_like(d[0, 0])
    for b in range(first, last):
        g, c, dh, dc, da = gates[t, b], past[1, t, b], d[0, b], d[1, b], dx[t, b]
        n = len(c)
        i, f, new, o = g[:n], g[n : 2 * n], g[2 * n : 3 * n], g[3 * n : 4 * n]
        di, df, dnew, do = da[:n], da[n : 2 * n], da[2 * n : 3 * n], da[3 * n : 4 * n]
        for j in range(
            n
        ):  # computed again: the state after the step may be a blend of this and the one before
            seen[j] = f[j] * c[j] + i[j] * new[j]
        if form == 0:
            for j in range(n):
                seen[j] = tanh(seen[j])
            for j in range(n):
                dc[j] += dh[j] * o[j] * (one - seen[j] * seen[j])
        else:
            for j in range(n):
                dc[j] += dh[j] * o[j]
        for j in range(n):
            do[j] = dh[j] * seen[j] * o[j] * (one - o[j])
            dh[j] = 0
        for j in range(n):
            di[j] = dc[j] * new[j] * i[j] * (one - i[j])
            dnew[j] = dc[j] * i[j] * (one - new[j] * new[j])
        for j in range(n):
            df[j] = dc[j] * c[j] * f[j] * (one - f[j])
            dc[j] = dc[j] * f[j]


# GRU: r, z, candidate


@njit_strict
def blend(keep, old, new, after):
    """after ← keep old + (1 - keep) new"""
    one = after.dtype.type(1)
    for j in range(len(after)):
        after[j] = keep[j] * old[j] + (one - keep[j]) * new[j]


@njit_strict
def blend_backward(keep, old, new, dh, dkeep, dnew):
    """The gradients of the gate and the candidate before their σ and tanh, and of the old h."""
    one = dh.dtype.type(1)
    for j in range(len(dh)):
        dkeep[j] = dh[j] * (old[j] - new[j]) * keep[j] * (one - keep[j])
    for j in range(len(dh)):
        dnew[j] = dh[j] * (one - keep[j]) * (one - new[j] * new[j])
        dh[j] = dh[j] * keep[j]


@njit_strict_entry
def gru_outside(t, slot, first, last, share, gates, past, side, bias, form):
    """side[0] keeps U h + b, which the reset gate multiplies."""
    for b in range(first, last):
        a, g, old, after, product = (
            share[t, b],
            gates[slot, b],
            past[0, t, b],
            past[0, t + 1, b],
            side[0, slot, b],
        )
        n = len(old)
        sigmoid_add(a[: 2 * n], g[: 2 * n])
        r, z, new, x, inside = g[:n], g[n : 2 * n], g[2 * n : 3 * n], a[2 * n : 3 * n], bias[2 * n : 3 * n]
        for j in range(n):
            product[j] = new[j] + inside[j]
        for j in range(n):
            new[j] = tanh(x[j] + r[j] * product[j])
        blend(z, old, new, after)


@njit_strict_entry
def gru_outside_backward(t, first, last, gates, past, side, bias, d, dx, dr, form):
    one = d.dtype.type(1)
    for b in range(first, last):
        g, old, dh, da, db, product = gates[t, b], past[0, t, b], d[0, b], dx[t, b], dr[t, b], side[0, t, b]
        n = len(old)
        r, z, new, dnew = g[:n], g[n : 2 * n], g[2 * n : 3 * n], da[2 * n : 3 * n]
        blend_backward(z, old, new, dh, da[n : 2 * n], dnew)
        out, dreset = db[2 * n : 3 * n], da[:n]
        for j in range(n):
            dreset[j] = dnew[j] * product[j] * r[j] * (one - r[j])
            out[j] = dnew[j] * r[j]
        for j in range(2 * n):
            db[j] = da[j]


@njit_strict_entry
def gru_reset(t, slot, at, first, last, share, gates, seen, side):
    """Before the candidate's product: r, z, and side[0] ← r ⊙ h, which the product reads."""
    for b in range(first, last):
        a, g, h, product = share[t, b], gates[slot, b], seen[at, b], side[0, slot, b]
        n = len(h)
        sigmoid_add(a[: 2 * n], g[: 2 * n])
        r = g[:n]
        for j in range(n):
            product[j] = r[j] * h[j]


@njit_strict_entry
def gru_inside(t, slot, first, last, share, gates, past, side, bias, form):
    for b in range(first, last):
        a, g, old, after = share[t, b], gates[slot, b], past[0, t, b], past[0, t + 1, b]
        n = len(old)
        tanh_add(a[2 * n : 3 * n], g[2 * n : 3 * n])
        blend(g[n : 2 * n], old, g[2 * n : 3 * n], after)


@njit_strict_entry
def gru_inside_backward(t, first, last, gates, past, side, bias, d, dx, dr, form):
    for b in range(first, last):
        g, old, dh, da = gates[t, b], past[0, t, b], d[0, b], dx[t, b]
        n = len(old)
        blend_backward(g[n : 2 * n], old, g[2 * n : 3 * n], dh, da[n : 2 * n], da[2 * n : 3 * n])


@njit_strict_entry
def gru_reset_backward(t, first, last, gates, seen, dproduct, dx):
    """From the gradient of r ⊙ h to that of r; it becomes the gradient of h."""
    one = dproduct.dtype.type(1)
    for b in range(first, last):
        r, h, dh, dreset = gates[t, b], seen[t, b], dproduct[b], dx[t, b]
        for j in range(len(h)):
            dreset[j] = dh[j] * h[j] * r[j] * (one - r[j])
            dh[j] = dh[j] * r[j]


# The gate around any candidate; its column stands after the candidate's


@njit_strict_entry
def gated(t, slot, first, last, share, gates, past, side, at, which):
    """The candidate has written R where h belongs: side[which] keeps it, and h becomes G h + (1 - G) R."""
    for b in range(first, last):
        old, after, new = past[0, t, b], past[0, t + 1, b], side[which, slot, b]
        n = len(old)
        keep = gates[slot, b, at : at + n]
        sigmoid_add(share[t, b, at : at + n], keep)
        for j in range(n):
            new[j] = after[j]
        blend(keep, old, new, after)


@njit_strict_entry
def gated_backward(t, first, last, gates, past, side, d, dx, dr, kept, at, which):
    """d[0] becomes the gradient of R, `kept` what reaches h past it."""
    one = d.dtype.type(1)
    for b in range(first, last):
        old, new, dh, rest = past[0, t, b], side[which, t, b], d[0, b], kept[b]
        n = len(old)
        keep, da, db = gates[t, b, at : at + n], dx[t, b, at : at + n], dr[t, b, at : at + n]
        for j in range(n):
            da[j] = dh[j] * (old[j] - new[j]) * keep[j] * (one - keep[j])
        for j in range(n):
            db[j] = da[j]
        for j in range(n):
            rest[j] = dh[j] * keep[j]
            dh[j] = dh[j] * (one - keep[j])
