"""Encoder-decoder through one vector: all that the decoder knows of the source is the thought it starts from."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.nn.dropout import Dropout
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.recurrent import LSTM, Cell, Direction
from seqloom.nn.state import State

Read = Literal["last", "first", "mean"]


def thought(memory: Memory, read: Read) -> Tensor:
    """The memory as one vector: at the last real token, where an encoder that reads left to right ends; at the first, where one that
    reads right to left does; or the mean. 0 where there is no token: (B, S, M) → (B, M)."""
    values, mask = memory
    batch, length, size = values.shape
    mask = torch.ones(batch, length, dtype=torch.bool, device=values.device) if mask is None else mask
    if read == "mean":
        real = mask.to(values.dtype)
        return torch.einsum("bsm,bs->bm", values, real) / real.sum(1, keepdim=True).clamp(min=1)
    if not length:
        return values.new_zeros(batch, size)
    place = torch.arange(length, device=values.device)
    chosen = (
        torch.where(mask, place, -1).amax(1)
        if read == "last"
        else torch.where(mask, place, length - 1).amin(1)
    )  # (B,)
    vector = values.gather(1, chosen.clamp(min=0)[:, None, None].expand(-1, 1, size))[:, 0]
    return vector.masked_fill(~mask.any(1, keepdim=True), 0)


def begun(cell: Cell, h: Tensor) -> State:
    """The cell's first state with h in its place; what else it remembers starts as ever."""
    state = cell.start(len(h))
    return type(state)(h, *state[1:])


class ThoughtRNN(Layer):
    """h₀ = m_n, the encoder's last state;   hₜ = f(hₜ₋₁, xₜ)   [F1, F3]

    `read: first` takes the thought of an encoder that reads right to left [F2, D-7]. Every layer starts from it; a decoder of another
    size than the memory's starts from tanh(W m + b).
    """

    def __init__(
        self,
        size: int,
        memory: int,
        dim: int | None = None,
        cell: Make[Cell] = LSTM,
        layers: int = 1,
        read: Read = "last",
        dropout: float = 0.0,
    ):
        super().__init__()
        dim = dim or memory
        need(
            layers > 0 and dim > 0,
            f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        need(read in ("last", "first", "mean"), f"read must be last, first or mean, not {read!r}")
        self.dim, self.read = dim, read
        self.layers = nn.ModuleList(Direction(cell(dim if number else size, dim)) for number in range(layers))
        self.first = nn.Linear(memory, dim) if memory != dim else None
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> tuple[State, ...]:
        need(
            memory is not None,
            "this decoder starts from the encoder's thought: start it with the encoder's outputs",
        )
        h = thought(memory, self.read)
        h = h if self.first is None else self.first(h).tanh()
        return tuple(begun(layer.cell, h) for layer in self.layers)

    def forward(
        self, x: Tensor, state: tuple[State, ...], mask: Tensor | None = None
    ) -> tuple[Tensor, tuple[State, ...]]:
        after = []
        for layer, before in zip(self.layers, state, strict=True):
            x, now = layer(self.dropout(x) if after else x, before, mask)
            after.append(now)
        return x, tuple(after)
