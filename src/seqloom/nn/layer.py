"""The interface of every sequence layer: recurrent, convolutional, mixing or attention."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from torch import Tensor, nn

from seqloom.nn.state import State

Part = TypeVar("Part")
Factory = Callable[..., Part]
"""Builds a part: its class, or a `partial` of it. The parent calls it with the sizes."""


class Memory(NamedTuple):
    """The encoder's outputs, to which a decoder attends."""

    values: Tensor  # (B, S, D)
    mask: Tensor | None  # (B, S), True = real token


class Layer(nn.Module):
    """y, state = layer(x, state, mask)        (B, T, D) → (B, T, D')

    `state` holds what the layer needs of the positions before `x`; None starts a new sequence. `mask` (B, T) is True
    at real tokens; padding may be anywhere, changes no other position and does not change the state. A causal layer
    gives the same outputs and the same final state however the time axis is split into calls; a layer that is not
    causal takes the full sequence in one call.
    """

    dim: int  # the width of y
    causal: bool = True
    context: int | None = None  # the largest number of positions, None if unlimited
    depth: int = 1  # number of layers inside

    def start(self, batch: int, memory: Memory | None = None) -> State:
        """The state before the first position; in a decoder it includes the projected memory."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        raise NotImplementedError

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """The outputs of each of its `depth` layers, of which the last is y, and the state."""
        y, state = self(x, state, mask)
        return [y], state


def require(condition: bool, message: str) -> None:
    """Raises ValueError with the message unless the condition holds; constructors check their sizes with it."""
    if not condition:
        raise ValueError(message)
