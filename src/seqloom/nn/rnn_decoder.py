"""A recurrent decoder that attends: the cell, the pooling and the output are parts of their own."""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.fused.attentive_recurrence import AttentionMemory, AttentionProjections, attentive_recurrence
from seqloom.nn import mask as masks
from seqloom.nn.attention_core import attend
from seqloom.nn.basic import Dropout, Linear
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import Factory, Layer, Memory, require
from seqloom.nn.pool import InitFrom, summarize
from seqloom.nn.recurrent import UnrolledCell
from seqloom.nn.score import Additive, AttentionWeights, Bilinear, Dot, ScaledDot, Score, Softmax
from seqloom.nn.state import State, where_real


class GlobalAttentionState(NamedTuple):
    """The memory as GlobalAttention reads it: keys (B, 1, S, K), the memory itself (B, 1, S, M), its mask (B, 1, 1, S)."""

    keys: Tensor
    values: Tensor
    visible: Tensor | None


class GlobalAttention(nn.Module):
    """c = Σⱼ αⱼ mⱼ,   α = softmaxⱼ s(W_Q h, W_K mⱼ)   [F4, F9]: one head that averages the memory itself, for recurrent
    decoders.

    Without `project`, h and m are used as they are, as in α = h·m [F5]; their sizes must then be equal.
    """

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
        require(
            project or size == memory == (dim or size),
            f"without projections a query of {size} cannot be compared with a memory of {memory}: make them equal",
        )
        self.query = nn.Linear(size, dim or size, bias=False) if project else nn.Identity()
        self.key = Linear(memory, dim or size) if project else nn.Identity()
        self.score, self.weights = score(dim or size), weights()

    def start(self, memory: Memory) -> GlobalAttentionState:
        return GlobalAttentionState(
            self.key(memory.values)[:, None],
            memory.values[:, None],
            None if memory.mask is None else memory.mask[:, None, None],
        )

    def forward(self, h: Tensor, state: GlobalAttentionState) -> tuple[Tensor, Tensor | None]:
        """(B, T, D) → the context (B, T, M) and, in the plain form, the weights (B, 1, T, S)."""
        c, weights = attend(
            self.query(h)[:, None], *state[:2], self.score, state.visible, weights=self.weights
        )
        return c[:, 0], weights


DecoderOutputs = tuple[Tensor, Tensor, Tensor | None, tuple]


class AttentiveState(NamedTuple):
    """What an attentive decoder remembers: the memory as its attention keeps it, the states of its cells, the thought (B, M) if it is used."""

    memory: State
    cells: tuple
    summary: Tensor | None = None


"""States h (B, T, D), contexts c (B, T, M), weights (B, 1, T, S) in the plain form, and the cells' states after."""


