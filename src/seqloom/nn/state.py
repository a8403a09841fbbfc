"""State: what a layer remembers of the positions before its input.

A state is a tree: tuples, lists, dicts and NamedTuples of tensors, ints and None. Tensors have the batch in front. A state is an
argument and a result, never an attribute, so the functions here are all that generation, beam search and truncated BPTT need.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
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


def tensors(state: State) -> Iterator[Tensor]:
    """Every tensor of the tree, in order."""
    found: list[Tensor] = []
    map_state(lambda tensor: found.append(tensor) or tensor, state)
    yield from found


def select(state: State, rows: Tensor) -> State:
    """The state of the given batch rows, in that order, repeats allowed: one beam step."""
    return map_state(lambda tensor: tensor.index_select(0, rows), state)


def detach(state: State) -> State:
    """The same values, cut off from the graph: h_{t-k} has no influence on the gradient at t (D15)."""
    return map_state(Tensor.detach, state)


def merge(real: Tensor, new: State, old: State) -> State:
    """The new state in the rows where `real` (B,) holds, the old one elsewhere."""
    before = tensors(old)
    return map_state(lambda tensor: torch.where(real.view(-1, *[1] * (tensor.dim() - 1)), tensor, next(before)), new)


def fill(state: State, values: list[Tensor]) -> State:
    """The same tree holding `values` in the order of `tensors`."""
    rest = iter(values)
    return map_state(lambda _: next(rest), state)
