"""Where the tree of a config comes from: a preset, a YAML file or a run folder, and changes to it: `model.dim=64` on the command line,
`{"model.dim": 64}` in Python.

On the command line a value is YAML, and `a,b` is a list, so that no shell needs quotes. In Python a value is a number, a text, a list, a
part class, or a `partial` of one with its options: `partial(nn.Transformer, layers=6, position=nn.ALiBi)`. Both give the same tree.
"""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from seqloom import compat, run_files
from seqloom.config_tree import Locations, Tree, names_in, parse, read, suggest
from seqloom.errors import ConfigError

PRESETS = Path(__file__).parent / "presets"
FORMAT = 2  # of config.yaml
TRAINING_BYTES = 16  # of a parameter: the weight, its gradient and AdamW's two moments, each four bytes
logger = logging.getLogger("seqloom.config")
Change = str | Mapping[str, Any]
COMMA_LIST = re.compile(r"""[^\s,\[\]{}"']+(,[^\s,\[\]{}"']+)+""")


class Assignment(NamedTuple):
    """One option and its new value as YAML has it; `text` is what error messages show."""

    path: str
    value: Any
    text: str


def parse_changes(changes: Iterable[Change]) -> list[Assignment]:
    """The changes one by one."""
    assignments = []
    for change in changes:
        if isinstance(change, str):
            path, equals, text = change.partition("=")
            if not equals or not path.strip():
                raise ConfigError(f"{change!r}: a change is path=value, such as model.stack.layers=4")
            assignments.append(Assignment(path.strip(), parse_value(text, f"{change[:80]!r}"), change))
        elif isinstance(change, Mapping):
            for path, value in change.items():
                assignments.append(Assignment(str(path), to_tree(value, str(path)), f"{path}={value}"))
        else:
            raise ConfigError(
                f"{change!r}: a change is a text such as 'model.dim=64' or a dict such as {{'model.dim': 64}}"
            )
    return assignments


def parse_value(text: str, source: str) -> Any:
    """A value of the command line: YAML, or a list as `a,b`."""
    if COMMA_LIST.fullmatch(text.strip()):
        return [parse(item, source)[0] for item in text.strip().split(",")]
    return parse(text, source)[0]


def to_tree(value: Any, path: str) -> Any:
    """A Python value as YAML has it: a part class is {type: Name}, a partial of one has its options beside the type."""
    if isinstance(value, partial):
        if value.args:
            raise ConfigError(
                f"{path}: give the options of {value.func.__name__} by name: partial(Part, name=value)"
            )
        options = {name: to_tree(item, f"{path}.{name}") for name, item in value.keywords.items()}
        return {"type": value.func.__name__, **options}
    if inspect.isclass(value) or inspect.isfunction(value):
        return {"type": value.__name__}
    if isinstance(value, Mapping):
        return {str(key): to_tree(item, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_tree(item, f"{path}[{index}]") for index, item in enumerate(value)]
    if isinstance(value, Path):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise ConfigError(
        f"{path}: a {type(value).__name__} cannot be part of a config; give a number, a text, a list, a part class, or a partial of one"
    )


def callables_in(value: Any) -> list[Callable[..., Any]]:
    """The classes and functions that a Python value names."""
    if isinstance(value, partial):
        inner = [found for item in value.keywords.values() for found in callables_in(item)]
        return [value.func, *inner]
    if inspect.isclass(value) or inspect.isfunction(value):
        return [value]
    if isinstance(value, Mapping):
        return [found for item in value.values() for found in callables_in(item)]
    if isinstance(value, list | tuple):
        return [found for item in value for found in callables_in(item)]
    return []


def apply_changes(tree: Tree, assignments: Iterable[Assignment]) -> Tree:
    """A copy of the tree with the changes.

    If the tree has `sizes`, named sets of changes, the set that `size` names is applied first; both leave the tree.
    """
    tree, assignments = deep_copy(tree), list(assignments)
    sizes, size = tree.pop("sizes", None), tree.pop("size", None)
    if sizes is not None:
        size = [size, *(change.value for change in assignments if change.path == "size")][-1]
        assignments = [change for change in assignments if change.path != "size"]
        if size is not None:
            assignments = [*size_changes(sizes, str(size)), *assignments]
    for path, value, text in assignments:
        *parents, last = path.split(".")
        node = tree
        for parent in parents:
            inner = node.get(parent)
            if isinstance(inner, str):  # `norm: RMSNorm` is short for `norm: {type: RMSNorm}`
                inner = {"type": inner}
            if inner is None:
                inner = {}
            if not isinstance(inner, dict):
                raise ConfigError(f"{text!r}: {parent} is {inner!r}, which has no options")
            node[parent] = inner
            node = inner
        node[last] = value
    return tree


def size_changes(sizes: Mapping[str, Mapping[str, Any]], size: str) -> list[Assignment]:
    """The changes of a named size."""
    if size not in sizes:
        raise ConfigError(f"size={size}: there is no such size; {suggest(size, sizes)}")
    return [Assignment(path, value, f"sizes.{size}") for path, value in sizes[size].items()]


def override(tree: Tree, changes: Iterable[Change]) -> Tree:
    """A copy of the tree with changes such as `model.stack.layers=4`."""
    return apply_changes(tree, parse_changes(changes))


def deep_copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: deep_copy(value) for key, value in tree.items()}
    return [deep_copy(value) for value in tree] if isinstance(tree, list) else tree


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def preset_file(name: str) -> Path:
    """The YAML file of a preset."""
    if name not in preset_names():
        raise ConfigError(f"{name}: no preset has this name; {suggest(name, preset_names())}")
    return PRESETS / f"{name}.yaml"


