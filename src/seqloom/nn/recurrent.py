"""Recurrent layers. The cell, its unrolling, the direction and the depth are separate parts: any cell works with all of
them [D13].

The cells are in cells.py, the compiled loop over time is in fused/recurrence.py.
"""

from __future__ import annotations

from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.fused.recurrence import RecurrentDropout, recurrence
from seqloom.nn.basic import Dropout
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
    real_first_order,
    record,
    recording,
    require,
    right_padded,
    where_real,
)

Gates = dict[str, Tensor]


class UnrolledCell(HasPoints):
    """A cell unrolled over time, left to right or right to left: y = (h₁, …, h_T).

    Variational dropout: the products read m ⊙ hₜ₋₁ / (1 - p), with one mask m for all steps of a call (Gal and
    Ghahramani). Zoneout: each entry of the state keeps its value with probability p, s = m ⊙ sₜ₋₁ + (1 - m) ⊙ s̃ₜ, with
    a new m for each step; evaluation uses p in place of m (Krueger et al.).
    """

    points: ClassVar[Points] = {"": Point("y", "BTD")}

    def __init__(self, cell: Cell, backward: bool = False, variational: float = 0.0, zoneout: float = 0.0):
        super().__init__()
        require(0 <= zoneout < 1, f"zoneout must be at least 0 and below 1, not {zoneout}")
        self.cell = cell
        self.backward = backward
        self.zoneout = zoneout
        self.drop = Dropout(variational)

    def forward(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]:
        y, _, state = self.run(x, state, mask, return_gates=False)
        return y, state

    def forward_with_gates(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, Gates, State]:
        """The outputs, every gate's values (B, T, D), undefined at padding, and the state, by the plain loop."""
        return self.run(x, state, mask, return_gates=True)

    def run(
        self, x: Tensor, state: State, mask: Tensor | None, return_gates: bool
    ) -> tuple[Tensor, Gates, State]:
        if x.shape[1] == 0:
            return x.new_zeros(x.shape[0], 0, self.cell.dim), {}, state
        order = None
        if self.backward or (mask is not None and not right_padded(mask)):
            order = real_first_order(x, mask, self.backward)
            x = x.gather(1, order[..., None].expand_as(x))
            mask = None if mask is None else mask.gather(1, order)
        dropout = self.sample_dropout(x, state)
        gates: Gates = {}
        fused = None
        if not return_gates:
            fused_unroll = self.cell.fused_unroll
            if fused_enabled() and x.shape[1] > 1 and fused_unroll is not None and not dropout:
                fused = fused_unroll(x, state, mask)
            else:
                fused = recurrence(self.cell, x, state, mask, dropout)
        if fused is not None:
            y, state = fused
        else:
            with time_loop(order):
                y, gates, state = self.unroll(x, state, mask, dropout, return_gates)
        if order is not None:
            inverse = order.argsort(1)[..., None]
            y = y.gather(1, inverse.expand_as(y))
            gates = {name: gate.gather(1, inverse.expand_as(gate)) for name, gate in gates.items()}
        return record(self, "", y), gates, state

    def sample_dropout(self, x: Tensor, state: State) -> RecurrentDropout:
        if not self.training:
            return RecurrentDropout(zoneout=self.zoneout)
        zoneout: Tensor | float = 0.0
        if self.zoneout:
            uniform = torch.rand(len(state), x.shape[1], *state[0].shape, device=x.device)
            zoneout = (uniform < self.zoneout).to(x.dtype)
        h_mask = self.drop(torch.ones_like(state[0])) if self.drop.rate else None
        return RecurrentDropout(h_mask, zoneout)

    def unroll(
        self, x: Tensor, state: State, mask: Tensor | None, dropout: RecurrentDropout, return_gates: bool
    ) -> tuple[Tensor, Gates, State]:
        """The plain loop. At padding the state does not change and the output is 0."""
        outputs: list[Tensor] = []
        step_gates: list[Gates] = []
        for t, x_proj in enumerate(self.cell.project_input(x).unbind(1)):
            if return_gates or dropout.h_mask is not None:
                h_in = state[0] if dropout.h_mask is None else state[0] * dropout.h_mask
                step_gates.append(self.cell.gates(x_proj, state, h_in))
                new_state = self.cell.update(step_gates[-1], state)
            elif recording():
                new_state, _ = self.cell.recorded_step(x_proj, state)
            else:
                new_state = self.cell.step(x_proj, state)
            if dropout.has_zoneout:
                old = torch.stack(tuple(state))  # (S, B, D)
                new = torch.stack(tuple(new_state))
                keep = dropout.zoneout_at(t, old)
                new_state = type(state)(*(keep * old + (1 - keep) * new))
            outputs.append(new_state[0] if mask is None else new_state[0] * mask[:, t, None])
            state = new_state if mask is None else where_real(mask[:, t], new_state, state)
        gates: Gates = {}
        if return_gates:
            gates = {name: torch.stack([step[name] for step in step_gates], 1) for name in step_gates[0]}
        return torch.stack(outputs, 1), gates, state


