"""Parts of the user's own: classes passed from Python, and those that installed packages offer.

A package offers its parts as entry points of the group `seqloom.parts`, each named as its class:

    [project.entry-points."seqloom.parts"]
    MyCell = "my_package.cells:MyCell"

A config can name such a part, but it can never import one: only Python code, `--code` on the command line and the installation of a
package make a part known.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping
from importlib.metadata import entry_points
from typing import Any

from torch.nn import Module

from seqloom.errors import ConfigError

GROUP = "seqloom.parts"


def parts_by_name(parts: Iterable[Any], builtin: Mapping[str, Any]) -> dict[str, type[Module]]:
    """The user's classes by name, without functions, to be used beside the built-in parts, whose names they may not have."""
    named: dict[str, type[Module]] = {}
    for part in parts:
        if inspect.isfunction(part):  # a reward: `rollouts.reward` may name it
            continue
        if not (inspect.isclass(part) and issubclass(part, Module)):
            raise ConfigError(
                f"parts: {part!r} is not a part class; pass classes such as a Cell, a Score, a Position or a Layer"
            )
        name = part.__name__
        if name in builtin or named.get(name, part) is not part:
            owner = "a built-in part" if name in builtin else "another of your parts"
            raise ConfigError(f"parts: {name} is the name of {owner}; rename your class")
        named[name] = part
    return named


def installed_part(name: str) -> type[Module] | None:
    """The part of an installed package that has this name, if there is one."""
    found = entry_points(group=GROUP, name=name)
    if not found:
        return None
    entry = next(iter(found))
    try:
        part = entry.load()
    except Exception as error:  # the package is not ours: its import can fail in any way
        raise ConfigError(
            f"{name}: the installed package cannot be imported ({entry.value}: {type(error).__name__}: {error}); mend or remove it"
        ) from error
    if not (inspect.isclass(part) and issubclass(part, Module) and part.__name__ == name):
        raise ConfigError(
            f"{name}: {entry.value} of an installed package is not a part class of this name; mend its entry point"
        )
    return part
