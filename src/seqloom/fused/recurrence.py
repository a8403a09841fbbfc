"""Fast form of `UnrolledCell` in `nn/recurrent.py`, on a CPU and for every cell: a cell names its elementwise
kernels; here are the products and their order.

The loop over time is compiled (`kernels/recurrence.py`): one recurrent product for each step and direction,
written into its slice of one array, then one elementwise kernel (`kernels/cells.py`). The projection of all
inputs is one product before the loop, and the gradients of the weights are one product over all steps after
it. Intermediate values are saved only when a gradient is needed. Rows are sorted by length, so padding costs
nothing. Other devices and half precision take the plain loop; a second derivative needs `plain()`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.errors import ConfigError
from seqloom.fused.dispatch import load_kernels, num_threads, supports

if TYPE_CHECKING:
    from seqloom.kernels.parallel import Workers
    from seqloom.kernels.recurrence import CellSpec, DropoutArrays, ForwardArrays, RowSchedule

MIN_ROWS_PER_THREAD = 4
CACHED_WEIGHT_BYTES = 4 << 20  # up to this size each thread reads the recurrent matrix for itself

StateT = TypeVar("StateT", bound=tuple[Tensor, ...])


@dataclass(frozen=True)
class CellKernel:
    """Which kernels compute a cell's step, and what they need. Columns are counted in blocks of D."""

    name: str  # in kernels.recurrence.CELLS
    variant: int = 0
    num_saved: int = 0  # arrays (T, B, D) saved besides the gates
    separate_recurrent_grad: bool = False  # the gradient of the recurrent product differs from that of x_proj
    reset_block: int | None = None  # the block whose product reads r ⊙ h
    outer_gates: tuple[int, ...] = ()  # blocks of the gates around the step, innermost first

    def with_gate(self, block: int) -> CellKernel:
        """The kernel of a gate in `block` around this step."""
        return replace(self, num_saved=self.num_saved + 1, outer_gates=(*self.outer_gates, block))


class FusedCell(Protocol):
    """What the fused recurrence reads of a cell: its kernel, its recurrent weights and the projection of its
    inputs.
    """

    @property
    def kernel(self) -> CellKernel | None: ...

    def parameters(self) -> Iterator[Tensor]: ...

    def project_input(self, x: Tensor) -> Tensor: ...

    def recurrent_weights(self) -> tuple[Tensor, Tensor | None]: ...


class RecurrentDropout:
    """Dropout of the recurrence: `h_mask` (B, D) multiplies h where the products read it; `zoneout` is the
    fraction of the old state that is kept, a number or a tensor (S, T, B, D).
    """

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


class RowOrder(NamedTuple):
    """How many rows are real at each step, and the order that sorts rows by length; None if they are sorted."""

    batch_sizes: list[int]
    sorted_indices: Tensor | None


def row_order(mask: Tensor | None, batch: int, length: int, always_sort: bool = False) -> RowOrder:
    """The order of rows for a mask (B, T) that pads on the right."""
    if mask is None:
        return RowOrder([batch] * length, None)
    lengths = mask.sum(1)
    batch_sizes = (lengths[:, None] > torch.arange(length)).sum(0).tolist()
    if always_sort or (lengths[1:] > lengths[:-1]).any():
        return RowOrder(batch_sizes, lengths.argsort(descending=True))
    return RowOrder(batch_sizes, None)


def recurrence(
    cell: FusedCell, x: Tensor, state: StateT, mask: Tensor | None, dropout: RecurrentDropout
) -> tuple[Tensor, StateT] | None:
    """The outputs (B, T, D) of all steps and the final state. Padding is on the right: it leaves the state
    unchanged and outputs 0.

    None where the cell has no kernel, the kernels do not support the tensors, or there is a single step,
    which gains nothing.
    """
    kernel = cell.kernel
    if x.shape[1] < 2 or kernel is None or not supports(x, *cell.parameters(), *state):
        return None
    initial: Sequence[Tensor] = state
    batch_sizes, sorted_indices = row_order(mask, x.shape[0], x.shape[1])
    if sorted_indices is not None:
        x = x.index_select(0, sorted_indices)
        dropout = dropout.select(sorted_indices)
        initial = [entry.index_select(0, sorted_indices) for entry in state]
    hidden, bias = cell.recurrent_weights()
    x_proj = cell.project_input(x.transpose(0, 1)).contiguous()  # (T, B, W)
    inputs = [x_proj, hidden, *([] if bias is None else [bias]), *initial]
    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in inputs):
        y, *final = Recurrence.apply(kernel, batch_sizes, dropout, x_proj, hidden, bias, *initial)
    else:
        result = recurrence_forward(kernel, batch_sizes, dropout, x_proj, hidden, bias, initial, save=False)
        y = result.states[0, 1:]
        final = final_state(result.states, batch_sizes)
    y = y.transpose(0, 1)
    if sorted_indices is not None:
        unsorted_indices = sorted_indices.argsort()
        y = y.index_select(0, unsorted_indices)
        final = [entry.index_select(0, unsorted_indices) for entry in final]
    return y, type(state)(*final)


