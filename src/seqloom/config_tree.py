"""Configs: a YAML tree is a tree of constructor calls. `{type: Name, option: value}` means `partial(Name, option=value)`.

This module knows nothing of seqloom: the caller passes the names that a section may use, and signatures and annotations give the rest.
A parameter annotated `Callable[..., X]` takes a part that produces an X. A config can never import code: names resolve only to what the
caller passed. Signatures are read once for each class.
"""

from __future__ import annotations

import collections.abc
import difflib
import inspect
import math
import re
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import yaml

from seqloom.errors import ConfigError, Error

# Options that count what is built one after the other, or what a vector, a row or a batch has: a model is at least as large as these say.
LARGEST = {
    "layers": 2_000,
    "blocks": 2_000,
    "experts": 10_000,
    "heads": 100_000,
    "repeat": 2_000,
    "accumulate": 1_000_000,
}
LARGEST_SIZE = 2**31
AT_LEAST_ONE = (
    "dim",
    "key_dim",
    "value_dim",
    "heads",
    "kv_heads",
    "kernel",
    "experts",
    "width",
    "batch",
    "batch_tokens",
)

Tree = dict[str, Any]
Names = Mapping[
    str, Callable[..., Any] | str
]  # a class, or its place "module:name", which is imported when it is used


class UnknownType(ConfigError):
    """A `type` that names no part; `name` is what it says."""

    def __init__(self, message: str, name: str = ""):
        super().__init__(message)
        self.name = name


class StrictLoader(yaml.SafeLoader):
    """Plain YAML without anchors, which can make a small file expand without end, and without duplicate keys, of which one would be lost."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"*{event.anchor} refers to an anchor; write its value out", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in seen:
                message = f"{key.value} is given twice"
                raise yaml.constructor.ConstructorError(None, None, message, key.start_mark)
            seen.add(str(key.value))
        return super().construct_mapping(node, deep)


class StrictDumper(yaml.SafeDumper):
    """Writes what StrictLoader reads back unchanged."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for yaml_class in (StrictLoader, StrictDumper):  # YAML 1.1 reads 1e-3 as text; people mean a number
    yaml_class.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


class Locations:
    """Where each option is written: dotted path → file:line, or the text of the change that sets it."""

    def __init__(
        self,
        source: str = "config",
        lines: Mapping[str, int] | None = None,
        changes: Mapping[str, str] | None = None,
        preset: str | None = None,
    ):
        self.source = source
        self.preset = preset  # that the config began as
        self.lines = dict(lines or {})
        self.changes = dict(changes or {})

    def title(self) -> str:
        """The preset or the file, with the changes."""
        return " ".join([self.preset or self.source, *self.changes.values()])

    def locate(self, path: str) -> str:
        """The start of an error message about the option at `path`."""
        ancestors, parent = [path], path
        while parent:
            parent = re.sub(r"(\.|^|\[)[^.\[]*$", "", parent)  # a.b[0] → a.b → a
            ancestors.append(parent)
        for ancestor in ancestors:
            if ancestor in self.changes:
                return f"{self.changes[ancestor][:80]!r}: {path}"
        for option, text in self.changes.items():  # a change inside `path`, which the file does not have
            if option.startswith(f"{path}.") and path not in self.lines:
                return f"{text[:80]!r}: {path}"
        line = next((self.lines[ancestor] for ancestor in ancestors if ancestor in self.lines), None)
        return f"{self.source}:{line}: {path}" if line else f"{self.source}: {path}"


