"""Modules that are imported when they are first used: parts, so that a training of one model does not load those of all the others, and
compiled kernels, which may be unavailable.

A package lists its public names once, as imports under `if TYPE_CHECKING:`, where type checkers and editors see them too:

    if TYPE_CHECKING:
        from seqloom.nn.cells import GRU, LSTM

    NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)
"""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable, Container, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import ModuleType
from typing import Any

_lock = Lock()
_warned = False


class LazyNames(Mapping[str, Any]):
    """Name → object; the module of a name is imported when the name is looked up."""

    def __init__(self, homes: Mapping[str, tuple[str, str]], objects: Mapping[str, Any] | None = None):
        self.homes = dict(homes)  # name: (module, name in the module)
        self.objects = dict(objects or {})  # names whose objects are already there

    def __getitem__(self, name: str) -> Any:
        if name in self.objects:
            return self.objects[name]
        module, original = self.homes[name]
        return getattr(import_module(module), original)

    def __iter__(self) -> Iterator[str]:
        yield from self.homes
        yield from self.objects

    def __len__(self) -> int:
        return len(self.homes) + len(self.objects)

    def __contains__(self, name: object) -> bool:
        return name in self.homes or name in self.objects

    def plus(self, objects: Mapping[str, Any]) -> LazyNames:
        """These names and the given objects by name."""
        return LazyNames(self.homes, {**self.objects, **objects})

    def only(self, names: Container[str]) -> LazyNames:
        """Those of the given names."""
        return LazyNames({name: home for name, home in self.homes.items() if name in names})

    def __or__(self, other: LazyNames) -> LazyNames:
        return LazyNames({**self.homes, **other.homes})


def lazy_names(package: str, file: str) -> tuple[LazyNames, Callable[[str], Any], Callable[[], list[str]]]:
    """The names that a package imports under `if TYPE_CHECKING:`, and the `__getattr__` and `__dir__` that offer them.

    `__getattr__` also imports modules of the package, so that `seqloom.vectors` works after `import seqloom`.
    """
    homes: dict[str, tuple[str, str]] = {}
    for statement in ast.parse(Path(file).read_text("utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for node in statement.body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    homes |= {alias.asname or alias.name: (node.module, alias.name) for alias in node.names}
    names = LazyNames(homes)

    def get(name: str) -> Any:
        if name in names:
            return names[name]
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return names, get, lambda: sorted(names)


@cache
def load_kernels(name: str) -> ModuleType | None:
    """The module `name` of `seqloom.kernels`, or None if it cannot be imported because numba is missing or broken.

    The first failure prints one warning; later failures are silent. numba takes half a second to import.
    """
    global _warned
    try:
        return import_module(f"seqloom.kernels.{name}")
    except Exception as error:  # an unsuitable numba can fail in many ways during its import
        with _lock:
            if not _warned:
                _warned = True
                logging.getLogger("seqloom").warning(
                    "numba cannot be used (%s): compiled kernels are off, everything runs in its plain, slower form",
                    " ".join(str(error).split()) or type(error).__name__,
                )
        return None