class AttentiveRNN(Layer):
    """A recurrent decoder that attends to the memory at each step   [F4, F8, D-8]

    cₜ = Σⱼ αₜⱼ mⱼ,  αₜ = softmaxⱼ s(query, mⱼ);   yₜ = tanh(W' [hₜ; cₜ; xₜ]);   h₀ = tanh(W₀ mean(m))

    query: previous (Bahdanau et al.)   hₜ₋₁ asks, hₜ = f(hₜ₋₁, W xₜ + C cₜ)
           current (Luong et al.)       hₜ asks, hₜ = f(hₜ₋₁, W xₜ)
           word                         xₜ, the embedding of the word itself, asks, hₜ = f(hₜ₋₁, W [xₜ; cₜ])   [F6]

    `init_from` takes h₀ from the last or first of the memory instead of the mean; with `summary` that vector reaches every output,
    yₜ = tanh(W' [hₜ; cₜ; xₜ; summary])   [F7]. Only the first query needs a loop over time;
    where it can, that is a compiled one (fused/attentive_recurrence.py).
    """

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
            layers > 0 and dim > 0,
            f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        require(
            query in ("previous", "current", "word"),
            f"query must be previous, current or word, not {query!r}",
        )
        require(
            init_from in ("last", "first", "mean"),
            f"init_from must be last, first or mean, not {init_from!r}",
        )
        self.dim, self.query, self.init_from, self.summary = dim, query, init_from, summary
        first = size + memory if query == "word" else size
        self.layers = nn.ModuleList(
            UnrolledCell(cell(dim if number else first, dim)) for number in range(layers)
        )
        self.attention = attention(size if query == "word" else dim, memory)
        self.context_proj = (
            nn.Linear(memory, self.cells[0].width, bias=False) if query == "previous" else None
        )
        self.init_proj = Linear(memory, dim)
        self.out_proj = Linear(dim + memory + size + (memory if summary else 0), dim)
        self.dropout = Dropout(dropout)

    @property
    def cells(self) -> list[Cell]:
        return [layer.cell for layer in self.layers]

    def start(self, batch: int, memory: Memory | None = None) -> AttentiveState:
        require(
            memory is not None,
            "an attentive decoder needs a memory: start it with the encoder's outputs",
        )
        vector = summarize(memory, self.init_from)
        h = self.init_proj(vector).tanh()
        return AttentiveState(
            self.attention.start(memory),
            tuple(with_hidden(cell, h) for cell in self.cells),
            vector if self.summary else None,
        )

    def forward(
        self, x: Tensor, state: AttentiveState, mask: Tensor | None = None
    ) -> tuple[Tensor, AttentiveState]:
        y, _, state = self.forward_with_weights(x, state, mask)
        return y, state

    def forward_with_weights(
        self, x: Tensor, state: AttentiveState, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, AttentiveState]:
        """The outputs, the weights (B, 1, T, S) if the plain form is used [F14], and the state."""
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.dim), None, state
        h, c, weights, cells = {"previous": self.previous, "current": self.current, "word": self.word}[
            self.query
        ](x, state, mask)
        parts = (
            [h, c, x]
            if state.summary is None
            else [h, c, x, state.summary[:, None].expand(-1, x.shape[1], -1)]
        )
        y = self.out_proj(self.dropout(torch.cat(parts, -1))).tanh()  # from (B, T, D + M + size)
        return y, weights, AttentiveState(state.memory, cells, state.summary)

    def previous(self, x: Tensor, state: AttentiveState, mask: Tensor | None) -> DecoderOutputs:
        states, (first, *others) = state.cells, self.cells
        if not others and supports_fused(self.attention) and (mask is None or masks.right_padded(mask)):
            visible = None if state.memory.visible is None else state.memory.visible[:, 0, 0]
            memory = AttentionMemory(state.memory.keys[:, 0], state.memory.values[:, 0], visible)
            projections = partial(attention_projections, self.attention, self.context_proj.weight)
            fused = attentive_recurrence(first, x, memory, projections, states[0], mask)
            if fused is not None:
                h, c, after = fused
                return h, c, None, (after,)
        outputs, contexts, weights = [], [], []
        for t, x_proj in enumerate(first.project_input(x).unbind(1)):
            c, weight = self.attention(states[-1][0][:, None], state.memory)  # (B, 1, M)
            after = [first.step(x_proj + self.context_proj(c[:, 0]), states[0])]
            for cell, before in zip(others, states[1:], strict=True):
                after.append(cell.step(cell.project_input(self.dropout(after[-1][0])), before))
            states = tuple(after) if mask is None else where_real(mask[:, t], tuple(after), states)
            outputs.append(after[-1][0])
            contexts.append(c[:, 0])
            weights.append(weight)
        weight = None if weights[0] is None else torch.cat(weights, 2)
        return torch.stack(outputs, 1), torch.stack(contexts, 1), weight, states

    def current(self, x: Tensor, state: AttentiveState, mask: Tensor | None) -> DecoderOutputs:
        h, states = self.unroll(x, state.cells, mask)
        return h, *self.attention(h, state.memory), states

    def word(self, x: Tensor, state: AttentiveState, mask: Tensor | None) -> DecoderOutputs:
        c, weights = self.attention(x, state.memory)
        h, states = self.unroll(torch.cat([x, c], -1), state.cells, mask)
        return h, c, weights, states

    def unroll(self, x: Tensor, states: tuple, mask: Tensor | None) -> tuple[Tensor, tuple]:
        after = []
        for layer, before in zip(self.layers, states, strict=True):
            x, now = layer(self.dropout(x) if after else x, before, mask)
            after.append(now)
        return x, tuple(after)


def attention_projections(attention: GlobalAttention, context: Tensor) -> AttentionProjections:
    """The weights of the attention that the fused loop reads."""
    score = attention.score
    # the score's own matrix and the query projection in one
    query = score.project_query(attention.query.weight.T).T
    vector = score.vector if isinstance(score, Additive) else context.new_empty(0)
    return AttentionProjections(query, context, vector, score.scale or 0.0)


def supports_fused(attention: GlobalAttention) -> bool:
    """Whether the fused loop computes this score and these weights."""
    return (
        type(attention.score) in (Additive, Dot, ScaledDot, Bilinear)
        and type(attention.weights) is Softmax
        and isinstance(attention.query, torch.nn.Linear)
    )


def with_hidden(cell: Cell, h: Tensor) -> State:
    """The cell's first state with h in its place; the rest of the state keeps its initial value."""
    state = cell.start(len(h))
    return type(state)(h, *state[1:])


class RNNDecoder(Layer):
    """h₀ = m_n, the encoder's last state;   hₜ = f(hₜ₋₁, xₜ)   [F1, F3]

    `init_from: first` takes the thought of an encoder that reads right to left [F2, D-7]. Every layer starts from it; a decoder of another
    size than the memory's starts from tanh(W m + b).
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
        require(
            layers > 0 and dim > 0,
            f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        require(
            init_from in ("last", "first", "mean"),
            f"init_from must be last, first or mean, not {init_from!r}",
        )
        self.dim, self.init_from = dim, init_from
        self.layers = nn.ModuleList(
            UnrolledCell(cell(dim if number else size, dim)) for number in range(layers)
        )
        self.init_proj = nn.Linear(memory, dim) if memory != dim else None
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> tuple[State, ...]:
        require(
            memory is not None,
            "this decoder starts from the encoder's last state: start it with the encoder's outputs",
        )
        h = summarize(memory, self.init_from)
        h = h if self.init_proj is None else self.init_proj(h).tanh()
        return tuple(with_hidden(layer.cell, h) for layer in self.layers)

    def forward(
        self, x: Tensor, state: tuple[State, ...], mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        after = []
        for layer, before in zip(self.layers, state, strict=True):
            x, now = layer(self.dropout(x) if after else x, before, mask)
            after.append(now)
        return x, tuple(after)
