"""Names whose modules are imported when they are first used, so that a training of one model does not load the parts of all the others.

A package lists its public names once, as imports under `if TYPE_CHECKING:`, where type checkers and editors see them too:

    if TYPE_CHECKING:
        from seqloom.nn.cells import GRU, LSTM

    NAMES, __getattr__, __dir__ = lazy_names(__name__, __file__)

NAMES has the place of each name, {"GRU": "seqloom.nn.cells:GRU", …}, as `pkgutil.resolve_name` reads it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import resolve_name
from typing import Any


def lazy_names(
    package: str, file: str
) -> tuple[dict[str, str], Callable[[str], Any], Callable[[], list[str]]]:
    """The names that a package imports under `if TYPE_CHECKING:`, and the `__getattr__` and `__dir__` that offer them.

    `__getattr__` also imports modules of the package, so that `seqloom.vectors` works after `import seqloom`.
    """
    places: dict[str, str] = {}
    for statement in ast.parse(Path(file).read_text("utf-8")).body:
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "TYPE_CHECKING":
            for node in statement.body:
                if isinstance(node, ast.ImportFrom) and node.module:
                    places |= {
                        alias.asname or alias.name: f"{node.module}:{alias.name}" for alias in node.names
                    }

    def get(name: str) -> Any:
        if name in places:
            return resolve_name(places[name])
        if not name.startswith("_") and find_spec(f"{package}.{name}"):
            return import_module(f"{package}.{name}")
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return places, get, lambda: sorted(places)
