"""Systems of equal size: multiplies every width of a config by one factor until the model has the given number of parameters."""

from __future__ import annotations

from typing import Any

import torch

from seqloom import config_tree
from seqloom.errors import UserError
from seqloom.run_config import Config

STEP = 8  # widths stay multiples of it, so that the heads divide them
MIN_FACTOR, MAX_FACTOR = 1 / 32, 64.0
DEFAULT_VOCABULARY = 4000  # if the tokenizer's config has no size


def scale_dims(tree: Any, factor: float) -> Any:
    """A copy of the tree in which each option called `dim` is multiplied by the factor."""
    if isinstance(tree, list):
        return [scale_dims(item, factor) for item in tree]
    if not isinstance(tree, dict):
        return tree
    result = {}
    for key, value in tree.items():
        if key == "dim" and isinstance(value, int):
            result[key] = max(STEP, STEP * round(value * factor / STEP))
        else:
            result[key] = scale_dims(value, factor)
    return result


def count(tree: config_tree.Tree, vocabulary: int | None = None) -> int:
    """The number of parameters of a config's model, which is built without memory."""
    with torch.device("meta"):
        model = Config(tree).model(vocabulary or int(tree["tokenizer"].get("size", DEFAULT_VOCABULARY)))
    return sum(parameter.numel() for parameter in model.parameters())


def resize(tree: config_tree.Tree, parameters: float, vocabulary: int | None = None) -> config_tree.Tree:
    """The config whose model is nearest to the given number of parameters; depth, heads and all else stay the same."""

    def scaled(factor: float) -> config_tree.Tree:
        return {**tree, "model": scale_dims(tree["model"], factor)}

    smallest, largest = (count(scaled(factor), vocabulary) for factor in (MIN_FACTOR, MAX_FACTOR))
    if not smallest <= parameters <= largest:
        raise UserError(
            f"parameters={parameters:g}: this system can have from {smallest:,} to {largest:,}; "
            "choose a number in this range"
        )
    low, high = MIN_FACTOR, MAX_FACTOR
    for _ in range(24):
        middle = (low * high) ** 0.5
        if count(scaled(middle), vocabulary) < parameters:
            low = middle
        else:
            high = middle
    return min(
        (scaled(low), scaled(high)), key=lambda candidate: abs(count(candidate, vocabulary) - parameters)
    )
