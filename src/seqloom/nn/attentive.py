"""A recurrent decoder that attends: the cell, the pooling and the output are parts of their own."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqloom.nn.attention import Pooling
from seqloom.nn.dropout import Dropout
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.recurrent import LSTM, Cell
from seqloom.nn.state import State, merge


class Attending(NamedTuple):
    """What an attentive decoder remembers: the memory as its attention keeps it, and the states of its cells."""

    memory: State
    cells: tuple


class AttentiveRNN(Layer):
    """A recurrent decoder that looks back at the memory before each step (Bahdanau et al.)   [F4, F8, D-8: the previous state asks]

    cₜ = Σⱼ αₜⱼ mⱼ,  αₜ = softmaxⱼ s(hₜ₋₁, mⱼ);   hₜ = f(hₜ₋₁, W xₜ + C cₜ);   yₜ = tanh(W' [hₜ; cₜ; xₜ]);   h₀ = tanh(W₀ mean(m))
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
    ):
        super().__init__()
        dim = dim or size
        need(layers > 0 and dim > 0, f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}")
        self.dim = dim
        self.cells = nn.ModuleList(cell(dim if number else size, dim) for number in range(layers))
        self.attention = attention(dim, memory)
        self.context_share = nn.Linear(memory, self.cells[0].width, bias=False)
        self.first = nn.Linear(memory, dim)
        self.last = nn.Linear(dim + memory + size, dim)
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> Attending:
        need(memory is not None, "an attentive decoder needs a memory to look at: start it with the encoder's outputs")
        values = memory.values
        real = values.new_ones(values.shape[:2]) if memory.mask is None else memory.mask.to(values.dtype)
        mean = torch.einsum("bsm,bs->bm", values, real) / real.sum(1, keepdim=True).clamp(min=1)
        h = self.first(mean).tanh()
        cells = tuple(type(state)(h, *state[1:]) for state in (cell.start(batch) for cell in self.cells))
        return Attending(self.attention.start(memory), cells)

    def forward(self, x: Tensor, state: Attending, mask: Tensor | None = None) -> tuple[Tensor, Attending]:
        y, _, state = self.look(x, state, mask)
        return y, state

    def look(self, x: Tensor, state: Attending, mask: Tensor | None = None) -> tuple[Tensor, Tensor | None, Attending]:
        """The outputs, the weights (B, 1, T, S) where the plain form is on, and the state."""
        memory, states = state
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.dim), None, state
        outputs, contexts, weights = [], [], []
        for t, share in enumerate(self.cells[0].inputs(x).unbind(1)):
            c, weight = self.attention(states[-1][0][:, None], memory)  # (B, 1, M)
            share, after = share + self.context_share(c[:, 0]), []
            for cell, before in zip(self.cells, states, strict=True):
                after.append(cell.step(cell.inputs(self.dropout(after[-1][0])) if after else share, before))
            states = tuple(after) if mask is None else merge(mask[:, t], tuple(after), states)
            outputs.append(after[-1][0])
            contexts.append(c[:, 0])
            weights.append(weight)
        h = torch.cat([torch.stack(outputs, 1), torch.stack(contexts, 1), x], -1)  # (B, T, D + M + size)
        y = self.last(self.dropout(h)).tanh()
        return y, None if weights[0] is None else torch.cat(weights, 2), Attending(memory, states)
