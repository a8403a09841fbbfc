"""Deep recurrent stacks: fast-forward connections, a mixture of layers, and two separate directions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from seqloom.nn.basic import Dropout
from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.layer import Factory, Layer, Memory, Point, Points, State, record, require
from seqloom.nn.recurrent import RNN, UnrolledCell


class FastForward(Layer):
    """f₁ = W₁ x,   fₗ = Wₗ [fₗ₋₁; hₗ₋₁],   hₗ = cell over time of fₗ,   y = [f_L; h_L]   [L2]

    The fast-forward connections of Deep-Att (Zhou et al.).

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
        stacks = 1 if direction == "forward" else 2
        self.dim = 2 * dim * stacks
        self.causal = direction == "forward"
        backward = [
            [not self.causal and (layer + stack) % 2 == 1 for layer in range(layers)]
            for stack in range(stacks)
        ]
        self.stacks = nn.ModuleList(
            nn.ModuleList(UnrolledCell(cell(dim, dim), is_backward) for is_backward in stack)
            for stack in backward
        )
        self.inputs = nn.ModuleList(
            nn.ModuleList(nn.Linear(2 * dim if layer else size, dim) for layer in range(layers))
            for _ in range(stacks)
        )
        self.dropout = Dropout(dropout)

    @property
    def stack_layers(self) -> list[list[tuple[nn.Linear, UnrolledCell]]]:
        """The layers of each stack, each a product and the unrolled cell that reads it."""
        return [
            [
                (cast(nn.Linear, linear), cast(UnrolledCell, unrolled))
                for linear, unrolled in zip(
                    cast(nn.ModuleList, linears), cast(nn.ModuleList, cells), strict=True
                )
            ]
            for linears, cells in zip(self.inputs, self.stacks, strict=True)
        ]

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(
            tuple(unrolled.cell.start(batch) for _, unrolled in stack) for stack in self.stack_layers
        )

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        outputs: list[Tensor] = []
        new_states: list[tuple[State, ...]] = []
        for stack, stack_states in zip(self.stack_layers, state or self.start(x.shape[0]), strict=True):
            y = x
            new_stack_states: list[State] = []
            for (linear, unrolled), cell_state in zip(stack, stack_states, strict=True):
                f = linear(self.dropout(y) if new_stack_states else y)
                h, new_state = unrolled(f, cell_state, mask)
                y = torch.cat([f, h], -1)
                new_stack_states.append(new_state)
            outputs.append(y)
            new_states.append(tuple(new_stack_states))
        return torch.cat(outputs, -1) if len(outputs) > 1 else outputs[0], tuple(new_states)


class ScalarMix(nn.Module):
    """y = γ Σₗ softmax(a)ₗ hₗ   [I10]

    The mixture of layers of ELMo (Peters et al.), initialised to the mean. `Layer.hidden_states` returns the h of a
    stack's layers, each (B, T, D).
    """

    def __init__(self, layers: int):
        super().__init__()
        require(layers > 0, f"a mixture needs at least one layer, not {layers}")
        self.scalars = nn.Parameter(torch.zeros(layers))
        self.gamma = nn.Parameter(torch.ones(()))

    def forward(self, hidden_states: Sequence[Tensor]) -> Tensor:
        require(
            len(hidden_states) == len(self.scalars),
            f"ScalarMix was built for {len(self.scalars)} layers, not {len(hidden_states)}",
        )
        widths = [h.shape[-1] for h in hidden_states]
        require(len(set(widths)) == 1, f"layers of widths {widths} cannot be mixed: make them equal")
        weights = self.gamma * self.scalars.softmax(0)
        terms = (weight * h for weight, h in zip(weights.unbind(), hidden_states, strict=True))
        return cast(Tensor, sum(terms))


class SeparateBiRNN(Layer):
    """h→ₗ = RNN→(h→ₗ₋₁),   h←ₗ = RNN←(h←ₗ₋₁),   h₀ = x,   y = mix([x; x], [h→₁; h←₁], …, [h→_L; h←_L])   [I10, D7]

    Neither direction sees the other at any depth, so each is a language model of its own; `RNN` with both directions
    concatenates them between its layers. With `residual`, layers after the first add their input to their output.
    """

    points: ClassVar[Points] = {"output": Point("[x; x] or [h→; h←] of a layer", "BTD")}
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
        require(layers > 0, f"SeparateBiRNN needs at least one layer, not {layers}")
        self.dim = 2 * size
        self.depth = layers + 1

        def stack(direction: Literal["forward", "backward"]) -> nn.ModuleList:
            return nn.ModuleList(
                RNN(size, size, cell, direction=direction, residual=residual and layer > 0)
                for layer in range(layers)
            )

        self.forward_layers = stack("forward")
        self.backward_layers = stack("backward")
        self.mix = mix(layers + 1)
        self.dropout = Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(
            tuple(cast(RNN, layer).start(batch) for layer in layers)
            for layers in (self.forward_layers, self.backward_layers)
        )

    def run_direction(
        self, layers: nn.ModuleList, x: Tensor, state: State, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """x and the outputs of each layer of one direction, and its state."""
        outputs = [x]
        new_states: list[State] = []
        for layer, layer_state in zip(layers, state, strict=True):
            h, new_state = layer(self.dropout(outputs[-1]) if new_states else x, layer_state, mask)
            outputs.append(h)
            new_states.append(new_state)
        return outputs, tuple(new_states)

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """[h→; h←] of each layer and their mixture with [x; x], (B, T, 2 D) each, and the state."""
        forward_state, backward_state = state or self.start(x.shape[0])
        forward_outputs, forward_state = self.run_direction(self.forward_layers, x, forward_state, mask)
        backward_outputs, backward_state = self.run_direction(self.backward_layers, x, backward_state, mask)
        pairs = [
            record(self, f"output.{level}", torch.cat(pair, -1))
            for level, pair in enumerate(zip(forward_outputs, backward_outputs, strict=True))
        ]
        return [*pairs[1:], self.mix(pairs)], (forward_state, backward_state)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        outputs, state = self.hidden_states(x, state, mask)
        return outputs[-1], state
