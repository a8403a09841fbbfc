"""The fast way through time on a CPU for a recurrent decoder whose last h asks the memory: attention and cell in one compiled loop
(kernels/attentive_recurrence.py) instead of a dozen calls for each step. Left out: other weights than the softmax, several layers, a query without a projection;
they take the plain loop of attentive.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels, supports
from seqloom.fused.recurrence import (
    CellKernel,
    FusedCell,
    RecurrentDropout,
    buffer,
    cell_args,
    dropout_args,
    final_state,
    partition_rows,
    recurrent_weight_grad,
    to_numpy,
    zero_bias,
)

NO_DROPOUT = RecurrentDropout()


class AttentionMemory(NamedTuple):
    """The memory that every step attends to."""

    keys: Tensor  # (B, S, A)
    values: Tensor  # (B, S, M)
    visible: Tensor | None  # (B, S), boolean; None where all positions are visible


class AttentionProjections(NamedTuple):
    """The weights of the attention of one step."""

    query: Tensor  # (A, D): the query projection, multiplied by the score's own matrix if it has one
    context: Tensor  # (W, M): from the context to the cell's gates
    vector: Tensor  # (A,) of the additive score; empty for scores that are dot products
    scale: float


def attentive_recurrence(
    cell: FusedCell,
    x: Tensor,
    memory: AttentionMemory,
    projections: Callable[[], AttentionProjections],
    state: tuple,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, tuple] | None:
    """All steps: h (B, T, D), contexts (B, T, M) and the final state. Padding is on the right: it leaves the state unchanged and outputs 0.

    None where the cell has no kernel, the kernels do not support the tensors, or there is a single step; `projections` is then not called."""
    keys, values, visible = memory
    if x.shape[1] < 2 or cell.kernel is None or not supports(x, keys, values, *state, *cell.parameters()):
        return None
    (batch, length, _), kind = x.shape, type(state)
    visible = torch.ones(keys.shape[:2], dtype=torch.bool) if visible is None else visible
    query, context, vector, scale = projections()
    live, order = [batch] * length, None
    if mask is not None:
        lengths = mask.sum(1)
        live = (lengths[:, None] > torch.arange(length)).sum(0).tolist()
        order = lengths.argsort(descending=True)
        x, keys, values, visible, *state = (
            entry.index_select(0, order) for entry in (x, keys, values, visible, *state)
        )
    hidden, bias = cell.recurrent()
    share = cell.inputs(x.transpose(0, 1))  # (T, B, W)
    h, c, *after = AttentiveRecurrence.apply(
        cell.kernel,
        live,
        visible,
        scale,
        share,
        hidden,
        bias,
        keys,
        values,
        query,
        context,
        vector,
        *state,
    )
    h, c = h.transpose(0, 1), c.transpose(0, 1)
    if order is not None:
        back = order.argsort()
        h, c, *after = (entry.index_select(0, back) for entry in (h, c, *after))
    return h, c, kind(*after)


class AttentiveRecurrence(torch.autograd.Function):
    """h, c, *state = f(share, hidden, bias, keys, values, query, context, vector, *state), through all steps of time."""

    @staticmethod
    def forward(
        ctx,
        kernel: CellKernel,
        live,
        visible,
        scale,
        share,
        hidden,
        bias,
        keys,
        values,
        query,
        context,
        vector,
        *state,
    ):
        (length, batch, width), dim = share.shape, hidden.shape[1]
        past = buffer(share, live, len(state), length + 1, batch, dim)
        for entry, start in zip(past, state, strict=True):
            entry[0] = start
        gates, side = (
            buffer(share, live, length, batch, width),
            buffer(share, live, kernel.num_saved, length, batch, dim),
        )
        asked, found, weights = (
            buffer(share, live, length, batch, size)
            for size in (len(query), values.shape[2], values.shape[1])
        )
        read = to_numpy(zero_bias(hidden) if bias is None else bias, hidden, past[0, :length])
        shown = [*to_numpy(keys, values, visible, query, context, vector), scale]
        filled = [
            tensor.numpy()
            for tensor in (share.clone(memory_format=torch.contiguous_format), gates, past, side)
        ]
        load_kernels("attentive_recurrence").forward(
            *partition_rows(live, batch, hidden), *cell_args(kernel, live, hidden), True, *filled, *read, *dropout_args(NO_DROPOUT, share), *shown,
            asked.numpy(), found.numpy(), weights.numpy(),
        )  # fmt: skip
        ctx.save_for_backward(
            hidden,
            bias,
            keys,
            values,
            visible,
            query,
            context,
            vector,
            past,
            gates,
            side,
            asked,
            found,
            weights,
        )
        ctx.kernel, ctx.live, ctx.scale = kernel, live, scale
        return past[0, 1:], found, *final_state(past, live)

    @staticmethod
    @once_differentiable
    def backward(ctx, dh: Tensor, dfound: Tensor, *dstate: Tensor):
        (
            hidden,
            bias,
            keys,
            values,
            visible,
            query,
            context,
            vector,
            past,
            gates,
            side,
            asked,
            found,
            weights,
        ) = ctx.saved_tensors
        kernel, live = ctx.kernel, ctx.live
        dx = buffer(gates, live, *gates.shape)
        dr = buffer(gates, live, *gates.shape) if kernel.separate_recurrent_grad else dx
        d, dfound = torch.stack(dstate), dfound.clone(memory_format=torch.contiguous_format)
        parted = partition_rows(live, len(keys), hidden)
        dasked, dkeys, dvectors = (
            buffer(asked, live, *asked.shape),
            torch.zeros_like(keys),
            vector.new_zeros(len(parted[0]), len(vector)),
        )
        seen = past[0, :-1]
        read = to_numpy(gates, past, side, zero_bias(hidden) if bias is None else bias, hidden.T, seen)
        shown = [
            *to_numpy(keys, values, visible, query.T, context.T, vector),
            ctx.scale,
            asked.numpy(),
            weights.numpy(),
        ]
        load_kernels("attentive_recurrence").backward(
            *parted, *cell_args(kernel, live, hidden), *read, *dropout_args(NO_DROPOUT, gates), *to_numpy(dh), *(tensor.numpy() for tensor in (d, dx, dr)),
            *shown, *(tensor.numpy() for tensor in (dfound, dasked, dkeys, dvectors)),
        )  # fmt: skip
        dhidden, flat = recurrent_weight_grad(kernel, dr, hidden, seen, side), dx.flatten(0, 1)
        dquery, dcontext = dasked.flatten(0, 1).T @ seen.flatten(0, 1), flat.T @ found.flatten(0, 1)
        dvalues = torch.bmm(weights.permute(1, 2, 0), dfound.transpose(0, 1))  # (B, S, T) (B, T, M)
        dbias = None if bias is None else dr.flatten(0, 1).sum(0)
        dvector = dvectors.sum(0) if vector.numel() else None
        return (
            None,
            None,
            None,
            None,
            dx,
            dhidden,
            dbias,
            dkeys,
            dvalues,
            dquery,
            dcontext,
            dvector,
            *d.unbind(),
        )
