"""The elementwise part of one recurrent step, forward and backward: the fast form of the cells of
`nn/cells.py`, which hold the equations.

`recurrence.py` calls these between its products. Arrays are time first, C-contiguous, float32 or float64:
- x_proj (T, B, W): the input's projection; gates (T, B, W): the recurrent products, overwritten by the gates'
  values;
- states (S, T + 1, B, D): h first; step t reads states[:, t] and writes states[:, t + 1];
- saved (N, T, B, D): further values that the gradient needs; bias (W,): added to the recurrent product where
  a cell needs it apart;
- dstate (S, B, D): on entry the gradient of the state after the step, on exit the elementwise part of that of
  the state before;
- dx_proj, drecurrent (T, B, W): the gradients of x_proj and of the recurrent products, the same array where
  they are equal.
A step computes the rows [row_begin, row_end). `slot` is its index in gates and saved: t, or 0 where nothing
is saved for a gradient.

A row of a step stays in the L1 cache while short loops over few arrays, which LLVM vectorises, pass over it.
Fallback: `Cell.step`.
"""

from __future__ import annotations

import numpy as np

from seqloom.kernels.elementwise import njit_strict, njit_strict_entry, sigmoid_add, tanh, tanh_add

# Vanilla; variant 0 is tanh, 1 is σ


@njit_strict_entry
def vanilla(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant):
    for b in range(row_begin, row_end):
        after = states[0, t + 1, b]
        n = len(after)
        h = gates[slot, b, :n]
        if variant == 0:
            tanh_add(x_proj[t, b, :n], h)
        else:
            sigmoid_add(x_proj[t, b, :n], h)
        for j in range(n):
            after[j] = h[j]


@njit_strict_entry
def vanilla_backward(t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant):
    one = dstate.dtype.type(1)
    for b in range(row_begin, row_end):
        h = gates[t, b]
        dh = dstate[0, b]
        da = dx_proj[t, b]
        if variant == 0:
            for j in range(len(dh)):
                da[j] = dh[j] * (one - h[j] * h[j])
        else:
            for j in range(len(dh)):
                da[j] = dh[j] * h[j] * (one - h[j])
        for j in range(len(dh)):
            dh[j] = 0


# LSTM: i, f, g, o; variant 0 is h = o ⊙ tanh(c), 1 is h = o ⊙ c


@njit_strict_entry
def lstm(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant):
    for b in range(row_begin, row_end):
        a = x_proj[t, b]
        g = gates[slot, b]
        c = states[1, t, b]
        after = states[1, t + 1, b]
        h = states[0, t + 1, b]
        n = len(h)
        sigmoid_add(a[: 2 * n], g[: 2 * n])
        tanh_add(a[2 * n : 3 * n], g[2 * n : 3 * n])
        sigmoid_add(a[3 * n : 4 * n], g[3 * n : 4 * n])
        i, f, new, o = g[:n], g[n : 2 * n], g[2 * n : 3 * n], g[3 * n : 4 * n]
        for j in range(n):
            after[j] = f[j] * c[j] + i[j] * new[j]
        if variant == 0:
            for j in range(n):
                h[j] = o[j] * tanh(after[j])
        else:
            for j in range(n):
                h[j] = o[j] * after[j]


@njit_strict_entry
def lstm_backward(t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant):
    one = dstate.dtype.type(1)
    shown = np.empty_like(dstate[0, 0])  # tanh(c) or c after the step
    for b in range(row_begin, row_end):
        g = gates[t, b]
        c = states[1, t, b]
        dh = dstate[0, b]
        dc = dstate[1, b]
        da = dx_proj[t, b]
        n = len(c)
        i, f, new, o = g[:n], g[n : 2 * n], g[2 * n : 3 * n], g[3 * n : 4 * n]
        di, df, dnew, do = da[:n], da[n : 2 * n], da[2 * n : 3 * n], da[3 * n : 4 * n]
        # computed again: with zoneout the stored state is a blend of this and the one before
        for j in range(n):
            shown[j] = f[j] * c[j] + i[j] * new[j]
        if variant == 0:
            for j in range(n):
                shown[j] = tanh(shown[j])
            for j in range(n):
                dc[j] += dh[j] * o[j] * (one - shown[j] * shown[j])
        else:
            for j in range(n):
                dc[j] += dh[j] * o[j]
        for j in range(n):
            do[j] = dh[j] * shown[j] * o[j] * (one - o[j])
            dh[j] = 0
        for j in range(n):
            di[j] = dc[j] * new[j] * i[j] * (one - i[j])
            dnew[j] = dc[j] * i[j] * (one - new[j] * new[j])
        for j in range(n):
            df[j] = dc[j] * c[j] * f[j] * (one - f[j])
            dc[j] = dc[j] * f[j]


# The product r ⊙ h, which the candidate's product reads (`reset_block`); the gates' columns are before the candidate's,
# r's first


@njit_strict_entry
def reset_product(t, slot, h_slot, row_begin, row_end, columns, x_proj, gates, h_in, saved):
    """Before the candidate's product: σ of the first `columns`, and saved[0] ← r ⊙ h. h is h_in[h_slot]."""
    for b in range(row_begin, row_end):
        a = x_proj[t, b]
        g = gates[slot, b]
        h = h_in[h_slot, b]
        product = saved[0, slot, b]
        n = len(h)
        sigmoid_add(a[:columns], g[:columns])
        r = g[:n]
        for j in range(n):
            product[j] = r[j] * h[j]


