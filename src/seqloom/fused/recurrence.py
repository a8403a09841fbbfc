"""The fast way through time on a CPU, one for all cells: a cell only names its elementwise kernels, here are the products and their order.

The loop over time is compiled (kernels/recurrence.py): one product for each step and direction, written into its slice of one array, then one kernel
(kernels/cells.py). The weights' gradients are one product over all steps at the end, and the inputs' share is one product before. Values that only a
gradient needs are kept only where one is wanted.
Rows stand sorted by length, so that padding costs nothing. Left out: other devices and half precision, which take the plain loop, and a
second derivative, which needs `plain()`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels, supports

MIN_ROWS_PER_THREAD, CACHED_WEIGHT_BYTES = (
    4,
    4 << 20,
)  # rows that a thread takes at least, bytes of weights that it may read for itself


@dataclass(frozen=True)
class CellKernel:
    """Which kernels make a cell's step, and what they need. Columns count blocks of D."""

    name: str
    variant: int = 0
    num_saved: int = 0  # arrays (T, B, D) besides the gates
    separate_recurrent_grad: bool = False  # the recurrent product's gradient is not that of the inputs' share
    reset_block: int | None = None  # the block whose product reads r ⊙ h
    outer_gates: tuple[int, ...] = ()  # blocks of the gates around the step, from the inside

    def with_gate(self, block: int) -> CellKernel:
        """The kernel of the same step as candidate of a gate."""
        return replace(self, num_saved=self.num_saved + 1, outer_gates=(*self.outer_gates, block))


class FusedCell(Protocol):
    """What the fused recurrence reads of a cell: its kernel, its recurrent weights and the projection of its inputs."""

    kernel: CellKernel | None

    def parameters(self) -> Iterator[Tensor]: ...

    def inputs(self, x: Tensor) -> Tensor: ...

    def recurrent(self) -> tuple[Tensor, Tensor | None]: ...


def partition_rows(live: list[int], batch: int, weights: Tensor) -> tuple[np.ndarray, int, int]:
    """How the batch is parted among threads, as the compiled loops want it: the bounds of the parts, the work of products with few rows, the threads.
    Parts are about equally many tokens; weights too large to be near a processor are read once for all rows instead."""
    from seqloom.kernels import host, small_gemm

    count = host.num_threads()
    if count > 1 and batch >= MIN_ROWS_PER_THREAD * count and weights.nbytes <= CACHED_WEIGHT_BYTES:
        tokens = (
            np.bincount(np.minimum(live, batch), minlength=batch + 1)[::-1].cumsum()[::-1][1:].cumsum()
        )  # of the rows up to each
        bounds = np.searchsorted(tokens, tokens[-1] * np.arange(1, count) / count) + 1
        bounds = np.array([0, *bounds, batch], np.int64)
    else:
        bounds = np.array([0, batch], np.int64)
    return bounds, host.c_address(small_gemm.f32_worker), count


class RecurrentDropout:
    """Dropout of the recurrence: `h_mask` (B, D) multiplies h where the products read it; `zoneout` is the fraction of the old state that is
    kept, a number or a tensor (S, T, B, D)."""

    def __init__(self, h_mask: Tensor | None = None, zoneout: Tensor | float = 0.0):
        self.h_mask = h_mask
        self.zoneout = zoneout
        self.has_zoneout = isinstance(zoneout, Tensor) or zoneout > 0

    def __bool__(self) -> bool:
        return self.h_mask is not None or self.has_zoneout

    def select(self, rows: Tensor) -> RecurrentDropout:
        """The dropout of these rows of the batch."""
        h_mask = None if self.h_mask is None else self.h_mask[rows]
        zoneout = self.zoneout[:, :, rows] if isinstance(self.zoneout, Tensor) else self.zoneout
        return RecurrentDropout(h_mask, zoneout)

    def zoneout_at(self, t: int, states: Tensor) -> Tensor:
        """The fraction at step t for states (S, rows, D)."""
        if isinstance(self.zoneout, Tensor):
            return self.zoneout[:, t, : states.shape[1]]
        return torch.full_like(states, self.zoneout)