def partition_rows(batch_sizes: list[int], batch: int, weights: Tensor) -> tuple[RowSchedule, Workers]:
    """The rows of each thread, with about equally many tokens. A matrix too large for a thread's cache is
    read once for all rows instead.
    """
    threads = num_threads()
    row_bounds = np.array([0, batch], np.int64)
    many_rows = batch >= MIN_ROWS_PER_THREAD * threads
    if threads > 1 and many_rows and weights.nbytes <= CACHED_WEIGHT_BYTES:
        rows_at_step = np.bincount(np.minimum(batch_sizes, batch), minlength=batch + 1)
        lengths = rows_at_step[::-1].cumsum()[::-1][1:]
        tokens = lengths.cumsum()  # of the rows up to each
        inner = np.searchsorted(tokens, tokens[-1] * np.arange(1, threads) / threads) + 1
        row_bounds = np.array([0, *inner, batch], np.int64)
    schedule = load_kernels("recurrence").RowSchedule(row_bounds, np.array(batch_sizes, np.int64))
    return schedule, load_kernels("parallel").Workers(load_kernels("small_gemm").f32_worker, threads)


def final_state(states: Tensor, batch_sizes: list[int]) -> list[Tensor]:
    """Each row's state after its last real token, from states (S, T + 1, B, D)."""
    if batch_sizes[-1] == states.shape[2]:
        return [entry[-1].clone() for entry in states]
    lengths = (torch.tensor(batch_sizes)[:, None] > torch.arange(states.shape[2])).sum(0)
    return [entry[lengths, torch.arange(len(lengths))] for entry in states]


def buffer(like: Tensor, batch_sizes: list[int], *shape: int) -> Tensor:
    """An array that the steps fill; zeros where there is padding, which the steps leave out. `like` is (T, B,
    …).
    """
    return like.new_empty(shape) if batch_sizes[-1] == like.shape[1] else like.new_zeros(shape)


def recurrent_weight_grad(
    kernel: CellKernel, drecurrent: Tensor, hidden: Tensor, h_in: Tensor, saved: Tensor
) -> Tensor:
    """The gradient of the recurrent matrix: one product over all steps for the blocks that read h, one for
    the block that reads r ⊙ h.
    """
    grad = drecurrent.flatten(0, 1)
    result = torch.empty_like(hidden)
    width, dim = hidden.shape
    begin, end = width, width
    if kernel.reset_block is not None:
        begin, end = kernel.reset_block * dim, (kernel.reset_block + 1) * dim
    for span, x in (
        (slice(0, begin), h_in),
        (slice(begin, end), saved[:1].flatten(0, 1)),
        (slice(end, width), h_in),
    ):
        if span.stop > span.start:
            torch.mm(grad[:, span].T, x.flatten(0, 1), out=result[span])
    return result


def cell_spec(kernel: CellKernel, hidden: Tensor) -> CellSpec:
    """The kernel in the numbers that `kernels/recurrence.py` reads."""
    kernels = load_kernels("recurrence")
    if kernel.name not in kernels.CELLS:
        raise ConfigError(f"there is no cell kernel {kernel.name!r}; choose from {', '.join(kernels.CELLS)}")
    reset_block = -1 if kernel.reset_block is None else kernel.reset_block
    outer_gates = np.array([block * hidden.shape[1] for block in kernel.outer_gates], np.int64)
    return kernels.CellSpec(kernels.CELLS.index(kernel.name), kernel.variant, reset_block, outer_gates)


def dropout_arrays(dropout: RecurrentDropout, like: Tensor) -> DropoutArrays:
    """The dropout as arrays in the dtype of `like`, empty where an option is off."""
    h_mask = like.new_empty(0, 0) if dropout.h_mask is None else dropout.h_mask.to(like.dtype).contiguous()
    zoneout = like.new_empty(0, 0, 0, 0)
    zoneout_rate = 0.0
    if isinstance(dropout.zoneout, Tensor):
        zoneout = dropout.zoneout.to(like.dtype).contiguous()
    else:
        zoneout_rate = float(dropout.zoneout)
    return load_kernels("recurrence").DropoutArrays(h_mask.numpy(), zoneout.numpy(), zoneout_rate)


def to_numpy(tensor: Tensor) -> np.ndarray:
    return tensor.detach().contiguous().numpy()


class ForwardResult(NamedTuple):
    """All states (S, T + 1, B, D), and what the gradient needs besides: the gates, saved values, h as the
    products read it.
    """

    states: Tensor
    gates: Tensor
    saved: Tensor
    h_in: Tensor