@njit_strict_entry
def reset_product_backward(t, row_begin, row_end, gates, h_in, dproduct, dx_proj):
    """From the gradient of r ⊙ h, in dproduct (B, D), to that of h, in dproduct, and that of r before its σ, which is
    added to dx_proj: the cell's backward step has written there the gradient of r's other uses, or 0.
    """
    one = dproduct.dtype.type(1)
    for b in range(row_begin, row_end):
        r = gates[t, b]
        h = h_in[t, b]
        dh = dproduct[b]
        dreset = dx_proj[t, b]
        for j in range(len(h)):
            dreset[j] += dh[j] * h[j] * r[j] * (one - r[j])
            dh[j] = dh[j] * r[j]


# GRU: r, z, candidate


@njit_strict
def blend(keep, old, new, after):
    """after ← keep old + (1 - keep) new"""
    one = after.dtype.type(1)
    for j in range(len(after)):
        after[j] = keep[j] * old[j] + (one - keep[j]) * new[j]


@njit_strict
def blend_backward(keep, old, new, dh, dkeep, dnew):
    """The gradients of the gate before its σ, of the candidate before its tanh, and, in dh, of the old h."""
    one = dh.dtype.type(1)
    for j in range(len(dh)):
        dkeep[j] = dh[j] * (old[j] - new[j]) * keep[j] * (one - keep[j])
    for j in range(len(dh)):
        dnew[j] = dh[j] * (one - keep[j]) * (one - new[j] * new[j])
        dh[j] = dh[j] * keep[j]


@njit_strict_entry
def gru_outside(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant):
    """saved[0] ← U h + b, which the reset gate multiplies."""
    for b in range(row_begin, row_end):
        a = x_proj[t, b]
        g = gates[slot, b]
        old = states[0, t, b]
        after = states[0, t + 1, b]
        product = saved[0, slot, b]
        n = len(old)
        sigmoid_add(a[: 2 * n], g[: 2 * n])
        r, z, new = g[:n], g[n : 2 * n], g[2 * n : 3 * n]
        x = a[2 * n : 3 * n]
        candidate_bias = bias[2 * n : 3 * n]
        for j in range(n):
            product[j] = new[j] + candidate_bias[j]
        for j in range(n):
            new[j] = tanh(x[j] + r[j] * product[j])
        blend(z, old, new, after)


@njit_strict_entry
def gru_outside_backward(
    t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant
):
    one = dstate.dtype.type(1)
    for b in range(row_begin, row_end):
        g = gates[t, b]
        old = states[0, t, b]
        dh = dstate[0, b]
        da = dx_proj[t, b]
        db = drecurrent[t, b]
        product = saved[0, t, b]
        n = len(old)
        r, z, new = g[:n], g[n : 2 * n], g[2 * n : 3 * n]
        dnew = da[2 * n : 3 * n]
        blend_backward(z, old, new, dh, da[n : 2 * n], dnew)
        dproduct = db[2 * n : 3 * n]
        dreset = da[:n]
        for j in range(n):
            dreset[j] = dnew[j] * product[j] * r[j] * (one - r[j])
            dproduct[j] = dnew[j] * r[j]
        for j in range(2 * n):
            db[j] = da[j]


@njit_strict_entry
def gru_inside(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant):
    """After `reset_product` and the candidate's product."""
    for b in range(row_begin, row_end):
        a = x_proj[t, b]
        g = gates[slot, b]
        old = states[0, t, b]
        after = states[0, t + 1, b]
        n = len(old)
        tanh_add(a[2 * n : 3 * n], g[2 * n : 3 * n])
        blend(g[n : 2 * n], old, g[2 * n : 3 * n], after)


@njit_strict_entry
def gru_inside_backward(
    t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant
):
    for b in range(row_begin, row_end):
        g = gates[t, b]
        old = states[0, t, b]
        dh = dstate[0, b]
        da = dx_proj[t, b]
        n = len(old)
        for j in range(n):
            da[j] = 0  # `reset_product_backward` adds to it
        blend_backward(g[n : 2 * n], old, g[2 * n : 3 * n], dh, da[n : 2 * n], da[2 * n : 3 * n])


# The gate around any candidate; its columns, from `column` on, follow the candidate's


@njit_strict_entry
def gated(t, slot, row_begin, row_end, x_proj, gates, states, saved, column, saved_index):
    """The candidate has written R to the new h: saved[saved_index] ← R, and the new h becomes G h + (1 - G)
    R.
    """
    for b in range(row_begin, row_end):
        old = states[0, t, b]
        after = states[0, t + 1, b]
        new = saved[saved_index, slot, b]
        n = len(old)
        keep = gates[slot, b, column : column + n]
        sigmoid_add(x_proj[t, b, column : column + n], keep)
        for j in range(n):
            new[j] = after[j]
        blend(keep, old, new, after)


@njit_strict_entry
def gated_backward(
    t,
    row_begin,
    row_end,
    gates,
    states,
    saved,
    dstate,
    dx_proj,
    drecurrent,
    dh_residual,
    column,
    saved_index,
):
    """dstate[0] becomes the gradient of R, dh_residual (B, D) the gradient of the old h that bypasses R."""
    one = dstate.dtype.type(1)
    for b in range(row_begin, row_end):
        old = states[0, t, b]
        new = saved[saved_index, t, b]
        dh = dstate[0, b]
        rest = dh_residual[b]
        n = len(old)
        keep = gates[t, b, column : column + n]
        da = dx_proj[t, b, column : column + n]
        db = drecurrent[t, b, column : column + n]
        for j in range(n):
            da[j] = dh[j] * (old[j] - new[j]) * keep[j] * (one - keep[j])
        for j in range(n):
            db[j] = da[j]
        for j in range(n):
            rest[j] = dh[j] * keep[j]
            dh[j] = dh[j] * (one - keep[j])
