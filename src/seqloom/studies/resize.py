"""Systems of one size: every width of a config multiplied alike, until the model has the wanted parameters."""

from __future__ import annotations

from typing import Any

import torch

from seqloom import config
from seqloom.run import Config

STEP = 8  # widths stay multiples of it, so that heads divide them
LEAST, MOST = 1 / 32, 64.0
VOCABULARY = 4000  # where the tokenizer's config names no size


def scale_dims(tree: Any, factor: float) -> Any:
    """A copy of the tree with each `dim` times the factor."""
    if isinstance(tree, dict):
        return {
            key: max(STEP, STEP * round(value * factor / STEP))
            if key == "dim" and isinstance(value, int)
            else scale_dims(value, factor)
            for key, value in tree.items()
        }
    return [scale_dims(value, factor) for value in tree] if isinstance(tree, list) else tree


def count(tree: config.Tree) -> int:
    """The parameters of a config's model, without making it."""
    with torch.device("meta"):
        model = Config(tree).model(int(tree["tokenizer"].get("size", VOCABULARY)))
    return sum(parameter.numel() for parameter in model.parameters())


def resize(tree: config.Tree, parameters: float) -> config.Tree:
    """The config whose model comes nearest to so many parameters; depth, heads and all else stay."""

    def at(factor: float) -> config.Tree:
        return {**tree, "model": scale_dims(tree["model"], factor)}

    low, high = LEAST, MOST
    if not count(at(low)) <= parameters <= count(at(high)):
        raise ValueError(
            f"parameters={parameters:g}: this system has from {count(at(low)):,} to {count(at(high)):,}; choose within"
        )
    for _ in range(24):
        middle = (low * high) ** 0.5
        low, high = (middle, high) if count(at(middle)) < parameters else (low, middle)
    return min((at(low), at(high)), key=lambda one: abs(count(one) - parameters))
