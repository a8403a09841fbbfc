"""Cuts trainings to a few steps: every Python program that has this folder in PYTHONPATH imports it at its start.

The tests of the documentation run each command as it is printed, on small files. This module makes the trainings in them short,
whoever starts them: the command line, Python, or a study that starts further programs. It replaces the budget of a training by STEPS
steps, and writes fewer sentences of the built-in world. Nothing else is changed.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.util
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

STEPS = 3
WORLD = {"train": 200, "valid": 20, "test": 20}


def shorten_training(module: ModuleType) -> None:
    original = module.TrainOptions.__init__

    @functools.wraps(original)
    def short(self: Any, *args: Any, **kwargs: Any) -> None:
        original(self, *args, **kwargs)
        self.budget = {"steps": min(self.budget.get("steps", STEPS), STEPS)}
        self.eval_every = self.save_every = STEPS
        self.eval_batches = min(self.eval_batches, 2)

    module.TrainOptions.__init__ = short


def shorten_world(module: ModuleType) -> None:
    original = module.write

    @functools.wraps(original)
    def small(folder: Any, train: int, valid: int, test: int, seed: int = 0) -> None:
        original(
            folder, min(train, WORLD["train"]), min(valid, WORLD["valid"]), min(test, WORLD["test"]), seed
        )

    module.write = small


PATCHES = {"seqloom.train.options": shorten_training, "seqloom.world.write": shorten_world}


class PatchingLoader(importlib.abc.Loader):
    """Executes a module, then its patch."""

    def __init__(self, loader: Any, name: str):
        self.loader = loader
        self.name = name

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self.loader.exec_module(module)
        PATCHES[self.name](module)


class PatchingFinder(importlib.abc.MetaPathFinder):
    """Finds the modules of PATCHES as Python would, and wraps their loaders."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        if name not in PATCHES:
            return None
        sys.meta_path.remove(self)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            sys.meta_path.insert(0, self)
        if spec is not None:
            spec.loader = PatchingLoader(spec.loader, name)
        return spec


sys.meta_path.insert(0, PatchingFinder())
