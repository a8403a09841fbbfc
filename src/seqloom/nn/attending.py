"""The fast way through time on a CPU for a recurrent decoder whose last h asks the memory: attention and cell in one compiled loop
(nn/looks.py) instead of a dozen calls for each step. Left out: other weights than the softmax, several layers, a query without a projection;
they take the plain loop of attentive.py."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.nn import mask as masks
from seqloom.nn.attention import Pooled, Pooling
from seqloom.nn.cells import Cell
from seqloom.nn.fused import Kernel, Noise, able, arrays, by_time, final, given, no_bias, noisy, room, workers
from seqloom.nn.score import Additive, Bilinear, Dot, ScaledDot
from seqloom.nn.weights import Softmax

QUIET = Noise()


@cache
def looks() -> ModuleType:
    """Loaded when first used: the compiler takes half a second to import."""
    from seqloom.nn import looks

    return looks


def fits(
    attention: Pooling, cell: Cell, x: Tensor, memory: Pooled, state: tuple, mask: Tensor | None
) -> bool:
    """Whether the loop has this attention, this cell and these tensors."""
    return (
        cell.kernel is not None
        and type(attention.score) in (Additive, Dot, ScaledDot, Bilinear)
        and type(attention.weights) is Softmax
        and isinstance(attention.query, torch.nn.Linear)
        and able(x, memory.keys, memory.values, *state, *cell.parameters())
        and (mask is None or masks.right_padded(mask))
    )


def attending(
    attention: Pooling,
    cell: Cell,
    context: Tensor,
    x: Tensor,
    memory: Pooled,
    state: tuple,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, tuple]:
    """All steps: h (B, T, D), contexts (B, T, M) and the state after; padding, on the right, leaves the state and reads 0."""
    (batch, length, _), kind = x.shape, type(state)
    keys, values = memory.keys[:, 0], memory.values[:, 0]
    visible = (
        torch.ones(keys.shape[:2], dtype=torch.bool) if memory.visible is None else memory.visible[:, 0, 0]
    )
    live, order = [batch] * length, None
    if mask is not None:
        lengths = masks.lengths(mask)
        live = (lengths[:, None] > torch.arange(length)).sum(0).tolist()
        order = lengths.argsort(descending=True)
        x, keys, values, visible, *state = (
            entry.index_select(0, order) for entry in (x, keys, values, visible, *state)
        )
    hidden, bias = cell.recurrent()
    share = cell.inputs(x.transpose(0, 1))  # (T, B, W)
    score = attention.score
    query = score.query(attention.query.weight.T).T  # the score's own matrix and the projection in one
    vector = score.vector if isinstance(score, Additive) else share.new_empty(0)
    h, c, *after = Attending.apply(
        cell.kernel,
        live,
        visible,
        score.scale or 0.0,
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


class Attending(torch.autograd.Function):
    """h, c, *state = f(share, hidden, bias, keys, values, query, context, vector, *state), through all steps of time."""

    @staticmethod
    def forward(
        ctx,
        kernel: Kernel,
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
        past = room(share, live, len(state), length + 1, batch, dim)
        for entry, start in zip(past, state, strict=True):
            entry[0] = start
        gates, side = (
            room(share, live, length, batch, width),
            room(share, live, kernel.sides, length, batch, dim),
        )
        asked, found, weights = (
            room(share, live, length, batch, size) for size in (len(query), values.shape[2], values.shape[1])
        )
        read = arrays(no_bias(hidden) if bias is None else bias, hidden, past[0, :length])
        shown = [*arrays(keys, values, visible, query, context, vector), scale]
        filled = [
            tensor.numpy()
            for tensor in (share.clone(memory_format=torch.contiguous_format), gates, past, side)
        ]
        looks().forward(
            *workers(live, batch, hidden), *given(kernel, live, hidden), True, *filled, *read, *noisy(QUIET, share), *shown,
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
        return past[0, 1:], found, *final(past, live)

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
        dx = room(gates, live, *gates.shape)
        dr = room(gates, live, *gates.shape) if kernel.apart else dx
        d, dfound = torch.stack(dstate), dfound.clone(memory_format=torch.contiguous_format)
        parted = workers(live, len(keys), hidden)
        dasked, dkeys, dvectors = (
            room(asked, live, *asked.shape),
            torch.zeros_like(keys),
            vector.new_zeros(len(parted[0]), len(vector)),
        )
        seen = past[0, :-1]
        read = arrays(gates, past, side, no_bias(hidden) if bias is None else bias, hidden.T, seen)
        shown = [
            *arrays(keys, values, visible, query.T, context.T, vector),
            ctx.scale,
            asked.numpy(),
            weights.numpy(),
        ]
        looks().backward(
            *parted, *given(kernel, live, hidden), *read, *noisy(QUIET, gates), *arrays(dh), *(tensor.numpy() for tensor in (d, dx, dr)),
            *shown, *(tensor.numpy() for tensor in (dfound, dasked, dkeys, dvectors)),
        )  # fmt: skip
        dhidden, flat = by_time(kernel, dr, hidden, seen, side), dx.flatten(0, 1)
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
