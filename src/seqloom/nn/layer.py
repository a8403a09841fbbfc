"""The contract of every sequence layer, recurrent, convolutional, mixing or attending; the names that parts give their values; the
collection that receives auxiliary losses; and the cache of a table that many calls read.

Outside `capture` and `change` (`capture.py`) a named value passes unchanged. No part stores its auxiliary losses: outside a collection
they are dropped. Each thread and context has its own recorder and its own collection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.nn.state import State

if TYPE_CHECKING:
    from seqloom.nn.capture import Recorder

Part = TypeVar("Part")
Factory = Callable[..., Part]
"""Builds a part: its class, or a `partial` of it. The parent calls it with the sizes."""

_losses: ContextVar[list[Tensor] | None] = ContextVar("losses", default=None)
active_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)


class Point(NamedTuple):
    """A named value: its letter in the part's equation, and its axes, such as BHTS, one letter for each."""

    symbol: str = ""
    axes: str = ""


Points = Mapping[str, Point]


class HasPoints(nn.Module):
    """A part that names its values. `points` lists them; "" is the value that is called by the part's path alone. Values that differ by a
    number, such as `output.0` and `output.1`, have one point, `output`."""

    points: ClassVar[Points] = {}
    reads_memory: ClassVar[bool] = False  # whether its `weights` are attention to an encoder's outputs


def recording() -> bool:
    """Whether somebody wants values; parts then compute those that they would skip."""
    return active_recorder.get() is not None


def record(part: HasPoints, name: str, value: Tensor) -> Tensor:
    """Names a value that a part has computed, and returns it, or what a change makes of it."""
    recorder = active_recorder.get()
    if recorder is None:
        return value
    point = part.points.get(name) or part.points.get(name.partition(".")[0], Point())
    return recorder(part, name, value, point)


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


class Memo:
    """Caches the most recently requested table."""

    def __init__(self) -> None:
        self.last: tuple[Hashable, Any] = (None, None)

    def __call__(self, key: Hashable, make: Callable[[], Any]) -> Any:
        last_key, value = self.last
        if last_key != key:
            # an inference tensor could not be used in training later
            with torch.inference_mode(False), torch.no_grad():
                value = make()
            self.last = (key, value)
        return value


def next_power_of_two(length: int) -> int:
    """The next power of two, at least 64: a growing sequence needs a new table only when its length has
    doubled.
    """
    return 1 << max(6, (length - 1).bit_length())