def read(path: Path) -> tuple[Tree, Locations]:
    """A YAML file as a tree, with the lines of its options."""
    if Path(path).exists() and not Path(path).is_file():  # a pipe or a device may have no end
        raise ConfigError(f"{path}: not a regular file; give a YAML file")
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such config; give the name of a preset or a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read ({error}); give a YAML file") from None
    tree, node = parse(text, str(path))
    if not isinstance(tree, dict):
        content = "empty" if tree is None else repr(tree)
        raise ConfigError(f"{path}: a config is a mapping of sections, not {content}")
    lines: dict[str, int] = {}

    def walk(node: yaml.Node | None, path: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = f"{path}.{key.value}" if path else str(key.value)
                lines[inner] = key.start_mark.line + 1
                walk(value, inner)
        elif isinstance(node, yaml.SequenceNode):
            for index, value in enumerate(node.value):
                lines[f"{path}[{index}]"] = value.start_mark.line + 1
                walk(value, f"{path}[{index}]")

    walk(node, "")
    return tree, Locations(str(path), lines)


def parse(text: str, source: str) -> tuple[Any, yaml.Node | None]:
    """YAML text as values, and as nodes with their line numbers."""
    try:
        loader = StrictLoader(text)  # rejects control characters
        node = loader.get_single_node()
        return None if node is None else loader.construct_document(node), node
    except RecursionError:
        raise ConfigError(f"{source}: nested too deeply; a config has a handful of levels") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        reason = getattr(error, "problem", None) or getattr(error, "reason", None) or "unreadable"
        location = f"{source}:{mark.line + 1}" if mark else source
        raise ConfigError(f"{location}: not valid YAML ({reason}); correct the line") from None
    except ValueError as error:  # text that looks like a date or a number and is not
        raise ConfigError(f"{source}: not valid YAML ({error}); put quotes around the value") from None


@cache
def parameters_of(make: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a class or function."""
    return inspect.signature(make).parameters


@cache
def hints_of(make: Callable[..., Any]) -> Mapping[str, Any]:
    """The annotations of a function, or of the constructor of a class."""
    return typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)


class PartFactory(partial):
    """A `partial` with its location in the config: a call that does not fit raises an error for the user, not a TypeError."""

    location: str

    def __call__(self, /, *sizes: Any, **named: Any) -> Any:
        parameters, name = parameters_of(self.func), self.func.__name__
        passed = [*list(parameters)[: len(sizes)], *named]
        for option in passed:
            if option not in parameters:
                raise ConfigError(
                    f"{self.location}: {name} cannot be used here: it has no parameter {option}"
                )
            if option in self.keywords:
                raise ConfigError(f"{self.location}.{option} is set by the part around {name}; remove it")
        for option, parameter in parameters.items():
            if parameter.default is parameter.empty and option not in passed and option not in self.keywords:
                raise ConfigError(f"{self.location}: {name} needs {option}; add it")
        try:
            return super().__call__(*sizes, **named)
        except (
            ValueError,
            ArithmeticError,
            RuntimeError,
        ) as error:  # of torch, or of a part that checks nothing itself
            if isinstance(error, Error) or "memory" in str(error) or not self.keywords:
                raise
            plain = {k: v for k, v in self.keywords.items() if not isinstance(v, PartFactory)}
            options = ", ".join(f"{option}={value!r}" for option, value in plain.items()) or "these sizes"
            reason = " ".join(str(error).split())[:200]
            raise ConfigError(
                f"{self.location}: {name} cannot be built with {options[:200]} ({reason}); change them"
            ) from error


def build(
    tree: Any, names: Names, path: str, locations: Locations | None = None, produced: Any = object
) -> PartFactory:
    """The partial that a section's tree stands for. `names` are the types it may use, `produced` is the class it must produce."""
    locations = locations or Locations()
    if isinstance(tree, str):
        tree = {"type": tree}
    if not isinstance(tree, dict):
        raise ConfigError(f"{locations.locate(path)}: expected {{type: Name, …}}, not {tree!r}")
    if "type" not in tree:
        choices = ", ".join(sorted(candidates(names, produced)))
        raise ConfigError(f"{locations.locate(path)}: has no `type`; choose one of {choices}")
    name = tree["type"]
    known = isinstance(name, str) and name in names
    make = find(names, name) if known else None
    if make is None or not produces(make, produced):
        reason = f"{name} cannot be used here" if known else f"no part is called {name!r}"
        message = (
            f"{locations.locate(path + '.type')}: {reason}; {suggest(str(name), candidates(names, produced))}"
        )
        raise ConfigError(message) if known else UnknownType(message, str(name))
    values = {key: value for key, value in tree.items() if key != "type"}
    return options(make, values, names, path, locations)


def find(names: Names, name: str) -> Any:
    """The class or function of a name."""
    found = names[name]
    return resolve_name(found) if isinstance(found, str) else found


def candidates(names: Names, produced: Any) -> list[str]:
    """The names of the parts that produce the given class, for error messages."""
    return [name for name in names if produces(find(names, name), produced)]


def options(
    make: Callable[..., Any], tree: Tree, names: Names, path: str, locations: Locations | None = None
) -> PartFactory:
    """`partial(make, option=value, …)`, with each option checked against the signature and its annotation."""
    locations = locations or Locations()
    if not isinstance(tree, dict):
        raise ConfigError(f"{locations.locate(path)}: expected options, not {tree!r}")
    parameters, hints = parameters_of(make), hints_of(make)
    values = {}
    for key, value in tree.items():
        if key not in parameters:
            location = locations.locate(f"{path}.{key}")
            raise ConfigError(
                f"{location}: {make.__name__} has no option {key!r}; {suggest(str(key), parameters)}"
            )
        values[key] = convert(value, hints.get(key, Any), names, f"{path}.{key}", locations)
    part = PartFactory(make, **values)
    part.location = locations.locate(path)
    return part


def convert(value: Any, hint: Any, names: Names, path: str, locations: Locations) -> Any:
    """A YAML value as the annotated type, or an error that says what is expected."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in arguments:
            return None
        choices = [argument for argument in arguments if argument is not type(None)]
        for choice in choices[:-1]:
            try:
                return convert(value, choice, names, path, locations)
            except ValueError:
                continue
        return convert(value, choices[-1], names, path, locations)
    if origin is typing.Literal:
        if value in arguments:
            return value
        raise ConfigError(
            f"{locations.locate(path)}: {value!r} is not one of {', '.join(map(str, arguments))}"
        )
    if origin is collections.abc.Callable:
        return build(value, names, path, locations, arguments[1])
    if origin in (list, tuple, collections.abc.Sequence):
        items = value if isinstance(value, list) else [value]
        item_hint = arguments[0] if arguments else Any
        converted = [
            convert(item, item_hint, names, f"{path}[{index}]", locations) for index, item in enumerate(items)
        ]
        return tuple(converted) if origin is tuple else converted
    if hint in (int, float) and isinstance(value, int | float) and not isinstance(value, bool):
        check_number(value, path, locations)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if inspect.isclass(hint) and isinstance(value, hint) and (hint is bool or not isinstance(value, bool)):
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
    expected = words.get(hint, getattr(hint, "__name__", hint))
    raise ConfigError(f"{locations.locate(path)}: expected {expected}, not {value!r}")


def check_number(value: float, path: str, locations: Locations) -> None:
    """Raises for numbers that no option has: infinite ones, those beyond 64 bits, empty sizes, and counts that take for ever to build."""
    name = path.rpartition(".")[2]
    if not math.isfinite(value):
        raise ConfigError(f"{locations.locate(path)}: expected a finite number, not {value}")
    if isinstance(value, int) and abs(value) >= 2**63:
        raise ConfigError(f"{locations.locate(path)}: {value:.3e} is too large; give a number below 2^63")
    if name in AT_LEAST_ONE and value < 1:
        raise ConfigError(f"{locations.locate(path)}: {name} must be at least 1, not {value}")
    largest = LARGEST.get(name, LARGEST_SIZE if name in AT_LEAST_ONE else math.inf)
    if value > largest:
        raise ConfigError(
            f"{locations.locate(path)}: {name}={value:,} is too large; give at most {largest:,}"
        )


def produces(part: Callable[..., Any], produced: Any) -> bool:
    """Whether calling `part` gives a `produced`: part is its class, or a function whose return annotation is."""
    if produced in (object, Any) or isinstance(produced, typing.TypeVar):
        return True
    result = part if inspect.isclass(part) else typing.get_type_hints(part).get("return")
    result = typing.get_origin(result) or result
    expected = typing.get_origin(produced) or produced
    if inspect.isclass(result) and inspect.isclass(expected):
        return issubclass(result, expected)
    return bool(result == produced)


def names_in(node: Any) -> Iterator[str]:
    """The names in a tree: its keys, each part of a dotted one, and its texts."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from str(key).split(".")
            yield from names_in(value)
    elif isinstance(node, list):
        for value in node:
            yield from names_in(value)
    elif isinstance(node, str):
        yield node


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of an error message: the nearest right word, or all of them."""
    names = [name for name in known if name != "self"]
    lowered = [name.lower() for name in names]
    close = difflib.get_close_matches(word, names, 1, 0.6) or difflib.get_close_matches(
        word.lower(), lowered, 1, 0.6
    )
    match = next((name for name in names if close and name.lower() == close[0].lower()), None)
    return f"did you mean {match!r}?" if match else f"choose from {', '.join(sorted(names))}"


def diff(old: Tree, new: Tree, path: str = "") -> list[str]:
    """Each path where two trees differ, as `path: old → new`."""
    changes = []
    for key in [*old, *(key for key in new if key not in old)]:
        inner = f"{path}.{key}" if path else str(key)
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            changes += diff(before, after, inner)
        elif before != after or (key in old) != (key in new):
            changes.append(f"{inner}: {before!r} → {after!r}")
    return changes


def write(tree: Tree) -> str:
    """The tree as YAML text."""
    return yaml.dump(tree, Dumper=StrictDumper, sort_keys=False, allow_unicode=True, width=140)
