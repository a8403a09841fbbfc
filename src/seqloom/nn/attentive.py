"""A recurrent decoder that attends: the cell, the pooling and the output are parts of their own."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.nn.attending import attending, fits
from seqloom.nn.attention import Pooling
from seqloom.nn.dropout import Dropout
from seqloom.nn.fast import fast
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.linear import Linear
from seqloom.nn.recurrent import LSTM, Cell, Direction
from seqloom.nn.state import State, merge
from seqloom.nn.thought import Read, begun, thought

Looked = tuple[Tensor, Tensor, Tensor | None, tuple]
"""States h (B, T, D), contexts c (B, T, M), weights (B, 1, T, S) in the plain form, and the cells' states after."""


class Attending(NamedTuple):
    """What an attentive decoder remembers: the memory as its attention keeps it, the states of its cells, the thought (B, M) if it is used."""

    memory: State
    cells: tuple
    thought: Tensor | None = None


class AttentiveRNN(Layer):
    """A recurrent decoder that looks at the memory at each step   [F4, F8, D-8]

    cₜ = Σⱼ αₜⱼ mⱼ,  αₜ = softmaxⱼ s(query, mⱼ);   yₜ = tanh(W' [hₜ; cₜ; xₜ]);   h₀ = tanh(W₀ mean(m))

    query: previous (Bahdanau et al.)   hₜ₋₁ asks, hₜ = f(hₜ₋₁, W xₜ + C cₜ)
           current (Luong et al.)       hₜ asks, hₜ = f(hₜ₋₁, W xₜ)
           word                         xₜ, the embedding of the word itself, asks, hₜ = f(hₜ₋₁, W [xₜ; cₜ])   [F6]

    `read` takes h₀ from the last or first of the memory instead of the mean; with `thought` that vector reaches every output,
    yₜ = tanh(W' [hₜ; cₜ; xₜ; thought])   [F7]. Only the first query needs a loop over time;
    where it can, that is a compiled one (nn/attending.py).
    """

    def __init__(
        self,
        size: int,
        memory: int,
        dim: int | None = None,
        cell: Make[Cell] = LSTM,
        layers: int = 1,
        attention: Make[Pooling] = Pooling,
        dropout: float = 0.0,
        query: Literal["previous", "current", "word"] = "previous",
        read: Read = "mean",
        thought: bool = False,
    ):
        super().__init__()
        dim = dim or size
        need(
            layers > 0 and dim > 0,
            f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        need(
            query in ("previous", "current", "word"),
            f"query must be previous, current or word, not {query!r}",
        )
        need(read in ("last", "first", "mean"), f"read must be last, first or mean, not {read!r}")
        self.dim, self.query, self.read, self.thought = dim, query, read, thought
        first = size + memory if query == "word" else size
        self.layers = nn.ModuleList(
            Direction(cell(dim if number else first, dim)) for number in range(layers)
        )
        self.attention = attention(size if query == "word" else dim, memory)
        self.context_share = (
            nn.Linear(memory, self.cells[0].width, bias=False) if query == "previous" else None
        )
        self.first = Linear(memory, dim)
        self.last = Linear(dim + memory + size + (memory if thought else 0), dim)
        self.dropout = Dropout(dropout)

    @property
    def cells(self) -> list[Cell]:
        return [layer.cell for layer in self.layers]

    def start(self, batch: int, memory: Memory | None = None) -> Attending:
        need(
            memory is not None,
            "an attentive decoder needs a memory to look at: start it with the encoder's outputs",
        )
        vector = thought(memory, self.read)
        h = self.first(vector).tanh()
        return Attending(
            self.attention.start(memory),
            tuple(begun(cell, h) for cell in self.cells),
            vector if self.thought else None,
        )

    def forward(self, x: Tensor, state: Attending, mask: Tensor | None = None) -> tuple[Tensor, Attending]:
        y, _, state = self.look(x, state, mask)
        return y, state

    def look(
        self, x: Tensor, state: Attending, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Attending]:
        """The outputs, the weights (B, 1, T, S) where the plain form is on [F14], and the state."""
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.dim), None, state
        h, c, weights, cells = {"previous": self.previous, "current": self.current, "word": self.word}[
            self.query
        ](x, state, mask)
        parts = (
            [h, c, x]
            if state.thought is None
            else [h, c, x, state.thought[:, None].expand(-1, x.shape[1], -1)]
        )
        y = self.last(self.dropout(torch.cat(parts, -1))).tanh()  # from (B, T, D + M + size)
        return y, weights, Attending(state.memory, cells, state.thought)

    def previous(self, x: Tensor, state: Attending, mask: Tensor | None) -> Looked:
        states, (first, *others) = state.cells, self.cells
        if (
            fast()
            and x.shape[1] > 1
            and not others
            and fits(self.attention, first, x, state.memory, states[0], mask)
        ):
            h, c, after = attending(
                self.attention, first, self.context_share.weight, x, state.memory, states[0], mask
            )
            return h, c, None, (after,)
        outputs, contexts, weights = [], [], []
        for t, share in enumerate(first.inputs(x).unbind(1)):
            c, weight = self.attention(states[-1][0][:, None], state.memory)  # (B, 1, M)
            after = [first.step(share + self.context_share(c[:, 0]), states[0])]
            for cell, before in zip(others, states[1:], strict=True):
                after.append(cell.step(cell.inputs(self.dropout(after[-1][0])), before))
            states = tuple(after) if mask is None else merge(mask[:, t], tuple(after), states)
            outputs.append(after[-1][0])
            contexts.append(c[:, 0])
            weights.append(weight)
        weight = None if weights[0] is None else torch.cat(weights, 2)
        return torch.stack(outputs, 1), torch.stack(contexts, 1), weight, states

    def current(self, x: Tensor, state: Attending, mask: Tensor | None) -> Looked:
        h, states = self.unroll(x, state.cells, mask)
        return h, *self.attention(h, state.memory), states

    def word(self, x: Tensor, state: Attending, mask: Tensor | None) -> Looked:
        c, weights = self.attention(x, state.memory)
        h, states = self.unroll(torch.cat([x, c], -1), state.cells, mask)
        return h, c, weights, states

    def unroll(self, x: Tensor, states: tuple, mask: Tensor | None) -> tuple[Tensor, tuple]:
        after = []
        for layer, before in zip(self.layers, states, strict=True):
            x, now = layer(self.dropout(x) if after else x, before, mask)
            after.append(now)
        return x, tuple(after)