def recurrence(
    cell: FusedCell, x: Tensor, state: tuple, mask: Tensor | None, noise: RecurrentDropout
) -> tuple[Tensor, tuple] | None:
    """The outputs (B, T, D) of all steps and the final state. Padding is on the right: it leaves the state unchanged and outputs 0.

    None where the cell has no kernel, the kernels do not support the tensors, or there is a single step, which gains nothing."""
    if x.shape[1] < 2 or cell.kernel is None or not supports(x, *cell.parameters(), *state):
        return None
    (batch, length, _), kind = x.shape, type(state)
    live, order = [batch] * length, None
    if mask is not None:
        lengths = mask.sum(1)
        live = (lengths[:, None] > torch.arange(length)).sum(0).tolist()
        if (lengths[1:] > lengths[:-1]).any():
            order = lengths.argsort(descending=True)
            x, noise = x.index_select(0, order), noise.select(order)
            state = tuple(entry.index_select(0, order) for entry in state)
    hidden, bias = cell.recurrent()
    share = cell.inputs(x.transpose(0, 1)).contiguous()  # (T, B, W)
    reals = [share, hidden, *([] if bias is None else [bias]), *state]
    if torch.is_grad_enabled() and any(real.requires_grad for real in reals):
        y, *after = Recurrence.apply(cell.kernel, live, noise, share, hidden, bias, *state)
    else:
        past, _ = recurrence_forward(cell.kernel, live, noise, share, hidden, bias, state, keep=False)
        y, after = past[0, 1:], final_state(past, live)
    y = y.transpose(0, 1)
    if order is not None:
        back = order.argsort()
        y, after = y.index_select(0, back), [entry.index_select(0, back) for entry in after]
    return y, kind(*after)


def final_state(past: Tensor, live: list[int]) -> list[Tensor]:
    """Each row's state after its last real token."""
    if live[-1] == past.shape[2]:
        return [entry[-1].clone() for entry in past]
    lengths = (torch.tensor(live)[:, None] > torch.arange(past.shape[2])).sum(0)
    return [entry[lengths, torch.arange(len(lengths))] for entry in past]


def buffer(like: Tensor, live: list[int], *shape: int) -> Tensor:
    """An array that the steps fill; what padding leaves out is 0."""
    return like.new_empty(shape) if live[-1] == like.shape[1] else like.new_zeros(shape)


def recurrent_weight_grad(
    kernel: CellKernel, dr: Tensor, hidden: Tensor, seen: Tensor, side: Tensor
) -> Tensor:
    """The gradient of the recurrent matrix, one product over all steps for the blocks that read h and one for the block that reads r ⊙ h."""
    flat, result, dim = dr.flatten(0, 1), torch.empty_like(hidden), hidden.shape[1]
    first, last = (
        (len(hidden), len(hidden))
        if kernel.reset_block is None
        else (kernel.reset_block * dim, (kernel.reset_block + 1) * dim)
    )
    for span, read in (
        (slice(0, first), seen),
        (slice(first, last), side[:1].flatten(0, 1)),
        (slice(last, len(hidden)), seen),
    ):
        if span.stop > span.start:
            torch.mm(flat[:, span].T, read.flatten(0, 1), out=result[span])
    return result


def cell_args(kernel: CellKernel, live: list[int], hidden: Tensor) -> tuple:
    """What both directions of time are told about the cell: which kernel in which form, the late block, the gates around, the rows."""
    around = np.array([block * hidden.shape[1] for block in kernel.outer_gates], np.int64)
    return (
        load_kernels("recurrence").CELLS.index(kernel.name),
        kernel.variant,
        -1 if kernel.reset_block is None else kernel.reset_block,
        around,
        np.array(live, np.int64),
    )


