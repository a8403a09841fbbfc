"""Recurrent layers. The cell, its unrolling, the direction and the depth are separate parts: any cell works in all of them [D13].

cells.py has the cells, fused/recurrence.py the compiled loop over time.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.fused.dispatch import fused_enabled
from seqloom.fused.recurrence import RecurrentDropout, recurrence
from seqloom.nn import mask as masks
from seqloom.nn.basic import Dropout
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import Factory, Layer, Memory, require
from seqloom.nn.mask import real_first_order
from seqloom.nn.state import State, where_real

Gates = dict[str, Tensor]


class UnrolledCell(nn.Module):
    """A cell unrolled over time, left to right or right to left: y = (h₁, …, h_T).

    Variational dropout: the products read m ⊙ hₜ₋₁ / (1 - p), with one mask m for all steps of a call (Gal and
    Ghahramani). Zoneout: each entry of the state keeps its value with probability p, s = m ⊙ sₜ₋₁ + (1 - m) ⊙ s̃ₜ, with
    a new m for each step; evaluation uses p in place of m (Krueger et al.).
    """

    def __init__(self, cell: Cell, backward: bool = False, variational: float = 0.0, zoneout: float = 0.0):
        super().__init__()
        require(0 <= zoneout < 1, f"zoneout must be at least 0 and below 1, not {zoneout}")
        self.cell, self.backward, self.zoneout = cell, backward, zoneout
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
        if self.backward or (mask is not None and not masks.right_padded(mask)):
            order = real_first_order(x, mask, self.backward)
            x = x.gather(1, order[..., None].expand_as(x))
            mask = None if mask is None else mask.gather(1, order)
        noise, gates = self.sample_dropout(x, state), {}
        fused = None
        if not return_gates:
            if fused_enabled() and x.shape[1] > 1 and self.cell.fused_unroll and not noise:
                fused = self.cell.fused_unroll(x, state, mask)
            else:
                fused = recurrence(self.cell, x, state, mask, noise)
        if fused is not None:
            y, state = fused
        else:
            y, gates, state = self.unroll(x, state, mask, noise, return_gates)
        if order is not None:
            back = order.argsort(1)[..., None]
            y, gates = (
                y.gather(1, back.expand_as(y)),
                {name: g.gather(1, back.expand_as(g)) for name, g in gates.items()},
            )
        return y, gates, state

    def sample_dropout(self, x: Tensor, state: State) -> RecurrentDropout:
        if not self.training:
            return RecurrentDropout(zoneout=self.zoneout)
        zone: Tensor | float = 0.0
        if self.zoneout:
            zone = (torch.rand(len(state), x.shape[1], *state[0].shape, device=x.device) < self.zoneout).to(
                x.dtype
            )
        return RecurrentDropout(self.drop(torch.ones_like(state[0])) if self.drop.rate else None, zone)

    def unroll(
        self, x: Tensor, state: State, mask: Tensor | None, noise: RecurrentDropout, return_gates: bool
    ) -> tuple[Tensor, Gates, State]:
        """The plain loop. At padding the state does not change and the output is 0."""
        outputs, values = [], []
        for t, x_proj in enumerate(self.cell.project_input(x).unbind(1)):
            if return_gates or noise.h_mask is not None:
                values.append(
                    self.cell.gates(
                        x_proj, state, state[0] if noise.h_mask is None else state[0] * noise.h_mask
                    )
                )
                after = self.cell.update(values[-1], state)
            else:
                after = self.cell.step(x_proj, state)
            if noise.has_zoneout:
                old, new = torch.stack(tuple(state)), torch.stack(tuple(after))  # (S, B, D)
                zone = noise.zoneout_at(t, old)
                after = type(state)(*(zone * old + (1 - zone) * new))
            outputs.append(after[0] if mask is None else after[0] * mask[:, t, None])
            state = after if mask is None else where_real(mask[:, t], after, state)
        gates = (
            {name: torch.stack([value[name] for value in values], 1) for name in values[0]}
            if return_gates
            else {}
        )
        return torch.stack(outputs, 1), gates, state


class RNN(Layer):
    """Layers of a cell over time: layer l reads layer l-1's hₜ [D5]; right to left or both directions, [h→; h←] [D7]; y = x + h with
    `residual` [D6]. Only left to right is causal.

    `dropout` is applied between the layers, with a new mask at each step; `variational` to each layer's input and to
    the h that its products read, with one mask for all steps of a call; `zoneout` to the state (see `UnrolledCell`).
    """

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
        self.dim, self.causal, self.residual, self.depth = (
            dim * len(directions[direction]),
            direction == "forward",
            residual,
            layers,
        )
        sizes = [size] + [self.dim] * (layers - 1)
        self.layers = nn.ModuleList(
            nn.ModuleList(
                UnrolledCell(cell(s, dim), backward, variational, zoneout)
                for backward in directions[direction]
            )
            for s in sizes
        )
        self.dropout, self.variational = Dropout(dropout), Dropout(variational)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(tuple(direction.cell.start(batch) for direction in layer) for layer in self.layers)

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
        """Appends each layer's output to `hidden_states` if it is given."""
        state, gates, after = state or self.start(x.shape[0]), [], []
        for index, (layer, before) in enumerate(zip(self.layers, state, strict=True)):
            read = self.dropout(x) if index else x
            if self.training and self.variational.rate:
                read = read * self.variational(torch.ones_like(read[:, :1]))
            results = [
                direction.run(read, s, mask, return_gates) for direction, s in zip(layer, before, strict=True)
            ]
            y = torch.cat([y for y, _, _ in results], -1) if len(results) > 1 else results[0][0]
            x = x + y if self.residual and x.shape == y.shape else y
            if hidden_states is not None:
                hidden_states.append(x)
            gates.append([g for _, g, _ in results])
            after.append(tuple(s for _, _, s in results))
        return x, gates, tuple(after)
