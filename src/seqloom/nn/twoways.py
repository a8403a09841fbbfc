"""Two recurrent stacks over one text that never meet, one in each direction, and all their layers as one vector: ELMo's."""

from __future__ import annotations

from torch import Tensor, cat, nn

from seqloom.nn.cells import LSTM, Cell
from seqloom.nn.dropout import Dropout
from seqloom.nn.layer import Layer, Make, Memory, need
from seqloom.nn.layermix import LayerMix
from seqloom.nn.recurrent import RNN
from seqloom.nn.state import State


class TwoWays(Layer):
    """h→ₗ = RNN→(h→ₗ₋₁),   h←ₗ = RNN←(h←ₗ₋₁),   h₀ = x,   y = mix([x; x], [h→₁; h←₁], …, [h→_L; h←_L])   [I10, D7]

    Neither direction sees the other, at no depth, so each is a language model of its own; `RNN` with both directions lets them meet between
    its layers. With `residual` layers after the first add what they read.
    """

    causal = False

    def __init__(
        self,
        size: int,
        layers: int = 2,
        cell: Make[Cell] = LSTM,
        residual: bool = True,
        dropout: float = 0.0,
        mix: Make[LayerMix] = LayerMix,
    ):
        super().__init__()
        need(layers > 0, f"two ways need at least one layer, not {layers}")
        self.dim, self.depth = 2 * size, layers + 1
        self.ahead, self.back = (
            nn.ModuleList(
                RNN(size, size, cell, direction=way, residual=residual and number > 0)
                for number in range(layers)
            )
            for way in ("forward", "backward")
        )
        self.mix, self.dropout = mix(layers + 1), Dropout(dropout)

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return tuple(tuple(layer.start(batch) for layer in way) for way in (self.ahead, self.back))

    def walk(
        self, way: nn.ModuleList, x: Tensor, state: State, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """x and the outputs of each layer of one direction, and its state."""
        levels, after = [x], []
        for layer, before in zip(way, state, strict=True):
            h, now = layer(self.dropout(levels[-1]) if after else x, before, mask)
            levels.append(h)
            after.append(now)
        return levels, tuple(after)

    def levels(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """[h→; h←] of each layer and their mixture with [x; x], (B, T, 2 D) each, and the state."""
        both = zip((self.ahead, self.back), state or self.start(x.shape[0]), strict=True)
        (ahead, first), (back, second) = (self.walk(way, x, before, mask) for way, before in both)
        pairs = [cat(pair, -1) for pair in zip(ahead, back, strict=True)]
        return [*pairs[1:], self.mix(pairs)], (first, second)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        levels, state = self.levels(x, state, mask)
        return levels[-1], state
