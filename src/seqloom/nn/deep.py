"""Depth for recurrent stacks: fast-forward connections around each recurrence, and a residual path around any layer."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.dropout import Dropout
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.norm import LayerNorm, Norm
from seqloom.nn.recurrent import Direction
from seqloom.nn.state import State


class FastForward(Layer):
    """f₁ = W₁ x,   fₗ = Wₗ [fₗ₋₁; hₗ₋₁],   hₗ = cell over time of fₗ,   y = [f_L; h_L]   (Deep-Att, Zhou et al.)   [L2]

    Between f₁ and f_L stands no recurrence and no nonlinearity: the gradient reaches every depth. Read both ways, two columns begin in
    opposite directions and turn round at every layer.
    """

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        layers: int = 4,
        cell: Make[Cell] = LSTM,
        direction: Literal["forward", "both"] = "forward",
        dropout: float = 0.0,
    ):
        super().__init__()
        dim = dim or size
        need(direction in ("forward", "both"), f"direction must be forward or both, not {direction!r}")
        need(
            layers > 0 and dim > 0,
            f"a fast-forward stack needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        columns = 1 if direction == "forward" else 2
        self.dim, self.causal = 2 * dim * columns, direction == "forward"
        turns = [
            [not self.causal and (number + column) % 2 == 1 for number in range(layers)]
            for column in range(columns)
        ]
        self.columns = nn.ModuleList(
            nn.ModuleList(Direction(cell(dim, dim), back) for back in column) for column in turns
        )
        self.inputs = nn.ModuleList(
            nn.ModuleList(nn.Linear(2 * dim if number else size, dim) for number in range(layers))
            for _ in range(columns)
        )
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(tuple(way.cell.start(batch) for way in column) for column in self.columns)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        outputs, after = [], []
        for column, inputs, before in zip(
            self.columns, self.inputs, state or self.start(x.shape[0]), strict=True
        ):
            y, now = x, []
            for way, linear, one in zip(column, inputs, before, strict=True):
                f = linear(self.dropout(y) if now else y)
                h, then = way(f, one, mask)
                y = torch.cat([f, h], -1)
                now.append(then)
            outputs.append(y)
            after.append(tuple(now))
        return torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0], tuple(after)


class Residual(Layer):
    """y = x + layer(norm(x))   [G3]: any layer of its input's width on a residual path."""

    def __init__(self, size: int, layer: Make[Layer], norm: Make[Norm] = LayerNorm, dropout: float = 0.0):
        super().__init__()
        self.layer, self.norm, self.dropout = layer(size), norm(size), Dropout(dropout)
        self.dim, self.causal, self.context = size, self.layer.causal, self.layer.context
        need(
            self.layer.dim == size,
            f"a residual path needs a layer as wide as its input: {self.layer.dim} is not {size}",
        )

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return self.layer.start(batch, memory)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        y, state = self.layer(self.norm(x), state, mask)
        return x + self.dropout(y), state
