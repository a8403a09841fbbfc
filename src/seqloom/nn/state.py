"""State: what a layer remembers of the positions before its input.

A state is a tree: tuples, lists, dicts and NamedTuples of tensors, ints and None. Tensors have the batch in front. A state is an
argument and a result, never an attribute, so the functions here are all that generation, beam search and truncated BPTT need.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch import Tensor

State = Any


def map_state(change: Callable[[Tensor], Tensor], state: State) -> State:
    """The same tree with `change` applied to every tensor. A node with a `map_tensors` of its own does it itself."""
    if isinstance(state, Tensor):
        return change(state)
    if hasattr(state, "map_tensors"):
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
    found: list[Tensor] = []
    map_state(lambda tensor: found.append(tensor) or tensor, state)
    yield from found


class RowSelection:
    """The change that picks batch rows. A node that maps itself may look at `rows` and do so without touching its tensors; what several
    layers would make alike is made `cached`."""

    def __init__(self, rows: Tensor):
        self.rows = rows
        self.memo: dict[Hashable, tuple[Any, Any]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        return tensor.index_select(0, self.rows)

    def cached(self, owner: Any, key: Hashable, make: Callable[[], Any]) -> Any:
        """What is made of the `owner`, one object shared by layers, under the key."""
        place = (id(owner), key)
        if place not in self.memo:
            self.memo[place] = owner, make()  # the owner is held so that its id stays its own
        return self.memo[place][1]


def select(state: State, rows: Tensor) -> State:
    """The state of the given batch rows, in that order, repeats allowed: one beam step."""
    return map_state(RowSelection(rows), state)


def detach(state: State) -> State:
    """The same values, cut off from the graph: h_{t-k} has no influence on the gradient at t (D15)."""
    return map_state(Tensor.detach, state)


def where_real(real: Tensor, new: State, old: State) -> State:
    """The new state in the rows where `real` (B,) holds, the old one elsewhere."""
    before = state_tensors(old)
    return map_state(
        lambda tensor: torch.where(real.view(-1, *[1] * (tensor.dim() - 1)), tensor, next(before)), new
    )


def with_tensors(state: State, values: list[Tensor]) -> State:
    """The same tree holding `values` in the order of `tensors`."""
    rest = iter(values)
    return map_state(lambda _: next(rest), state)