def is_run(folder: str | Path) -> bool:
    """Whether the folder is a run: its config.yaml has a format version, or the sections of a config of older versions.

    A config.yaml that is not valid YAML counts as a run's, so that reading it says which line is wrong.
    """
    path = Path(folder) / "config.yaml"
    if not path.is_file():
        return False
    try:
        tree, _ = read(path)
    except ConfigError:
        return True
    return "seqloom" in tree or {"model", "tokenizer", "objective"} <= set(tree)


def find_config(name: str) -> tuple[Tree, Locations]:
    """The config of a preset, a YAML file or a run folder."""
    path = Path(name)
    if name in preset_names():
        if is_run(path):
            logger.warning("%s: this is the preset; the run folder of this name is ./%s", name, name)
        return read_config(PRESETS / f"{name}.yaml")
    if is_run(path):
        return config_of(path)
    if path.is_dir():
        run_files.check_lost_config(path)
        raise ConfigError(f"{name}: this folder is not a run; give a preset, a YAML file or a run folder")
    if path.suffix in (".yaml", ".yml") or path.exists():
        return read_config(path)
    raise ConfigError(f"{name}: no preset and no file has this name; {suggest(name, preset_names())}")


def read_config(path: Path) -> tuple[Tree, Locations]:
    """A YAML file without its header, with present names in place of those of older versions."""
    tree, lines = read(path)
    version = tree.pop("seqloom", 1)
    if not isinstance(version, int) or version > FORMAT:
        raise ConfigError(
            f"{lines.locate('seqloom')}: format {version!r} is not one of 1 to {FORMAT}; a newer seqloom wrote it, upgrade seqloom"
        )
    tree.pop("about", None)
    preset = path.stem if path.parent == PRESETS else tree.pop("preset", None)
    paths = {present_path(option): line for option, line in lines.lines.items()}
    return with_present_names(tree), Locations(lines.source, paths, preset=preset)


def present_path(path: str) -> str:
    """The dotted path of an option, whose section may have had another name in an older version."""
    return compat.upgrade_path(path) if path.partition(".")[0] in compat.OLD_NAMES else path


def with_present_names(tree: Tree) -> Tree:
    """A copy of a tree in which no name is one of an older version."""
    return deep_copy(tree) if compat.OLD_NAMES.isdisjoint(names_in(tree)) else compat.upgrade_config(tree)


def config_of(folder: str | Path) -> tuple[Tree, Locations]:
    """The config of a run folder, even if the folder has the name of a preset; raises if it is not the one of the run's manifest."""
    run_files.check_config(Path(folder))
    return read_config(Path(folder) / "config.yaml")
