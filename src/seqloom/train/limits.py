"""The errors of trainings that do not fit this machine, with what would fit. `budget.py` says when they are raised."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from seqloom import config_tree
from seqloom.config_source import preset_names
from seqloom.errors import ConfigError
from seqloom.preset_list import list_presets, read_preset
from seqloom.run_config import Config

if TYPE_CHECKING:
    from seqloom.train.budget import Costs
    from seqloom.train.options import TrainOptions

MEMORY_SHARE = 0.9  # of the memory that a training may fill


def batch_sizes(config: Config) -> dict[str, int]:
    """The option that sets the size of a batch, with its value; empty if the batches have no such option."""
    factory = config.parts["batches"]
    for name in ("batch_tokens", "batch"):
        parameter = config_tree.parameters_of(factory.func).get(name)
        if parameter is not None:
            return {f"batches.{name}": factory.keywords.get(name, parameter.default)}
    return {}


def smaller_preset(config: Config, parameters: float) -> str | None:
    """The largest preset of the same task with at most half as many parameters."""
    name = config.lines.preset
    if name not in preset_names():
        return None
    sizes = {
        preset.name: preset.sizes[0].parameters
        for preset in list_presets(read_preset(str(name)).task)
        if preset.sizes[0].parameters <= parameters / 2
    }
    return max(sizes, key=lambda preset: sizes[preset]) if sizes else None


def advice(config: Config, parameters: float, share: float, accumulate: int = 1) -> str:
    """What to try instead: batches of this share of their size, as many of them for a step as make up for it, and a smaller preset."""
    options = []
    for name, size in batch_sizes(config).items():
        if smaller := int(size * min(share, 0.5)):
            smaller = 2 ** int(math.log2(smaller))
            options.append(f"{name}={smaller} train.accumulate={-(-accumulate * size // smaller)}")
    if preset := smaller_preset(config, parameters):
        options.append(f"the preset {preset}")
    return f"try {', or '.join(options)}" if options else "make the model smaller"


def memory_error(config: Config, parameters: int, needed: int, memory: int) -> ConfigError:
    """The weights, their gradients and the optimizer do not fit."""
    what = advice(config, parameters, 0.0)
    return ConfigError(
        f"{config.lines.preset or 'model'}: {parameters:,} parameters need {needed / 1e9:,.0f} GB to train, and this machine has "
        f"{memory / 1e9:.0f} GB; {what}"
    )


def step_error(config: Config, options: TrainOptions, costs: Costs, memory: int) -> ConfigError:
    """A step does not fit the memory, or is longer than the budget in minutes."""
    parameters = sum(costs.parameters.values())
    batch = ", ".join(f"{name}={size}" for name, size in batch_sizes(config).items())
    what = ", ".join(filter(None, (f"{parameters:,} parameters", batch)))
    name = config.lines.preset or "model"
    if memory and costs.memory > memory:
        room = MEMORY_SHARE * memory - (costs.memory - costs.activations)
        tried = advice(config, parameters, max(0.0, room / max(costs.activations, 1)), options.accumulate)
        return ConfigError(
            f"{name}: {what}: a step needs {costs.memory / 1e9:.0f} GB, and this machine has {memory / 1e9:.0f} GB; {tried}"
        )
    preset = smaller_preset(config, parameters)
    smaller = f", the preset {preset}" if preset else ""
    accumulated = f"{options.accumulate} batches; " if options.accumulate > 1 else ""
    return ConfigError(
        f"{name}: {what}: one step ({accumulated}measured here) takes {costs.seconds / 60:.0f} minutes, longer than the budget of "
        f"{options.budget['minutes']:g}; try smaller batches{', train.accumulate=1' if accumulated else ''}{smaller}, or more minutes"
    )
