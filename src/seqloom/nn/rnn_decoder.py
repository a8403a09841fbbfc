"""Recurrent decoders: one that attends to the encoder's outputs at each step, and one that starts from their summary."""

from __future__ import annotations

from functools import partial
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.fused.attentive_recurrence import AttentionMemory, AttentionProjections, attentive_recurrence
from seqloom.nn.attention_core import (
    Additive,
    AttentionWeights,
    Bilinear,
    Dot,
    ScaledDot,
    Score,
    Softmax,
    attend,
)
from seqloom.nn.basic import Dropout, Linear
from seqloom.nn.capture import time_loop
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import (
    Factory,
    HasPoints,
    Layer,
    Memory,
    Point,
    Points,
    State,
    record,
    require,
    right_padded,
    where_real,
)
from seqloom.nn.pool import InitFrom, summarize
from seqloom.nn.recurrent import UnrolledCell


class GlobalAttentionState(NamedTuple):
    """The memory as GlobalAttention reads it."""

    keys: Tensor  # (B, 1, S, K)
    values: Tensor  # (B, 1, S, M), the memory itself
    visible: Tensor | None  # (B, 1, 1, S)


class GlobalAttention(HasPoints):
    """c = Σⱼ αⱼ mⱼ,   α = softmaxⱼ s(W_Q h, W_K mⱼ)   [F4, F9]

    Attention of recurrent decoders: one head that averages the memory itself. Without `project` the score compares h
    and m directly, as in α = h·m [F5]; their sizes must then be equal.
    """

    points: ClassVar[Points] = {"": Point("c", "BTD")}
    reads_memory = True

    def __init__(
        self,
        size: int,
        memory: int,
        score: Factory[Score] = ScaledDot,
        dim: int | None = None,
        weights: Factory[AttentionWeights] = Softmax,
        project: bool = True,
    ):
        super().__init__()
        message = f"without projections a query of {size} cannot be compared with a memory of {memory}: make them equal"
        require(project or size == memory == (dim or size), message)
        self.query = nn.Linear(size, dim or size, bias=False) if project else nn.Identity()
        self.key = Linear(memory, dim or size) if project else nn.Identity()
        self.score = score(dim or size)
        self.weights = weights()

    def start(self, memory: Memory) -> GlobalAttentionState:
        keys = self.key(memory.values)[:, None]
        values = memory.values[:, None]
        visible = None if memory.mask is None else memory.mask[:, None, None]
        return GlobalAttentionState(keys, values, visible)

    def forward(self, h: Tensor, state: GlobalAttentionState) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) → the context (B, T, M) and, in the plain form, the weights (B, 1, T, S)."""
        queries = self.query(h)[:, None]
        c, weights = attend(
            queries, state.keys, state.values, self.score, state.visible, weights=self.weights
        )
        return record(self, "", c[:, 0]), weights


class AttentiveState(NamedTuple):
    """The state of an attentive decoder."""

    memory: GlobalAttentionState
    cells: tuple[State, ...]
    summary: Tensor | None = None  # (B, M), with the option `summary`


class DecoderOutputs(NamedTuple):
    """The results of an attentive decoder before its output projection."""

    h: Tensor  # (B, T, D)
    contexts: Tensor  # (B, T, M)
    weights: Tensor | None  # (B, 1, T, S), in the plain form
    cells: tuple[State, ...]  # the final states of the cells


def decoder_layers(
    cell: Factory[Cell], size: int, dim: int, layers: int, init_from: InitFrom
) -> nn.ModuleList:
    """The layers of a decoder whose first reads `size` numbers, and the checks of these options."""
    require(
        layers > 0 and dim > 0,
        f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}",
    )
    require(
        init_from in ("last", "first", "mean"),
        f"init_from must be last, first or mean, not {init_from!r}",
    )
    return nn.ModuleList(UnrolledCell(cell(dim if layer else size, dim)) for layer in range(layers))


class AttentiveRNN(Layer):
    """A recurrent decoder that attends to the memory at each step   [F4, F8, D-8]

    cₜ = Σⱼ αₜⱼ mⱼ,  αₜ = softmaxⱼ s(query, mⱼ);   yₜ = tanh(W' [hₜ; cₜ; xₜ]);   h₀ = tanh(W₀ mean(m))

    query: previous (Bahdanau et al.)   query hₜ₋₁, hₜ = f(hₜ₋₁, W xₜ + C cₜ)
           current (Luong et al.)       query hₜ, hₜ = f(hₜ₋₁, W xₜ)
           word                         query xₜ, the embedding of the word itself, hₜ = f(hₜ₋₁, W [xₜ; cₜ])   [F6]

    `init_from` computes h₀ from the memory's last or first vector instead of its mean; with `summary` every output
    also reads that vector, yₜ = tanh(W' [hₜ; cₜ; xₜ; summary])   [F7]. Only `query: previous` needs a loop over
    time, which is compiled where the kernels support it (fused/attentive_recurrence.py).
    """

    points: ClassVar[Points] = {"": Point("y", "BTD")}

    def __init__(
        self,
        size: int,
        memory: int,
        dim: int | None = None,
        cell: Factory[Cell] = LSTM,
        layers: int = 1,
        attention: Factory[GlobalAttention] = GlobalAttention,
        dropout: float = 0.0,
        query: Literal["previous", "current", "word"] = "previous",
        init_from: InitFrom = "mean",
        summary: bool = False,
    ):
        super().__init__()
        dim = dim or size
        require(
            query in ("previous", "current", "word"),
            f"query must be previous, current or word, not {query!r}",
        )
        self.dim = dim
        self.query = query
        self.init_from = init_from
        self.summary = summary
        in_dim = size + memory if query == "word" else size
        self.layers = decoder_layers(cell, in_dim, dim, layers, init_from)
        self.attention = attention(size if query == "word" else dim, memory)
        self.context_proj = (
            nn.Linear(memory, self.cells[0].width, bias=False) if query == "previous" else None
        )
        self.init_proj = Linear(memory, dim)
        self.out_proj = Linear(dim + memory + size + (memory if summary else 0), dim)
        self.dropout = Dropout(dropout)

    @property
    def cells(self) -> list[Cell]:
        return [cast(UnrolledCell, layer).cell for layer in self.layers]

    def start(self, batch: int, memory: Memory | None = None) -> AttentiveState:
        if memory is None:
            raise ConfigError("an attentive decoder needs a memory: start it with the encoder's outputs")
        summary = summarize(memory, self.init_from)
        h = self.init_proj(summary).tanh()
        return AttentiveState(
            self.attention.start(memory),
            tuple(with_hidden(cell, h) for cell in self.cells),
            summary if self.summary else None,
        )

    def forward(
        self, x: Tensor, state: AttentiveState | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, AttentiveState]:
        y, _, state = self.forward_with_weights(x, state or self.start(len(x)), mask)
        return y, state

    def forward_with_weights(
        self, x: Tensor, state: AttentiveState, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, AttentiveState]:
        """The outputs, the weights (B, 1, T, S) if the plain form is used [F14], and the state."""
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.dim), None, state
        if self.context_proj is not None:
            h, c, weights, cells = self.attend_from_previous(self.context_proj, x, state, mask)
        elif self.query == "current":
            h, c, weights, cells = self.attend_from_current(x, state, mask)
        else:
            h, c, weights, cells = self.attend_from_word(x, state, mask)
        features = [h, c, x]
        if state.summary is not None:
            features.append(state.summary[:, None].expand(-1, x.shape[1], -1))
        y = self.out_proj(self.dropout(torch.cat(features, -1))).tanh()  # from (B, T, D + M + size)
        return record(self, "", y), weights, AttentiveState(state.memory, cells, state.summary)

    def attend_from_previous(
        self, context_proj: nn.Linear, x: Tensor, state: AttentiveState, mask: Tensor | None
    ) -> DecoderOutputs:
        states = state.cells
        first, *others = self.cells
        if not others and supports_fused(self.attention) and (mask is None or right_padded(mask)):
            visible = None if state.memory.visible is None else state.memory.visible[:, 0, 0]
            memory = AttentionMemory(state.memory.keys[:, 0], state.memory.values[:, 0], visible)
            projections = partial(attention_projections, self.attention, context_proj.weight)
            fused = attentive_recurrence(first, x, memory, projections, states[0], mask)
            if fused is not None:
                h, c, final_state = fused
                return DecoderOutputs(h, c, None, (final_state,))
        outputs: list[Tensor] = []
        contexts: list[Tensor] = []
        step_weights: list[Tensor] = []
        with time_loop():
            for t, x_proj in enumerate(first.project_input(x).unbind(1)):
                c, weights = self.attention(states[-1][0][:, None], state.memory)  # (B, 1, M)
                new_states = [first.recorded_step(x_proj + context_proj(c[:, 0]), states[0])[0]]
                for cell, cell_state in zip(others, states[1:], strict=True):
                    cell_input = cell.project_input(self.dropout(new_states[-1][0]))
                    new_states.append(cell.recorded_step(cell_input, cell_state)[0])
                if mask is None:
                    states = tuple(new_states)
                else:
                    states = where_real(mask[:, t], tuple(new_states), states)
                outputs.append(new_states[-1][0])
                contexts.append(c[:, 0])
                if weights is not None:
                    step_weights.append(weights)
        all_weights = torch.cat(step_weights, 2) if step_weights else None
        return DecoderOutputs(torch.stack(outputs, 1), torch.stack(contexts, 1), all_weights, states)

    def attend_from_current(self, x: Tensor, state: AttentiveState, mask: Tensor | None) -> DecoderOutputs:
        h, states = unroll_layers(self.layers, self.dropout, x, state.cells, mask)
        c, weights = self.attention(h, state.memory)
        return DecoderOutputs(h, c, weights, states)

    def attend_from_word(self, x: Tensor, state: AttentiveState, mask: Tensor | None) -> DecoderOutputs:
        c, weights = self.attention(x, state.memory)
        h, states = unroll_layers(self.layers, self.dropout, torch.cat([x, c], -1), state.cells, mask)
        return DecoderOutputs(h, c, weights, states)


def unroll_layers(
    layers: nn.ModuleList, dropout: Dropout, x: Tensor, states: tuple[State, ...], mask: Tensor | None
) -> tuple[Tensor, tuple[State, ...]]:
    """The last layer's outputs and the final state of each, with dropout between the layers."""
    new_states: list[State] = []
    for layer, state in zip(layers, states, strict=True):
        x, new_state = layer(dropout(x) if new_states else x, state, mask)
        new_states.append(new_state)
    return x, tuple(new_states)


def attention_projections(attention: GlobalAttention, context: Tensor) -> AttentionProjections:
    """The attention weights that the fused loop reads; the query projection is a linear layer."""
    score = attention.score
    # the product of the query projection and the score's matrix
    query = score.project_query(cast(nn.Linear, attention.query).weight.T).T
    vector = score.vector if isinstance(score, Additive) else context.new_empty(0)
    return AttentionProjections(query, context, vector, score.scale or 0.0)


def supports_fused(attention: GlobalAttention) -> bool:
    """Whether the fused loop computes this score and these weights."""
    return (
        type(attention) is GlobalAttention
        and type(attention.score) in (Additive, Dot, ScaledDot, Bilinear)
        and type(attention.weights) is Softmax
        and isinstance(attention.query, nn.Linear)
    )


def with_hidden(cell: Cell, h: Tensor) -> State:
    """The cell's initial state with h replaced; the other entries keep their initial values."""
    state = cell.start(len(h))
    return type(state)(h, *state[1:])


class RNNDecoder(Layer):
    """h₀ = m_n, the encoder's last state;   hₜ = f(hₜ₋₁, xₜ)   [F1, F3]

    `init_from: first` is for an encoder that reads right to left [F2, D-7]. Every layer starts from the same vector; a
    decoder whose size differs from the memory's starts from tanh(W m + b).
    """

    def __init__(
        self,
        size: int,
        memory: int,
        dim: int | None = None,
        cell: Factory[Cell] = LSTM,
        layers: int = 1,
        init_from: InitFrom = "last",
        dropout: float = 0.0,
    ):
        super().__init__()
        dim = dim or memory
        self.dim = dim
        self.init_from = init_from
        self.layers = decoder_layers(cell, size, dim, layers, init_from)
        self.init_proj = nn.Linear(memory, dim) if memory != dim else None
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> tuple[State, ...]:
        if memory is None:
            raise ConfigError(
                "this decoder starts from the encoder's last state: start it with the encoder's outputs"
            )
        h = summarize(memory, self.init_from)
        h = h if self.init_proj is None else self.init_proj(h).tanh()
        return tuple(with_hidden(cast(UnrolledCell, layer).cell, h) for layer in self.layers)

    def forward(
        self, x: Tensor, state: tuple[State, ...] | None = None, mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        return unroll_layers(self.layers, self.dropout, x, state or self.start(len(x)), mask)
