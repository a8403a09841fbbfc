"""Sequences of layers, and a residual path around a layer."""

from __future__ import annotations

import inspect

from torch import Tensor, nn

from seqloom.nn.basic import Dropout, LayerNorm, Norm
from seqloom.nn.layer import Factory, Layer, Memory, require
from seqloom.nn.state import State


class Chain(Layer):
    """y = layer_n(… layer₁(x)): recurrence, attention, convolution and mixtures in any order, `repeat` times over.

    Causal if all its layers are. With a memory, every layer that takes one gets it.
    """

    def __init__(self, size: int, layers: list[Factory[Layer]], repeat: int = 1, memory: int | None = None):
        super().__init__()
        require(len(layers) > 0 and repeat > 0, "a chain needs at least one layer, once")
        self.layers = nn.ModuleList()
        for make in layers * repeat:
            takes_memory = memory is not None and "memory" in inspect.signature(make).parameters
            layer = make(size, memory=memory) if takes_memory else make(size)
            require(
                isinstance(layer, Layer), f"{type(layer).__name__} is not a Layer; Chain takes layers only"
            )
            self.layers.append(layer)
            size = layer.dim
        self.dim, self.causal = size, all(layer.causal for layer in self.layers)
        self.depth = sum(layer.depth for layer in self.layers)
        self.context = min((layer.context for layer in self.layers if layer.context), default=None)

    def start(self, batch: int, memory: Memory | None = None) -> tuple[State, ...]:
        return tuple(layer.start(batch, memory) for layer in self.layers)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        after = []
        for layer, before in zip(self.layers, state or self.start(x.shape[0]), strict=True):
            x, now = layer(x, before, mask)
            after.append(now)
        return x, tuple(after)

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        outputs, after = [x], []
        for layer, before in zip(self.layers, state or self.start(x.shape[0]), strict=True):
            inside, now = layer.hidden_states(outputs[-1], before, mask)
            outputs += inside
            after.append(now)
        return outputs[1:], tuple(after)


class Residual(Layer):
    """y = x + layer(norm(x))   [G3]: any layer whose output is as wide as its input on a residual path."""

    def __init__(
        self, size: int, layer: Factory[Layer], norm: Factory[Norm] = LayerNorm, dropout: float = 0.0
    ):
        super().__init__()
        self.layer, self.norm, self.dropout = layer(size), norm(size), Dropout(dropout)
        self.dim, self.causal, self.context = size, self.layer.causal, self.layer.context
        require(
            self.layer.dim == size,
            f"a residual path needs a layer as wide as its input: {self.layer.dim} is not {size}",
        )

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return self.layer.start(batch, memory)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        y, state = self.layer(self.norm(x), state, mask)
        return x + self.dropout(y), state
