"""The model of a run as the class that a task needs."""

from __future__ import annotations

from typing import TypeVar

from seqloom.errors import UserError
from seqloom.models import Model
from seqloom.run import Run

SomeModel = TypeVar("SomeModel", bound=Model)


def model_of(run: Run, cls: type[SomeModel]) -> SomeModel:
    """The run's model if it is a `cls`; raises otherwise."""
    if not isinstance(run.model, cls):
        raise UserError(f"{run.folder}: the model is a {type(run.model).__name__}, not a {cls.__name__}")
    return run.model
