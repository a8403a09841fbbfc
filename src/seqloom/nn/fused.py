"""The fast way through time on a CPU, one for all cells: a cell only names its elementwise kernels, here are the products and their order.

One product for each step and direction, written into its slice of one array, then one kernel (nn/kernels.py); the weights' gradients are one product
over all steps at the end, and the inputs' share is one product before. Values that only a gradient needs are kept only where one is wanted.
Rows stand sorted by length, so that padding costs nothing. Left out: other devices and half precision, which take the plain loop, and a
second derivative, which needs `plain()`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.nn import mask as masks


@dataclass(frozen=True)
class Kernel:
    """Which kernels make a cell's step, and what they need. Columns count blocks of D."""

    name: str
    form: int = 0
    sides: int = 0  # arrays (T, B, D) besides the gates
    apart: bool = False  # the recurrent product's gradient is not that of the inputs' share
    late: int | None = None  # the block whose product reads r ⊙ h
    gates: tuple[int, ...] = ()  # blocks of the gates around the step, from the inside

    def around(self, block: int) -> Kernel:
        """The kernel of the same step as candidate of a gate."""
        return replace(self, sides=self.sides + 1, gates=(*self.gates, block))


@cache
def kernels() -> ModuleType:
    """Loaded when first used: the compiler takes half a second to import."""
    from seqloom.nn import kernels

    return kernels


def able(*tensors: Tensor) -> bool:
    """Whether the kernels can compute with these."""
    kinds = {(tensor.device.type, tensor.dtype) for tensor in tensors}
    return kinds in ({("cpu", torch.float32)}, {("cpu", torch.float64)}) and not torch.is_autocast_enabled("cpu")


class Noise:
    """What training does to the recurrence: `drop` (B, D) multiplies h where products read it, `zone` is the share of the old state that
    stays, a number or (S, T, B, D)."""

    def __init__(self, drop: Tensor | None = None, zone: Tensor | float = 0.0):
        self.drop, self.zone, self.zoned = drop, zone, isinstance(zone, Tensor) or zone > 0

    def __bool__(self) -> bool:
        return self.drop is not None or self.zoned

    def rows(self, order: Tensor) -> Noise:
        drop = None if self.drop is None else self.drop[order]
        return Noise(drop, self.zone[:, :, order] if isinstance(self.zone, Tensor) else self.zone)

    def zone_at(self, t: int, states: Tensor) -> Tensor:
        """For states (S, rows, D)."""
        return self.zone[:, t, : states.shape[1]] if isinstance(self.zone, Tensor) else torch.full_like(states, self.zone)


def sweep(cell, x: Tensor, state: tuple, mask: Tensor | None, noise: Noise) -> tuple[Tensor, tuple]:
    """The whole of time for a cell with a kernel; padding, on the right, leaves the state and reads 0."""
    (batch, length, _), kind = x.shape, type(state)
    live, order = [batch] * length, None
    if mask is not None:
        lengths = masks.lengths(mask)
        live = (lengths[:, None] > torch.arange(length)).sum(0).tolist()
        if (lengths[1:] > lengths[:-1]).any():
            order = lengths.argsort(descending=True)
            x, noise = x.index_select(0, order), noise.rows(order)
            state = tuple(entry.index_select(0, order) for entry in state)
    hidden, bias = cell.recurrent()
    share = cell.inputs(x.transpose(0, 1)).contiguous()  # (T, B, W)
    reals = [share, hidden, *([] if bias is None else [bias]), *state]
    if torch.is_grad_enabled() and any(real.requires_grad for real in reals):
        y, *after = Recurrence.apply(cell.kernel, live, noise, share, hidden, bias, *state)
    else:
        past, _ = forward(cell.kernel, live, noise, share, hidden, bias, state, keep=False)
        y, after = past[0, 1:], final(past, live)
    y = y.transpose(0, 1)
    if order is not None:
        back = order.argsort()
        y, after = y.index_select(0, back), [entry.index_select(0, back) for entry in after]
    return y, kind(*after)


def final(past: Tensor, live: list[int]) -> list[Tensor]:
    """Each row's state after its last real token."""
    if live[-1] == past.shape[2]:
        return [entry[-1].clone() for entry in past]
    lengths = (torch.tensor(live)[:, None] > torch.arange(past.shape[2])).sum(0)
    return [entry[lengths, torch.arange(len(lengths))] for entry in past]


def room(like: Tensor, live: list[int], *shape: int) -> Tensor:
    """An array that the steps fill; what padding leaves out is 0."""
    return like.new_empty(shape) if live[-1] == like.shape[1] else like.new_zeros(shape)


def spans(kernel: Kernel, hidden: Tensor) -> list[slice]:
    """The rows of the hidden matrix whose products read h itself."""
    dim = hidden.shape[1]
    if kernel.late is None:
        return [slice(0, len(hidden))]
    ends = slice(0, kernel.late * dim), slice((kernel.late + 1) * dim, len(hidden))
    return [span for span in ends if span.start < span.stop]


def late(kernel: Kernel, hidden: Tensor) -> slice | None:
    return None if kernel.late is None else slice(kernel.late * hidden.shape[1], (kernel.late + 1) * hidden.shape[1])


def no_bias(hidden: Tensor) -> Tensor:
    return hidden.new_zeros(len(hidden))


def steps(tensor: Tensor, live: list[int]) -> Sequence[Tensor]:
    """The live rows (rows, …) of each step of a tensor (T, B, …)."""
    views = tensor.unbind()
    return views if live[-1] == tensor.shape[1] else [step[:rows] for step, rows in zip(views, live, strict=True)]


