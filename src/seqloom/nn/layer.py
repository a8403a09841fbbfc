"""The contract of every sequence layer, recurrent, convolutional, mixing or attending; and the collection
that receives auxiliary losses.

No part stores these: outside a collection they are dropped. Each thread and context has its own collection.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import NamedTuple, TypeVar

from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.nn.capture import HasPoints
from seqloom.nn.state import State

Part = TypeVar("Part")
Factory = Callable[..., Part]
"""Builds a part: its class, or a `partial` of it. The parent calls it with the sizes."""

_losses: ContextVar[list[Tensor] | None] = ContextVar("losses", default=None)


class Memory(NamedTuple):
    """The encoder's outputs, to which a decoder attends."""

    values: Tensor  # (B, S, D)
    mask: Tensor | None  # (B, S), True = real token


class Layer(HasPoints):
    """y, state = layer(x, state, mask)        (B, T, D) → (B, T, D')

    `state` holds what the layer needs of the positions before `x`; None starts a new sequence. `mask` (B, T)
    is True at real tokens; padding may be anywhere, changes no other position and does not change the state.
    A causal layer gives the same outputs and the same final state however the time axis is split into calls;
    a layer that is not causal takes the full sequence in one call.
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
    """Raises ValueError with the message unless the condition holds; constructors check sizes with it."""
    if not condition:
        raise ConfigError(message)


def collecting_losses() -> bool:
    """Whether auxiliary losses are being collected."""
    return _losses.get() is not None


def add_aux_loss(loss: Tensor) -> None:
    """Adds one loss per call of a part, a mean over tokens; the objective multiplies it by its number of
    tokens.
    """
    losses = _losses.get()
    if losses is not None:
        losses.append(loss)


@contextmanager
def collect_aux_losses() -> Iterator[list[Tensor]]:
    """Collects the losses that parts add into the list; the innermost collection receives them."""
    losses: list[Tensor] = []
    token = _losses.set(losses)
    try:
        yield losses
    finally:
        _losses.reset(token)
