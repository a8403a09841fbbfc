"""States: what a layer remembers of the positions before its input, as nested tuples of tensors."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

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