def repeated(tensor: Tensor, live: list[int]) -> Sequence[Tensor]:
    """The live rows of each step of one (B, …), the same place at all steps."""
    return steps(tensor.expand(len(live), *tensor.shape), live)


def forward(kernel: Kernel, live: list[int], noise: Noise, share: Tensor, hidden: Tensor, bias: Tensor | None, state: tuple, keep: bool):
    """All states (S, T + 1, B, D), and what a gradient needs besides: the gates, the sides, h as the products read it."""
    code, (length, batch, width), dim = kernels(), share.shape, hidden.shape[1]
    step, slots = getattr(code, kernel.name), length if keep else 1
    past = room(share, live, len(state), length + 1, batch, dim)
    for entry, start in zip(past, state, strict=True):
        entry[0] = start
    gates, side = room(share, live, slots, batch, width), room(share, live, kernel.sides, slots, batch, dim)
    seen = past[0, :length] if noise.drop is None else room(share, live, slots, batch, dim)
    arrays = [a.detach().numpy() for a in (share, gates, past, side, no_bias(hidden) if bias is None else bias)]

    def each(tensor: Tensor) -> Sequence[Tensor]:  # the same place for all steps where nothing is kept
        return steps(tensor, live) if tensor.shape[0] == length else repeated(tensor[0], live)

    reads, products = each(seen), [(each(gates[:, :, span]), hidden[span].T) for span in spans(kernel, hidden)]
    reset, seen_array = late(kernel, hidden), seen.numpy()
    again = None if reset is None else (each(side[0]), hidden[reset].T, each(gates[:, :, reset]))
    for t, rows in enumerate(live):
        slot, read = t if keep else 0, reads[t]
        if noise.drop is not None:
            torch.mul(past[0, t, :rows], noise.drop[:rows], out=read)
        for out, weight in products:
            torch.mm(read, weight, out=out[t])
        if again is not None:
            code.gru_reset(t, slot, t if noise.drop is None else slot, rows, *arrays[:2], seen_array, arrays[3])
            torch.mm(again[0][t], again[1], out=again[2][t])
        step(t, slot, rows, *arrays, kernel.form)
        for which, block in enumerate(kernel.gates, kernel.sides - len(kernel.gates)):
            code.gated(t, slot, rows, *arrays[:4], block * dim, which)
        if noise.zoned:
            now, old = past[:, t + 1, :rows], past[:, t, :rows]
            now += noise.zone_at(t, now) * (old - now)
    return past, (gates, side, seen)


class Recurrence(torch.autograd.Function):
    """y, *state = f(share, hidden, bias, *state), through all steps of time."""

    @staticmethod
    def forward(ctx, kernel: Kernel, live: list[int], noise: Noise, share: Tensor, hidden: Tensor, bias: Tensor | None, *state: Tensor):
        past, kept = forward(kernel, live, noise, share, hidden, bias, state, keep=True)
        ctx.save_for_backward(hidden, bias, past, *kept)
        ctx.kernel, ctx.live, ctx.noise = kernel, live, noise
        return past[0, 1:], *final(past, live)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor, *dstate: Tensor):
        hidden, bias, past, gates, side, seen = ctx.saved_tensors
        kernel, live, noise, code = ctx.kernel, ctx.live, ctx.noise, kernels()
        step, dim, reset, spread = getattr(code, f"{kernel.name}_back"), hidden.shape[1], late(kernel, hidden), spans(kernel, hidden)
        dx = room(gates, live, *gates.shape)
        dr = room(gates, live, *gates.shape) if kernel.apart else dx
        d = torch.stack(dstate)  # (S, B, D)
        kept = d.new_empty(len(kernel.gates), *d.shape[1:])
        read = [a.detach().numpy() for a in (gates, past, side, no_bias(hidden) if bias is None else bias)]
        write = [a.numpy() for a in (d, dx, dr)]
        around = [(kept[n].numpy(), block * dim, n + kernel.sides - len(kernel.gates)) for n, block in enumerate(kernel.gates)]
        dys, dhs, rests = steps(dy, live), repeated(d[0], live), [repeated(rest, live) for rest in kept]
        products = [(steps(dr[:, :, span], live), hidden[span]) for span in spread]
        product = torch.empty_like(d[0])
        seen_array, product_array = seen.numpy(), product.numpy()
        again = None if reset is None else (steps(dr[:, :, reset], live), hidden[reset], repeated(product, live))
        for t in reversed(range(len(live))):
            rows, dh = live[t], dhs[t]
            dh += dys[t]
            if noise.zoned:
                stays = d[:, :rows] * noise.zone_at(t, d[:, :rows])
                d[:, :rows] -= stays
            for gate in reversed(around):
                code.gated_back(t, rows, *read[:3], *write, *gate)
            step(t, rows, *read, *write, kernel.form)
            for rest in rests:
                dh += rest[t]
            into = dh if noise.drop is None else torch.zeros_like(dh)
            if again is not None:
                given, weight, out = again
                torch.mm(given[t], weight, out=out[t])
                code.gru_reset_back(t, rows, read[0], seen_array, product_array, write[1])
                into += out[t]
            for given, weight in products:
                into.addmm_(given[t], weight)
            if noise.drop is not None:
                dh.addcmul_(into, noise.drop[:rows])
            if noise.zoned:
                d[:, :rows] += stays
        flat, dhidden = dr.flatten(0, 1), torch.empty_like(hidden)
        for span in spread:
            torch.mm(flat[:, span].T, seen.flatten(0, 1), out=dhidden[span])
        if reset is not None:
            torch.mm(flat[:, reset].T, side[0].flatten(0, 1), out=dhidden[reset])
        return None, None, None, dx, dhidden, None if bias is None else flat.sum(0), *d.unbind()