def forward_buffers(
    kernel: CellKernel,
    batch_sizes: list[int],
    dropout: RecurrentDropout,
    x_proj: Tensor,
    state: Sequence[Tensor],
    save: bool,
) -> ForwardResult:
    """What the steps fill, with the first state in its place."""
    length, batch, width = x_proj.shape
    dim = state[0].shape[1]
    slots = length if save else 1
    states = buffer(x_proj, batch_sizes, len(state), length + 1, batch, dim)
    for entry, start in zip(states, state, strict=True):
        entry[0] = start
    gates = buffer(x_proj, batch_sizes, slots, batch, width)
    saved = buffer(x_proj, batch_sizes, kernel.num_saved, slots, batch, dim)
    h_in = states[0, :length] if dropout.h_mask is None else buffer(x_proj, batch_sizes, slots, batch, dim)
    return ForwardResult(states, gates, saved, h_in)


def forward_arrays(
    x_proj: Tensor, hidden: Tensor, bias: Tensor | None, result: ForwardResult
) -> ForwardArrays:
    """The arrays of the forward pass; a missing bias is zeros (W,)."""
    states, gates, saved, h_in = result
    return load_kernels("recurrence").ForwardArrays(
        to_numpy(x_proj),
        to_numpy(gates),
        to_numpy(states),
        to_numpy(saved),
        to_numpy(gates.new_zeros(gates.shape[-1]) if bias is None else bias),
        to_numpy(hidden),
        to_numpy(h_in),
    )


def backward_arrays(hidden: Tensor, bias: Tensor | None, result: ForwardResult) -> ForwardArrays:
    """The arrays of the forward pass as the backward pass reads them: the matrix transposed, and no x_proj."""
    return forward_arrays(result.gates.new_empty(0, 0, 0), hidden.T, bias, result)


def gradient_buffers(kernel: CellKernel, batch_sizes: list[int], gates: Tensor) -> tuple[Tensor, Tensor]:
    """The gradients of x_proj and of the recurrent products, one tensor where they are equal."""
    dx_proj = buffer(gates, batch_sizes, *gates.shape)
    separate = kernel.separate_recurrent_grad
    return dx_proj, buffer(gates, batch_sizes, *gates.shape) if separate else dx_proj


def recurrence_forward(
    kernel: CellKernel,
    batch_sizes: list[int],
    dropout: RecurrentDropout,
    x_proj: Tensor,
    hidden: Tensor,
    bias: Tensor | None,
    state: Sequence[Tensor],
    save: bool,
) -> ForwardResult:
    """All steps. Without `save` the gates, saved values and h_in hold a single step."""
    result = forward_buffers(kernel, batch_sizes, dropout, x_proj, state, save)
    arrays = forward_arrays(x_proj, hidden, bias, result)
    rows, workers = partition_rows(batch_sizes, x_proj.shape[1], hidden)
    spec = cell_spec(kernel, hidden)
    kernels = load_kernels("recurrence")
    kernels.forward(rows, workers, spec, arrays, dropout_arrays(dropout, x_proj), save)
    return result


class Recurrence(torch.autograd.Function):
    """y, *state = f(x_proj, hidden, bias, *state) over all time steps."""

    @staticmethod
    def forward(
        ctx: Any,
        kernel: CellKernel,
        batch_sizes: list[int],
        dropout: RecurrentDropout,
        x_proj: Tensor,
        hidden: Tensor,
        bias: Tensor | None,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        result = recurrence_forward(kernel, batch_sizes, dropout, x_proj, hidden, bias, state, save=True)
        ctx.save_for_backward(hidden, bias, *result)
        ctx.kernel = kernel
        ctx.batch_sizes = batch_sizes
        ctx.dropout = dropout
        return result.states[0, 1:], *final_state(result.states, batch_sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dy: Tensor, *dfinal: Tensor) -> tuple[Tensor | None, ...]:
        hidden, bias, *saved_tensors = ctx.saved_tensors
        result = ForwardResult(*saved_tensors)
        gates = result.gates
        kernel, batch_sizes = ctx.kernel, ctx.batch_sizes
        dx_proj, drecurrent = gradient_buffers(kernel, batch_sizes, gates)
        dstate = torch.stack(dfinal)  # (S, B, D)
        kernels = load_kernels("recurrence")
        arrays = backward_arrays(hidden, bias, result)
        grads = kernels.BackwardArrays(to_numpy(dy), dstate.numpy(), dx_proj.numpy(), drecurrent.numpy())
        rows, workers = partition_rows(batch_sizes, gates.shape[1], hidden)
        spec = cell_spec(kernel, hidden)
        kernels.backward(rows, workers, spec, arrays, dropout_arrays(ctx.dropout, gates), grads)
        dhidden = recurrent_weight_grad(kernel, drecurrent, hidden, result.h_in, result.saved)
        dbias = None if bias is None else drecurrent.flatten(0, 1).sum(0)
        return None, None, None, dx_proj, dhidden, dbias, *dstate.unbind()
