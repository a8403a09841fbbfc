"""Sequences of layers, and a residual path around a layer."""

from __future__ import annotations

import inspect
from typing import cast

from torch import Tensor, nn

from seqloom.nn.basic import Dropout, LayerNorm, Norm
from seqloom.nn.layer import Factory, Layer, Memory, State, require


class Chain(Layer):
    """y = layer_n(… layer₁(x)): recurrence, attention, convolution and mixing in any order, `repeat` times.

    Causal if all its layers are. Every layer whose constructor has a parameter `memory` receives the memory's size.
    """

    def __init__(self, size: int, layers: list[Factory[Layer]], repeat: int = 1, memory: int | None = None):
        super().__init__()
        require(len(layers) > 0 and repeat > 0, "a chain needs at least one layer and repeat at least 1")
        self.layers = nn.ModuleList()
        for make in layers * repeat:
            takes_memory = memory is not None and "memory" in inspect.signature(make).parameters
            layer = make(size, memory=memory) if takes_memory else make(size)
            message = f"{type(layer).__name__} is not a Layer; Chain takes layers only"
            require(isinstance(layer, Layer), message)
            self.layers.append(layer)
            size = layer.dim
        self.dim = size
        self.causal = all(layer.causal for layer in self.chained_layers)
        self.depth = sum(layer.depth for layer in self.chained_layers)
        self.context = min((layer.context for layer in self.chained_layers if layer.context), default=None)

    @property
    def chained_layers(self) -> list[Layer]:
        return [cast(Layer, layer) for layer in self.layers]

    def start(self, batch: int, memory: Memory | None = None) -> tuple[State, ...]:
        return tuple(layer.start(batch, memory) for layer in self.chained_layers)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        new_states: list[State] = []
        for layer, layer_state in zip(self.layers, state or self.start(x.shape[0]), strict=True):
            x, new_state = layer(x, layer_state, mask)
            new_states.append(new_state)
        return x, tuple(new_states)

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        outputs = [x]
        new_states: list[State] = []
        for layer, layer_state in zip(self.chained_layers, state or self.start(x.shape[0]), strict=True):
            layer_outputs, new_state = layer.hidden_states(outputs[-1], layer_state, mask)
            outputs += layer_outputs
            new_states.append(new_state)
        return outputs[1:], tuple(new_states)


class Residual(Layer):
    """y = x + layer(norm(x))   [G3]: a residual path around any layer whose output is as wide as its input."""

    def __init__(
        self, size: int, layer: Factory[Layer], norm: Factory[Norm] = LayerNorm, dropout: float = 0.0
    ):
        super().__init__()
        self.layer = layer(size)
        self.norm = norm(size)
        self.dropout = Dropout(dropout)
        self.dim = size
        self.causal = self.layer.causal
        self.context = self.layer.context
        require(
            self.layer.dim == size,
            f"a residual path needs a layer as wide as its input: {self.layer.dim} is not {size}",
        )

    def start(self, batch: int, memory: Memory | None = None) -> State:
        return self.layer.start(batch, memory)

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        y, state = self.layer(self.norm(x), state, mask)
        return x + self.dropout(y), state
