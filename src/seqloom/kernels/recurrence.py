"""All time steps of a recurrent layer in one compiled loop, forward and backward: the fast form of
`UnrolledCell` in `nn/recurrent.py`, called by `fused/recurrence.py`.

The arrays are those of `cells.py`; besides:
- batch_sizes (T,) int64: the rows that are real at each step; rows are sorted by length, longest first;
- hidden: the recurrent matrix, (W, D) forward and its transpose (D, W) backward, as the products read it;
- h_in (T, B, D): h as the products read it; h_mask (B, D): multiplies it there (variational dropout);
- zoneout (S, T, B, D): the fraction of the old state that is kept, or `zoneout_rate` for all alike.
An empty array means that the option is off.

Rows of a batch are independent: `row_bounds` splits them into parts, and each thread takes a part through all
steps, so the recurrent matrix stays in its L2 cache. With a single part the threads share its products
instead. Fallback: the loop of `UnrolledCell.unroll`.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from seqloom.kernels.cells import (
    gated,
    gated_backward,
    gru_inside,
    gru_inside_backward,
    gru_outside,
    gru_outside_backward,
    lstm,
    lstm_backward,
    reset_product,
    reset_product_backward,
    vanilla,
    vanilla_backward,
)
from seqloom.kernels.elementwise import njit_strict, njit_strict_entry
from seqloom.kernels.gemm import gemm, gemm_workspace
from seqloom.kernels.parallel import next_part, parallel_parts

CELLS = ("vanilla", "lstm", "gru_outside", "gru_inside")


class CellSpec(NamedTuple):
    """Which kernels compute a step."""

    cell: int  # index in CELLS
    variant: int
    reset_block: int  # the block of D columns whose product reads r ⊙ h; -1 for none
    outer_gates: np.ndarray  # the first columns of the gates around the step, innermost first


class RowSchedule(NamedTuple):
    """Which rows are computed, by part and by step."""

    row_bounds: np.ndarray  # part p has the rows [row_bounds[p], row_bounds[p + 1])
    batch_sizes: np.ndarray


class ForwardArrays(NamedTuple):
    """The arrays of the forward pass, which the backward pass reads."""

    x_proj: np.ndarray
    gates: np.ndarray
    states: np.ndarray
    saved: np.ndarray
    bias: np.ndarray
    hidden: np.ndarray
    h_in: np.ndarray


class DropoutArrays(NamedTuple):
    """Variational dropout and zoneout; an empty array means off."""

    h_mask: np.ndarray
    zoneout: np.ndarray
    zoneout_rate: float


class BackwardArrays(NamedTuple):
    """The gradients: of the outputs (T, B, D), and those of `cells.py`."""

    dy: np.ndarray
    dstate: np.ndarray
    dx_proj: np.ndarray
    drecurrent: np.ndarray


class StepScratch(NamedTuple):
    """Buffers for what stays inside one backward step."""

    gate_grads: np.ndarray  # (outer gates, B, D): the gradient of h that bypasses each outer gate's candidate
    zoneout_grads: np.ndarray  # (S, B, D): the gradient of the old state through zoneout
    reset_grad: np.ndarray  # (B, D): the gradient of r ⊙ h
    h_grad: np.ndarray  # (B, D): the gradient of the masked h


@njit_strict
def cell_forward(cell, t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant):
    if cell == 0:
        vanilla(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant)
    elif cell == 1:
        lstm(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant)
    elif cell == 2:
        gru_outside(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant)
    elif cell == 3:
        gru_inside(t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, variant)


@njit_strict
def cell_backward(
    cell, t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant
):
    if cell == 0:
        vanilla_backward(
            t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant
        )
    elif cell == 1:
        lstm_backward(t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant)
    elif cell == 2:
        gru_outside_backward(
            t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant
        )
    elif cell == 3:
        gru_inside_backward(
            t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent, variant
        )


@njit_strict
def gemm_forward(x, matrix, out, row_begin, row_end, column_begin, column_end, workspace):
    """out[rows, columns] ← x[rows] matrix[columns]ᵀ for x (B, D), matrix (W, D), out (B, W)."""
    if column_end > column_begin:
        width, dim = matrix.shape
        size = matrix.itemsize
        a = x.ctypes.data + row_begin * dim * size
        w = matrix.ctypes.data + column_begin * dim * size
        c = out.ctypes.data + (row_begin * width + column_begin) * size
        rows = row_end - row_begin
        columns = column_end - column_begin
        gemm(a, dim, w, dim, c, width, rows, columns, dim, False, matrix, workspace)


@njit_strict
def gemm_backward(grad, matrix, out, row_begin, row_end, column_begin, column_end, add, workspace):
    """out[rows] ← grad[rows, columns] matrix[:, columns]ᵀ [+ out[rows] if add] for grad (B, W), matrix (D,
    W), out (B, D).
    """
    if column_end > column_begin:
        dim, width = matrix.shape
        size = matrix.itemsize
        a = grad.ctypes.data + (row_begin * width + column_begin) * size
        w = matrix.ctypes.data + column_begin * size
        c = out.ctypes.data + row_begin * dim * size
        rows = row_end - row_begin
        columns = column_end - column_begin
        gemm(a, width, w, width, c, dim, rows, dim, columns, add, matrix, workspace)


@njit_strict
def step_forward(t, slot, row_begin, row_end, spec, arrays, dropout, workspace):
    """One time step: recurrent GEMM, cell kernel, outer gates, zoneout."""
    x_proj, gates, states, saved, bias, hidden, h_in = arrays
    h_mask, zoneout, zoneout_rate = dropout
    reset_block, outer_gates = spec.reset_block, spec.outer_gates
    width, dim = hidden.shape
    if h_mask.size:
        for b in range(row_begin, row_end):
            for j in range(dim):
                h_in[slot, b, j] = states[0, t, b, j] * h_mask[b, j]
    h_slot = slot if h_mask.size else t
    h = h_in[h_slot]
    before_reset = width if reset_block < 0 else reset_block * dim
    gemm_forward(h, hidden, gates[slot], row_begin, row_end, 0, before_reset, workspace)
    if reset_block >= 0:
        after_reset = (reset_block + 1) * dim
        gemm_forward(h, hidden, gates[slot], row_begin, row_end, after_reset, width, workspace)
        reset_product(t, slot, h_slot, row_begin, row_end, before_reset, x_proj, gates, h_in, saved)
        gemm_forward(
            saved[0, slot], hidden, gates[slot], row_begin, row_end, before_reset, after_reset, workspace
        )
    cell_forward(spec.cell, t, slot, row_begin, row_end, x_proj, gates, states, saved, bias, spec.variant)
    for i in range(len(outer_gates)):
        saved_index = saved.shape[0] - len(outer_gates) + i
        gated(t, slot, row_begin, row_end, x_proj, gates, states, saved, outer_gates[i], saved_index)
    if zoneout.size or zoneout_rate > 0:
        for s in range(states.shape[0]):
            for b in range(row_begin, row_end):
                for j in range(dim):
                    fraction = zoneout[s, t, b, j] if zoneout.size else hidden.dtype.type(zoneout_rate)
                    states[s, t + 1, b, j] += fraction * (states[s, t, b, j] - states[s, t + 1, b, j])


@njit_strict
def step_backward(t, row_begin, row_end, spec, arrays, dropout, grads, scratch, workspace):
    """The gradient of one time step; `arrays.hidden` is transposed."""
    _, gates, states, saved, bias, hidden, h_in = arrays
    h_mask, zoneout, zoneout_rate = dropout
    dy, dstate, dx_proj, drecurrent = grads
    reset_block, outer_gates = spec.reset_block, spec.outer_gates
    gate_grads, zoneout_grads, reset_grad, h_grad = scratch
    dim, width = hidden.shape
    for b in range(row_begin, row_end):
        for j in range(dim):
            dstate[0, b, j] += dy[t, b, j]
    if zoneout.size or zoneout_rate > 0:
        for s in range(states.shape[0]):
            for b in range(row_begin, row_end):
                for j in range(dim):
                    fraction = zoneout[s, t, b, j] if zoneout.size else hidden.dtype.type(zoneout_rate)
                    zoneout_grads[s, b, j] = dstate[s, b, j] * fraction
                    dstate[s, b, j] -= zoneout_grads[s, b, j]
    for i in range(len(outer_gates) - 1, -1, -1):
        saved_index = saved.shape[0] - len(outer_gates) + i
        gated_backward(
            t, row_begin, row_end, gates, states, saved, dstate, dx_proj, drecurrent, gate_grads[i],
            outer_gates[i], saved_index,
        )  # fmt: skip
    cell_backward(
        spec.cell, t, row_begin, row_end, gates, states, saved, bias, dstate, dx_proj, drecurrent,
        spec.variant,
    )  # fmt: skip
    for i in range(len(outer_gates)):
        for b in range(row_begin, row_end):
            for j in range(dim):
                dstate[0, b, j] += gate_grads[i, b, j]
    out = h_grad if h_mask.size else dstate[0]
    before_reset = width if reset_block < 0 else reset_block * dim
    after_reset = (reset_block + 1) * dim
    grad = drecurrent[t]
    if reset_block >= 0:
        gemm_backward(
            grad, hidden, reset_grad, row_begin, row_end, before_reset, after_reset, False, workspace
        )
        reset_product_backward(t, row_begin, row_end, gates, h_in, reset_grad, dx_proj)
    gemm_backward(grad, hidden, out, row_begin, row_end, 0, before_reset, h_mask.size == 0, workspace)
    if reset_block >= 0:
        gemm_backward(grad, hidden, out, row_begin, row_end, after_reset, width, True, workspace)
        for b in range(row_begin, row_end):
            for j in range(dim):
                out[b, j] += reset_grad[b, j]
    if h_mask.size:
        for b in range(row_begin, row_end):
            for j in range(dim):
                dstate[0, b, j] += h_grad[b, j] * h_mask[b, j]
    if zoneout.size or zoneout_rate > 0:
        for s in range(states.shape[0]):
            for b in range(row_begin, row_end):
                for j in range(dim):
                    dstate[s, b, j] += zoneout_grads[s, b, j]


@njit_strict
def step_scratch(spec, dstate):
    return StepScratch(
        np.empty((len(spec.outer_gates), *dstate.shape[1:]), dstate.dtype),
        np.zeros_like(dstate),
        np.empty_like(dstate[0]),
        np.empty_like(dstate[0]),
    )


@njit_strict
def forward_part(counter, row_bounds, workers, batch_sizes, spec, arrays, dropout, save):
    """Takes parts through all steps until none are left."""
    workspace = gemm_workspace(arrays.hidden, max(arrays.hidden.shape), workers)
    part = next_part(counter)
    while part < len(row_bounds) - 1:
        for t in range(len(batch_sizes)):
            row_begin = row_bounds[part]
            row_end = min(batch_sizes[t], row_bounds[part + 1])
            if row_end > row_begin:
                step_forward(t, t if save else 0, row_begin, row_end, spec, arrays, dropout, workspace)
        part = next_part(counter)


@njit_strict
def backward_part(counter, row_bounds, workers, batch_sizes, spec, arrays, dropout, grads):
    """Takes parts through all steps in reverse until none are left."""
    workspace = gemm_workspace(arrays.hidden, max(arrays.hidden.shape), workers)
    scratch = step_scratch(spec, grads.dstate)
    part = next_part(counter)
    while part < len(row_bounds) - 1:
        for t in range(len(batch_sizes) - 1, -1, -1):
            row_begin = row_bounds[part]
            row_end = min(batch_sizes[t], row_bounds[part + 1])
            if row_end > row_begin:
                step_backward(t, row_begin, row_end, spec, arrays, dropout, grads, scratch, workspace)
        part = next_part(counter)


forward_parts = parallel_parts(forward_part)
backward_parts = parallel_parts(backward_part)


@njit_strict_entry
def forward(rows, workers, spec, arrays, dropout, save):
    """Fills states, gates, saved and h_in; without `save` the last three hold a single step."""
    forward_parts(rows.row_bounds, workers, rows.batch_sizes, spec, arrays, dropout, save)


@njit_strict_entry
def backward(rows, workers, spec, arrays, dropout, grads):
    """From the gradients of the outputs and of the final state (in dstate) to dx_proj and drecurrent; dstate
    becomes the initial state's.
    """
    backward_parts(rows.row_bounds, workers, rows.batch_sizes, spec, arrays, dropout, grads)