class RNN(Layer):
    """Layers of a cell over time: layer l reads layer l-1's hₜ [D5]; right to left or both directions, [h→; h←] [D7];
    y = x + h with `residual` [D6]. Only left to right is causal.

    `dropout` is applied between the layers, with a new mask at each step; `variational` to each layer's input and to
    the h that its products read, with one mask for all steps of a call; `zoneout` to the state (see `UnrolledCell`).
    """

    points: ClassVar[Points] = {"output": Point("[h→; h←] or h of a layer, + x if residual", "BTD")}

    def __init__(
        self,
        size: int,
        dim: int | None = None,
        cell: Factory[Cell] = LSTM,
        layers: int = 1,
        direction: Literal["forward", "backward", "both"] = "forward",
        residual: bool = False,
        dropout: float = 0.0,
        variational: float = 0.0,
        zoneout: float = 0.0,
    ):
        super().__init__()
        dim = dim or size
        directions = {"forward": [False], "backward": [True], "both": [False, True]}
        require(direction in directions, f"direction must be forward, backward or both, not {direction!r}")
        require(
            layers > 0 and dim > 0,
            f"an RNN needs at least one layer and one unit, not {layers} layers of {dim}",
        )
        self.dim = dim * len(directions[direction])
        self.causal = direction == "forward"
        self.residual = residual
        self.depth = layers
        in_dims = [size] + [self.dim] * (layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                UnrolledCell(cell(in_dim, dim), backward, variational, zoneout)
                for backward in directions[direction]
            )
            for in_dim in in_dims
        )
        self.dropout = Dropout(dropout)
        self.variational = Dropout(variational)

    @property
    def unrolled_cells(self) -> list[list[UnrolledCell]]:
        """The cells of each layer, one for each direction."""
        return [[cast(UnrolledCell, cell) for cell in cast(nn.ModuleList, layer)] for layer in self.layers]

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(tuple(unrolled.cell.start(batch) for unrolled in layer) for layer in self.unrolled_cells)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        y, _, state = self.run(x, state, mask, return_gates=False)
        return y, state

    def forward_with_gates(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[Tensor, list[list[Gates]], State]:
        """The outputs, the gates of each layer and direction by name, each (B, T, D), and the state [D18]."""
        return self.run(x, state, mask, return_gates=True)

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        outputs: list[Tensor] = []
        _, _, state = self.run(x, state, mask, return_gates=False, hidden_states=outputs)
        return outputs, state

    def run(
        self,
        x: Tensor,
        state: State,
        mask: Tensor | None,
        return_gates: bool,
        hidden_states: list[Tensor] | None = None,
    ) -> tuple[Tensor, list[list[Gates]], State]:
        """Appends each layer's output to `hidden_states` if a list is passed."""
        state = state or self.start(x.shape[0])
        gates: list[list[Gates]] = []
        new_states: list[tuple[State, ...]] = []
        for index, (layer, layer_states) in enumerate(zip(self.unrolled_cells, state, strict=True)):
            layer_input = self.dropout(x) if index else x
            if self.training and self.variational.rate:
                layer_input = layer_input * self.variational(torch.ones_like(layer_input[:, :1]))
            results = [
                unrolled.run(layer_input, cell_state, mask, return_gates)
                for unrolled, cell_state in zip(layer, layer_states, strict=True)
            ]
            y = torch.cat([y for y, _, _ in results], -1) if len(results) > 1 else results[0][0]
            x = x + y if self.residual and x.shape == y.shape else y
            x = record(self, f"output.{index}", x)
            if hidden_states is not None:
                hidden_states.append(x)
            gates.append([cell_gates for _, cell_gates, _ in results])
            new_states.append(tuple(cell_state for _, _, cell_state in results))
        return x, gates, tuple(new_states)
