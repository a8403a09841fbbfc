"""The contract that every sequence layer keeps: recurrent, convolutional, mixing or attending."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from torch import Tensor, nn

from seqloom.nn.state import State

Part = TypeVar("Part")
Factory = Callable[..., Part]
"""What makes a part: its class, or a `partial` of it. The parent calls it with the sizes."""


class Memory(NamedTuple):
    """What a decoder looks at: the encoder's outputs."""

    values: Tensor  # (B, S, D)
    mask: Tensor | None  # (B, S), True = real token


class Layer(nn.Module):
    """y, state = layer(x, state, mask)        (B, T, D) → (B, T, D')

    `state` is what the layer remembers of the positions before `x`; None is a fresh start. `mask` (B, T) is True at real tokens;
    padding may stand anywhere, changes no other position and leaves the state as it was. A causal layer gives the same outputs and
    the same final state however the time axis is cut into calls; one that is not causal takes a sequence whole.
    """

    dim: int  # the width of y
    causal: bool = True
    context: int | None = None  # the most positions it can take; None is any number
    depth: int = 1  # how many layers it is made of

    def start(self, batch: int, memory: Memory | None = None) -> State:
        """The state before the first position; a decoder puts what it needs of the memory into it."""
        raise NotImplementedError

    def forward(self, x: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        raise NotImplementedError

    def hidden_states(
        self, x: Tensor, state: State = None, mask: Tensor | None = None
    ) -> tuple[list[Tensor], State]:
        """The outputs of each of its layers, `depth` of them, y the last, and the state. One layer has one."""
        y, state = self(x, state, mask)
        return [y], state


def require(condition: bool, sentence: str) -> None:
    """Sizes that do not fit are found in constructors, as one sentence for the user."""
    if not condition:
        raise ValueError(sentence)
