"""Deep recurrent stacks: fast-forward connections, a mixture of layers, and two separate directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, cat, nn

from seqloom.nn.basic import Dropout
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import Factory, Layer, Memory, require
from seqloom.nn.recurrent import RNN, UnrolledCell
from seqloom.nn.state import State


class FastForward(Layer):
    """f₁ = W₁ x,   fₗ = Wₗ [fₗ₋₁; hₗ₋₁],   hₗ = cell over time of fₗ,   y = [f_L; h_L]   (Deep-Att, Zhou et al.)   [L2]

    There is no recurrence and no nonlinearity between f₁ and f_L, so the gradient reaches every depth. With both
    directions, two stacks start in opposite directions and reverse at every layer.
    """

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        layers: int = 4,
        cell: Factory[Cell] = LSTM,
        direction: Literal["forward", "both"] = "forward",
        dropout: float = 0.0,
    ):
        super().__init__()
        dim = dim or size
        require(direction in ("forward", "both"), f"direction must be forward or both, not {direction!r}")
        require(
            layers > 0 and dim > 0,
            f"a fast-forward stack needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        columns = 1 if direction == "forward" else 2
        self.dim, self.causal = 2 * dim * columns, direction == "forward"
        turns = [
            [not self.causal and (number + column) % 2 == 1 for number in range(layers)]
            for column in range(columns)
        ]
        self.stacks = nn.ModuleList(
            nn.ModuleList(UnrolledCell(cell(dim, dim), back) for back in column) for column in turns
        )
        self.inputs = nn.ModuleList(
            nn.ModuleList(nn.Linear(2 * dim if number else size, dim) for number in range(layers))
            for _ in range(columns)
        )
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(tuple(way.cell.start(batch) for way in column) for column in self.stacks)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        outputs, after = [], []
        for column, inputs, before in zip(
            self.stacks, self.inputs, state or self.start(x.shape[0]), strict=True
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


class ScalarMix(nn.Module):
    """y = γ Σₗ softmax(a)ₗ hₗ   [I10]

    (Peters et al.) At first the plain mean. `Layer.hidden_states` gives the h of a stack's layers, each (B, T, D).
    """

    def __init__(self, layers: int):
        super().__init__()
        require(layers > 0, f"a mixture needs at least one layer, not {layers}")
        self.scalars, self.gamma = nn.Parameter(torch.zeros(layers)), nn.Parameter(torch.ones(()))

    def forward(self, levels: Sequence[Tensor]) -> Tensor:
        require(
            len(levels) == len(self.scalars),
            f"this mixture is of {len(self.scalars)} layers, not {len(levels)}",
        )
        widths = [level.shape[-1] for level in levels]
        require(len(set(widths)) == 1, f"layers of widths {widths} cannot be mixed: make them equal")
        shares = self.gamma * self.scalars.softmax(0)
        return sum(share * level for share, level in zip(shares.unbind(), levels, strict=True))


class SeparateBiRNN(Layer):
    """h→ₗ = RNN→(h→ₗ₋₁),   h←ₗ = RNN←(h←ₗ₋₁),   h₀ = x,   y = mix([x; x], [h→₁; h←₁], …, [h→_L; h←_L])   [I10, D7]

    Neither direction sees the other at any depth, so each is a language model of its own; `RNN` with both directions
    concatenates them between its layers. With `residual`, layers after the first add their input to their output.
    """

    causal = False

    def __init__(
        self,
        size: int,
        layers: int = 2,
        cell: Factory[Cell] = LSTM,
        residual: bool = True,
        dropout: float = 0.0,
        mix: Factory[ScalarMix] = ScalarMix,
    ):
        super().__init__()
        require(layers > 0, f"two ways need at least one layer, not {layers}")
        self.dim, self.depth = 2 * size, layers + 1
        self.forward_layers, self.backward_layers = (
            nn.ModuleList(
                RNN(size, size, cell, direction=way, residual=residual and number > 0)
                for number in range(layers)
            )
            for way in ("forward", "backward")
        )
        self.mix, self.dropout = mix(layers + 1), Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(
            tuple(layer.start(batch) for layer in way) for way in (self.forward_layers, self.backward_layers)
        )

    def run_direction(
        self, way: nn.ModuleList, x: Tensor, state: State, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """x and the outputs of each layer of one direction, and its state."""
        levels, after = [x], []
        for layer, before in zip(way, state, strict=True):
            h, now = layer(self.dropout(levels[-1]) if after else x, before, mask)
            levels.append(h)
            after.append(now)
        return levels, tuple(after)

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """[h→; h←] of each layer and their mixture with [x; x], (B, T, 2 D) each, and the state."""
        both = zip((self.forward_layers, self.backward_layers), state or self.start(x.shape[0]), strict=True)
        (ahead, first), (back, second) = (self.run_direction(way, x, before, mask) for way, before in both)
        pairs = [cat(pair, -1) for pair in zip(ahead, back, strict=True)]
        return [*pairs[1:], self.mix(pairs)], (first, second)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        levels, state = self.hidden_states(x, state, mask)
        return levels[-1], state