def dropout_args(noise: RecurrentDropout, like: Tensor) -> tuple[np.ndarray, np.ndarray, float]:
    """Dropout's factors, zoneout's shares and its rate, as arrays; without elements where there is none."""
    drop = like.new_empty(0, 0) if noise.h_mask is None else noise.h_mask.to(like.dtype).contiguous()
    zoned = isinstance(noise.zoneout, Tensor)
    zone = noise.zoneout.to(like.dtype).contiguous() if zoned else like.new_empty(0, 0, 0, 0)
    return drop.numpy(), zone.numpy(), 0.0 if zoned else float(noise.zoneout)


def to_numpy(*tensors: Tensor) -> list[np.ndarray]:
    return [tensor.detach().contiguous().numpy() for tensor in tensors]


def zero_bias(hidden: Tensor) -> Tensor:
    return hidden.new_zeros(len(hidden))


def recurrence_forward(
    kernel: CellKernel,
    live: list[int],
    noise: RecurrentDropout,
    share: Tensor,
    hidden: Tensor,
    bias: Tensor | None,
    state: tuple,
    keep: bool,
):
    """All states (S, T + 1, B, D), and what a gradient needs besides: the gates, the sides, h as the products read it."""
    (length, batch, width), dim = share.shape, hidden.shape[1]
    slots = length if keep else 1
    past = buffer(share, live, len(state), length + 1, batch, dim)
    for entry, start in zip(past, state, strict=True):
        entry[0] = start
    gates, side = (
        buffer(share, live, slots, batch, width),
        buffer(share, live, kernel.num_saved, slots, batch, dim),
    )
    seen = past[0, :length] if noise.h_mask is None else buffer(share, live, slots, batch, dim)
    filled = [tensor.numpy() for tensor in (gates, past, side)]
    read = to_numpy(share, zero_bias(hidden) if bias is None else bias, hidden)
    parted = partition_rows(live, batch, hidden)
    load_kernels("recurrence").forward(
        *parted,
        *cell_args(kernel, live, hidden),
        keep,
        read[0],
        *filled,
        *read[1:],
        seen.numpy(),
        *dropout_args(noise, share),
    )
    return past, (gates, side, seen)


class Recurrence(torch.autograd.Function):
    """y, *state = f(share, hidden, bias, *state), through all steps of time."""

    @staticmethod
    def forward(
        ctx,
        kernel: CellKernel,
        live: list[int],
        noise: RecurrentDropout,
        share: Tensor,
        hidden: Tensor,
        bias: Tensor | None,
        *state: Tensor,
    ):
        past, kept = recurrence_forward(kernel, live, noise, share, hidden, bias, state, keep=True)
        ctx.save_for_backward(hidden, bias, past, *kept)
        ctx.kernel, ctx.live, ctx.noise = kernel, live, noise
        return past[0, 1:], *final_state(past, live)

    @staticmethod
    @once_differentiable
    def backward(ctx, dy: Tensor, *dstate: Tensor):
        hidden, bias, past, gates, side, seen = ctx.saved_tensors
        kernel, live = ctx.kernel, ctx.live
        dx = buffer(gates, live, *gates.shape)
        dr = buffer(gates, live, *gates.shape) if kernel.separate_recurrent_grad else dx
        d = torch.stack(dstate)  # (S, B, D)
        read = to_numpy(gates, past, side, zero_bias(hidden) if bias is None else bias, hidden.T, seen)
        written = [tensor.numpy() for tensor in (d, dx, dr)]
        parted = partition_rows(live, gates.shape[1], hidden)
        load_kernels("recurrence").backward(
            *parted,
            *cell_args(kernel, live, hidden),
            *read,
            *dropout_args(ctx.noise, gates),
            *to_numpy(dy),
            *written,
        )
        dhidden = recurrent_weight_grad(kernel, dr, hidden, seen, side)
        return None, None, None, dx, dhidden, None if bias is None else dr.flatten(0, 1).sum(0), *d.unbind()
