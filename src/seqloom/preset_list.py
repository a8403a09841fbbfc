"""The presets: what each is for, its sizes and the memory that training it takes. Reading them needs no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from seqloom import config_tree
from seqloom.config_source import TRAINING_BYTES, preset_file, preset_names
from seqloom.errors import ConfigError
from seqloom.results import Result


@dataclass(frozen=True)
class PresetSize(Result):
    """A size of a preset. `name` is what `size=` takes, None if there is one size only.

    Where the data decides the vocabulary, parameters are those of 1,000 tokens. `memory` is what the weights, their gradients and the
    optimizer take in bytes; a step's activations come on top of it.
    """

    name: str | None
    parameters: int
    memory: int


@dataclass(frozen=True)
class Preset(Result):
    """A named config that is ready to train."""

    name: str
    task: str
    summary: str
    sizes: tuple[PresetSize, ...]


def list_presets(task: str | None = None) -> list[Preset]:
    """The presets, or those of one task, smallest first.

    >>> [preset.name for preset in list_presets("tagging")]
    ['tagger', 'tagger-transformer']
    """
    presets = [read_preset(name) for name in preset_names()]
    tasks = sorted({preset.task for preset in presets})
    if task is not None and task not in tasks:
        raise ConfigError(f"{task}: no preset has this task; {config_tree.suggest(task, tasks)}")
    chosen = [preset for preset in presets if task in (None, preset.task)]
    return sorted(chosen, key=lambda preset: (preset.task, preset.sizes[0].parameters))


def read_preset(name: str) -> Preset:
    """What a preset's YAML file says about it."""
    tree, _ = config_tree.read(preset_file(name))
    about = tree["about"]
    return Preset(name, about["task"], about["summary"], tuple(sizes_of(about["parameters"])))


def sizes_of(parameters: Any) -> list[PresetSize]:
    """The sizes by their numbers of parameters: one number, or one for each name."""
    named = parameters if isinstance(parameters, dict) else {None: parameters}
    return [PresetSize(size, count, TRAINING_BYTES * count) for size, count in named.items()]
