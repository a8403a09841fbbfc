"""The contract of every sequence layer, recurrent, convolutional, mixing or attending: `y, state = layer(x, state, mask)`.

A state is what a layer remembers of the positions before its input, as nested tuples of tensors. In a mask True is a real token or a
visible key; a softmax over visible keys never gives NaN. Besides: the names that parts give their values, the collections that receive
auxiliary losses and random choices, and the cache of a table that many calls read.

Outside `capture` and `change` (`capture.py`) a named value passes unchanged. No part stores its auxiliary losses: outside a collection
they are dropped. Each thread and context has its own recorder and its own collection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError

if TYPE_CHECKING:
    from seqloom.nn.capture import Recorder

Part = TypeVar("Part")
Factory = Callable[..., Part]
"""Builds a part: its class, or a `partial` of it. The parent calls it with the sizes."""

_losses: ContextVar[list[Tensor] | None] = ContextVar("losses", default=None)
_choices: ContextVar[list[Choice] | None] = ContextVar("choices", default=None)
active_recorder: ContextVar[Recorder | None] = ContextVar("recorder", default=None)
State = Any
"""A tree of tuples, lists and dicts whose leaves are tensors, `StateNode`s or plain values; None starts a new
sequence.
"""


class StateNode:
    """A node of a state that is not a tuple and maps its tensors itself."""

    def map_tensors(self, change: Callable[[Tensor], Tensor]) -> StateNode:
        """The same node with `change` applied to its tensors."""
        raise NotImplementedError


def map_state(change: Callable[[Tensor], Tensor], state: State) -> State:
    """The same tree with `change` applied to every tensor."""
    if isinstance(state, Tensor):
        return change(state)
    if isinstance(state, StateNode):
        return state.map_tensors(change)
    if isinstance(state, tuple) and hasattr(state, "_fields"):
        return type(state)(*(map_state(change, part) for part in state))
    if isinstance(state, (tuple, list)):
        return type(state)(map_state(change, part) for part in state)
    if isinstance(state, dict):
        return {name: map_state(change, part) for name, part in state.items()}
    return state


def state_tensors(state: State) -> Iterator[Tensor]:
    """Every tensor of the tree, in order."""
    tensors: list[Tensor] = []

    def collect(tensor: Tensor) -> Tensor:
        tensors.append(tensor)
        return tensor

    map_state(collect, state)
    yield from tensors


class RowSelection:
    """A `change` for `map_state` that selects batch rows.

    A `StateNode` may read `rows` and select without copying its tensors; `cached` computes once what several
    layers share.
    """

    def __init__(self, rows: Tensor):
        self.rows = rows
        self.memo: dict[Hashable, tuple[Any, Any]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.index_select(0, self.rows)

    def cached(self, owner: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """The result of `make` for an `owner` that several layers share, computed once for each key."""
        entry = (id(owner), key)
        if entry not in self.memo:
            self.memo[entry] = owner, make()  # keeps the owner alive, so that its id is not reused
        return self.memo[entry][1]


def select(state: State, rows: Tensor) -> State:
    """The state of the given batch rows, in that order and with repeats, as a beam step needs it."""
    return map_state(RowSelection(rows), state)


def detach(state: State) -> State:
    """The same values, detached from the graph: h_{t-k} has no influence on the gradient at t (D15)."""
    return map_state(Tensor.detach, state)


def where_real(real: Tensor, new: State, old: State) -> State:
    """The new state in the rows where `real` (B,) is True, the old one elsewhere."""
    old_tensors = state_tensors(old)

    def choose(tensor: Tensor) -> Tensor:
        row_mask = real.view(-1, *[1] * (tensor.dim() - 1))
        return torch.where(row_mask, tensor, next(old_tensors))

    return map_state(choose, new)


def with_tensors(state: State, values: list[Tensor]) -> State:
    """The same tree with `values` as its tensors, in the order of `state_tensors`."""
    remaining = iter(values)
    return map_state(lambda _: next(remaining), state)


class Point(NamedTuple):
    """A named value: its letter in the part's equation, and its axes, such as BHTS, one letter for each.

    A gate of a recurrent cell has a role: g "keeps" the old state (g ⊙ h) or "replaces" it ((1 - g) ⊙ h), "writes" to it, or "reads" it.
    """

    symbol: str = ""
    axes: str = ""
    role: Literal["", "keeps", "replaces", "writes", "reads"] = ""


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
    """Raises ConfigError with the message unless the condition holds; constructors check sizes with it."""
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


class Choice(NamedTuple):
    """What a part drew at random for each position of a decoder, for which it has no gradient."""

    log_probs: Tensor  # (B, H, T), ln P of what was drawn
    bonus: Tensor  # (B, H, T), what the objective adds to the reward of the position, such as an entropy


def add_choice(choice: Choice) -> None:
    """Adds what one call of a part drew; dropped if nobody collects it."""
    choices = _choices.get()
    if choices is not None:
        choices.append(choice)


@contextmanager
def collect_choices() -> Iterator[list[Choice]]:
    """Collects what parts draw into the list; the innermost collection receives it."""
    choices: list[Choice] = []
    token = _choices.set(choices)
    try:
        yield choices
    finally:
        _choices.reset(token)


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


def real_lengths(mask: Tensor) -> Tensor:
    """The number of real tokens in each row: (B, T) → (B,)."""
    return mask.sum(1)


def right_padded(mask: Tensor) -> bool:
    """Whether every row is real tokens followed by padding."""
    return bool((mask[:, 1:] <= mask[:, :-1]).all())


def none_if_full(mask: Tensor | None) -> Tensor | None:
    """The mask, or None if it hides nothing, so that callers can skip masking."""
    return None if mask is None or bool(mask.all()) else mask


def real_positions(mask: Tensor) -> Tensor:
    """The index of each real token among the real tokens of its row: (B, T) → (B, T). Padding repeats the
    previous index.
    """
    return (mask.cumsum(1) - 1).clamp(min=0)


def causal_mask(queries: int, keys: int, device: torch.device | None = None) -> Tensor:
    """Query i of the last `queries` sees key j when j ≤ i  [F13]: (T, S)."""
    return torch.ones(queries, keys, dtype=torch.bool, device=device).tril(keys - queries)


def concat_masks(
    past: Tensor | None, past_length: int, mask: Tensor | None, batch: int, length: int, device: torch.device
) -> Tensor | None:
    """The mask of past and present positions together; None if all are real."""
    if past is None and mask is None:
        return None
    if past is None:
        past = torch.ones(batch, past_length, dtype=torch.bool, device=device)
    if mask is None:
        mask = torch.ones(batch, length, dtype=torch.bool, device=device)
    return torch.cat([past, mask], 1) if past_length else mask


def masked_softmax(scores: Tensor, visible: Tensor | None) -> Tensor:
    """α = exp(s) / Σ exp(s) over the visible keys; all zeros if none is visible. Overwrites `scores`."""
    return scores.softmax(-1) if visible is None else MaskedSoftmax.apply(scores, visible)


class MaskedSoftmax(torch.autograd.Function):
    """The softmax over visible keys. A hidden key has weight 0, so the softmax's gradient for it is 0 as
    well, without a second mask.
    """

    @staticmethod
    def forward(ctx: Any, scores: Tensor, visible: Tensor) -> Tensor:
        weights = scores.masked_fill_(~visible, float("-inf")).softmax(-1)
        empty_rows = ~visible.any(-1, keepdim=True)
        if not empty_rows.is_meta and empty_rows.any():
            weights.masked_fill_(empty_rows, 0)
        ctx.save_for_backward(weights)
        return weights

    @staticmethod
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        (weights,) = ctx.saved_tensors
        return torch._softmax_backward_data(grad_output, weights, -1, weights.dtype), None


def left_align(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """x and its mask with each row's real tokens first, and the order that restores the outputs, None if
    nothing moved.
    """
    if mask is None or right_padded(mask):
        return x, mask, None
    order = real_first_order(x, mask, False)
    return gather_steps(x, order), mask.gather(1, order), order.argsort(1)


def gather_steps(x: Tensor, order: Tensor | None) -> Tensor:
    """The steps of x (B, S, D) at the indices `order` (B, T): (B, T, D)."""
    return x if order is None else x.gather(1, order[..., None].expand(-1, -1, x.shape[-1]))


def real_first_order(x: Tensor, mask: Tensor | None, backward: bool) -> Tensor:
    """The order in which a direction reads the positions: real tokens first, padding last: (B, T)."""
    batch, length, _ = x.shape
    position = torch.arange(length, device=x.device).expand(batch, length)
    key = length - 1 - position if backward else position
    if mask is not None:
        key = torch.where(mask, key, length + position)
    return key.argsort(1)
