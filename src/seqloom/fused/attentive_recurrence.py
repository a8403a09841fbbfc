"""Fast form of `AttentiveRNN` with query: previous in `nn/rnn_decoder.py`, on a CPU: attention and cell in
one compiled loop over time.

One call of `kernels/attentive_recurrence.py` replaces a dozen calls for each step. Other attention weights
than the softmax, several layers and a query without a projection take the plain loop of
`AttentiveRNN.attend_from_previous`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels, supports
from seqloom.fused.recurrence import (
    CellKernel,
    ForwardResult,
    FusedCell,
    RecurrentDropout,
    StateT,
    backward_arrays,
    buffer,
    cell_spec,
    dropout_arrays,
    final_state,
    forward_arrays,
    forward_buffers,
    gradient_buffers,
    partition_rows,
    recurrent_weight_grad,
    row_order,
    to_numpy,
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


class AttentiveSpec(NamedTuple):
    """The arguments of `AttentiveRecurrence` that have no gradient."""

    kernel: CellKernel
    batch_sizes: list[int]
    visible: Tensor
    scale: float


def attentive_recurrence(
    cell: FusedCell,
    x: Tensor,
    memory: AttentionMemory,
    projections: Callable[[], AttentionProjections],
    state: StateT,
    mask: Tensor | None,
) -> tuple[Tensor, Tensor, StateT] | None:
    """All steps: h (B, T, D), contexts (B, T, M) and the final state. Padding is on the right: it leaves the
    state unchanged and outputs 0.

    None where the cell has no kernel, the kernels do not support the tensors, or there is a single step;
    `projections` is then not called.
    """
    keys, values, visible = memory
    kernel = cell.kernel
    if x.shape[1] < 2 or kernel is None or not supports(x, keys, values, *state, *cell.parameters()):
        return None
    if visible is None:
        visible = torch.ones(keys.shape[:2], dtype=torch.bool)
    query, context, vector, scale = projections()
    initial: list[Tensor] = list(state)
    batch_sizes, sorted_indices = row_order(mask, x.shape[0], x.shape[1], always_sort=True)
    if sorted_indices is not None:
        x, keys, values, visible, *initial = (
            entry.index_select(0, sorted_indices) for entry in (x, keys, values, visible, *state)
        )
    hidden, bias = cell.recurrent_weights()
    x_proj = cell.project_input(x.transpose(0, 1))  # (T, B, W)
    spec = AttentiveSpec(kernel, batch_sizes, visible, scale)
    h, c, *final = AttentiveRecurrence.apply(
        spec, x_proj, hidden, bias, keys, values, query, context, vector, *initial
    )
    h = h.transpose(0, 1)
    c = c.transpose(0, 1)
    if sorted_indices is not None:
        unsorted_indices = sorted_indices.argsort()
        h, c, *final = (entry.index_select(0, unsorted_indices) for entry in (h, c, *final))
    return h, c, type(state)(*final)


class AttentiveRecurrence(torch.autograd.Function):
    """h, c, *state = f(x_proj, hidden, bias, keys, values, query, context, vector, *state) over all time
    steps.
    """

    @staticmethod
    def forward(
        ctx: Any,
        spec: AttentiveSpec,
        x_proj: Tensor,
        hidden: Tensor,
        bias: Tensor | None,
        keys: Tensor,
        values: Tensor,
        query: Tensor,
        context: Tensor,
        vector: Tensor,
        *state: Tensor,
    ) -> tuple[Tensor, ...]:
        kernel, batch_sizes, visible, scale = spec
        length, batch, _ = x_proj.shape
        result = forward_buffers(kernel, batch_sizes, NO_DROPOUT, x_proj, state, True)
        queries = buffer(x_proj, batch_sizes, length, batch, len(query))
        contexts = buffer(x_proj, batch_sizes, length, batch, values.shape[2])
        weights = buffer(x_proj, batch_sizes, length, batch, values.shape[1])

        kernels = load_kernels("attentive_recurrence")
        x_proj = x_proj.clone(memory_format=torch.contiguous_format)  # the kernel overwrites it
        arrays = forward_arrays(x_proj, hidden, bias, result)
        attention = kernels.AttentionArrays(
            *(to_numpy(tensor) for tensor in (keys, values, visible, query, context, vector)), scale
        )
        attention_saved = kernels.AttentionSaved(queries.numpy(), contexts.numpy(), weights.numpy())
        rows, workers = partition_rows(batch_sizes, batch, hidden)
        dropout = dropout_arrays(NO_DROPOUT, x_proj)
        kernels.forward(
            rows, workers, cell_spec(kernel, hidden), arrays, dropout, attention, attention_saved, True
        )
        ctx.save_for_backward(
            hidden,
            bias,
            keys,
            values,
            query,
            context,
            vector,
            queries,
            contexts,
            weights,
            *result,
        )
        ctx.spec = spec
        return result.states[0, 1:], contexts, *final_state(result.states, batch_sizes)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dh: Tensor, dcontexts: Tensor, *dfinal: Tensor) -> tuple[Tensor | None, ...]:
        hidden, bias, keys, values, query, context, vector, *saved_tensors = ctx.saved_tensors
        queries, contexts, weights = saved_tensors[:3]
        result = ForwardResult(*saved_tensors[3:])
        kernel, batch_sizes, visible, scale = ctx.spec
        dx_proj, drecurrent = gradient_buffers(kernel, batch_sizes, result.gates)
        dstate = torch.stack(dfinal)
        dcontexts = dcontexts.clone(memory_format=torch.contiguous_format)
        rows, workers = partition_rows(batch_sizes, len(keys), hidden)
        dqueries = buffer(queries, batch_sizes, *queries.shape)
        dkeys = torch.zeros_like(keys)
        dvectors = vector.new_zeros(len(rows.row_bounds), len(vector))  # a row for each part

        kernels = load_kernels("attentive_recurrence")
        arrays = backward_arrays(hidden, bias, result)
        recurrence = load_kernels("recurrence")
        grads = recurrence.BackwardArrays(to_numpy(dh), dstate.numpy(), dx_proj.numpy(), drecurrent.numpy())
        attention = kernels.AttentionArrays(
            *(to_numpy(tensor) for tensor in (keys, values, visible, query.T, context.T, vector)), scale
        )
        attention_saved = kernels.AttentionSaved(queries.numpy(), contexts.numpy(), weights.numpy())
        attention_grads = kernels.AttentionGrads(
            dcontexts.numpy(), dqueries.numpy(), dkeys.numpy(), dvectors.numpy()
        )
        dropout = dropout_arrays(NO_DROPOUT, result.gates)
        kernels.backward(
            rows,
            workers,
            cell_spec(kernel, hidden),
            arrays,
            dropout,
            grads,
            attention,
            attention_saved,
            attention_grads,
        )

        dhidden = recurrent_weight_grad(kernel, drecurrent, hidden, result.h_in, result.saved)
        dbias = None if bias is None else drecurrent.flatten(0, 1).sum(0)
        dquery = dqueries.flatten(0, 1).T @ result.h_in.flatten(0, 1)
        dcontext = dx_proj.flatten(0, 1).T @ contexts.flatten(0, 1)
        dvalues = torch.bmm(weights.permute(1, 2, 0), dcontexts.transpose(0, 1))  # (B, S, T) (B, T, M)
        dvector = dvectors.sum(0) if vector.numel() else None
        return (
            None,
            dx_proj,
            dhidden,
            dbias,
            dkeys,
            dvalues,
            dquery,
            dcontext,
            dvector,
            *dstate.unbind(),
        )
