"""Configs: a YAML tree is a tree of constructor calls. `{type: Name, option: value}` means `partial(Name, option=value)`.

Knows nothing of seqloom: the caller says which names a section may use, and signatures and annotations say the rest. A parameter
annotated `Callable[..., X]` takes a part that makes an X; the names it may use are those that do. Nothing in a config can import code.
"""

from __future__ import annotations

import collections.abc
import difflib
import inspect
import re
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import yaml

Tree = dict[str, Any]
Names = Mapping[str, Callable[..., Any]]


class UnknownType(ValueError):
    """A `type` that no part has."""


class StrictLoader(yaml.SafeLoader):
    """Plain YAML: no anchors, which can make a small file endless, and no option said twice, of which one would be lost."""

    def compose_node(self, parent: Any, index: Any) -> yaml.Node:
        if self.check_event(yaml.AliasEvent):
            event = self.peek_event()
            raise yaml.composer.ComposerError(
                None, None, f"*{event.anchor} refers to an anchor; write its value out", event.start_mark
            )
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
        said: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in said:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key.value} is said twice", key.start_mark
                )
            said.add(str(key.value))
        return super().construct_mapping(node, deep)


class StrictDumper(yaml.SafeDumper):
    """The way back, so that what is read is what was written."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for side in (StrictLoader, StrictDumper):  # YAML 1.1 takes 1e-3 for text; people mean a number
    side.add_implicit_resolver(
        "tag:yaml.org,2002:float", re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"), list("-+.0123456789")
    )


class Locations:
    """Where each option stands: dotted place → file:line, or the override that says it."""

    def __init__(
        self, source: str = "config", lines: Mapping[str, int] | None = None, overrides: Iterable[str] = ()
    ):
        self.source, self.lines = source, dict(lines or {})
        self.said = {said.partition("=")[0].strip(): said for said in overrides}

    def at(self, place: str) -> str:
        around, parent = [place], place
        while parent:
            parent = re.sub(r"(\.|^|\[)[^.\[]*$", "", parent)  # a.b[0] → a.b → a
            around.append(parent)
        for each in around:
            if each in self.said:
                return f"{self.said[each][:80]!r}: {place}"
        line = next((self.lines[each] for each in around if each in self.lines), None)
        return f"{self.source}:{line}: {place}" if line else f"{self.source}: {place}"


def read(path: Path) -> tuple[Tree, Locations]:
    """A YAML file as a tree, with the lines of its options."""
    try:
        text = Path(path).read_text("utf-8")
    except FileNotFoundError:
        raise ValueError(f"{path}: no such config; give a preset's name or a YAML file") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: cannot be read ({error}); give a YAML file") from None
    tree, node = parse(text, str(path))
    if not isinstance(tree, dict):
        raise ValueError(
            f"{path}: a config is a mapping of sections, not {'empty' if tree is None else repr(tree)}"
        )
    lines: dict[str, int] = {}

    def walk(node: yaml.Node, place: str) -> None:
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                inner = f"{place}.{key.value}" if place else str(key.value)
                lines[inner] = key.start_mark.line + 1
                walk(value, inner)
        elif isinstance(node, yaml.SequenceNode):
            for number, value in enumerate(node.value):
                lines[f"{place}[{number}]"] = value.start_mark.line + 1
                walk(value, f"{place}[{number}]")

    walk(node, "")
    return tree, Locations(str(path), lines)


def parse(text: str, source: str) -> tuple[Any, yaml.Node | None]:
    """YAML text as values, and as nodes that know their lines."""
    try:
        reader = StrictLoader(text)  # refuses control characters at once
        node = reader.get_single_node()
        return None if node is None else reader.construct_document(node), node
    except RecursionError:
        raise ValueError(f"{source}: nested too deep; a config has a handful of levels") from None
    except yaml.YAMLError as error:
        mark, reason = (
            getattr(error, "problem_mark", None),
            getattr(error, "problem", None) or getattr(error, "reason", None),
        )
        raise ValueError(
            f"{source}{f':{mark.line + 1}' if mark else ''}: not valid YAML ({reason or 'unreadable'}); mend the line"
        ) from None
    except ValueError as error:  # dates and numbers that look like one and are none
        raise ValueError(f"{source}: not valid YAML ({error}); put quotes around the value") from None


def override(tree: Tree, assignments: Iterable[str]) -> Tree:
    """A copy of the tree with dotted assignments applied: `model.stack.layers=4`, `train.clip={type: ByValue, limit: 1}`.

    A tree with `sizes`, sets of such changes by name, takes the one that `size` names before the others.
    """
    tree, changes = deep_copy(tree), []
    for assignment in assignments:
        place, equals, text = assignment.partition("=")
        if not equals or not place.strip():
            raise ValueError(f"{assignment!r}: an override is place=value, such as model.stack.layers=4")
        changes.append((place.strip(), parse(text, f"{assignment[:80]!r}")[0], assignment))
    if sizes := tree.pop("sizes", None):
        size = str([tree.pop("size", None), *(value for place, value, _ in changes if place == "size")][-1])
        if size not in sizes:
            raise ValueError(f"size={size}: there is no such size; {suggest(size, sizes)}")
        changes = [(place, value, f"sizes.{size}") for place, value in sizes[size].items()] + [
            one for one in changes if one[0] != "size"
        ]
    for place, value, said in changes:
        *parents, last = place.split(".")
        node = tree
        for parent in parents:
            inner = node.get(parent)
            if isinstance(inner, str):  # `norm: RMSNorm` is short for `norm: {type: RMSNorm}`
                inner = {"type": inner}
            if inner is None:
                inner = {}
            if not isinstance(inner, dict):
                raise ValueError(f"{said!r}: {parent} is {inner!r}, which has no options of its own")
            node[parent] = inner
            node = inner
        node[last] = value
    return tree


def deep_copy(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {key: deep_copy(value) for key, value in tree.items()}
    return [deep_copy(value) for value in tree] if isinstance(tree, list) else tree


class PartFactory(partial):
    """A `partial` that knows its place, so that a call that does not fit is a sentence for the user and not a TypeError."""

    place: str

    def __call__(self, /, *sizes: Any, **named: Any) -> Any:
        known, name = inspect.signature(self.func).parameters, self.func.__name__
        given = [*list(known)[: len(sizes)], *named]
        for option in given:
            if option not in known:
                raise ValueError(f"{self.place}: {name} cannot stand here, since it takes no {option}")
            if option in self.keywords:
                raise ValueError(
                    f"{self.place}.{option}: what stands around {name} gives it its {option}; leave it out"
                )
        for option, parameter in known.items():
            if parameter.default is parameter.empty and option not in given and option not in self.keywords:
                raise ValueError(f"{self.place}: {name} needs {option}; add it")
        return super().__call__(*sizes, **named)


def build(
    tree: Any, names: Names, place: str, lines: Locations | None = None, kind: Any = object
) -> PartFactory:
    """The partial that a section's tree means; `names` is what its `type`s may say, `kind` what it must make."""
    lines = lines or Locations()
    if isinstance(tree, str):
        tree = {"type": tree}
    if not isinstance(tree, dict):
        raise ValueError(f"{lines.at(place)}: expected {{type: Name, …}}, not {tree!r}")
    fitting = {name: part for name, part in names.items() if produces(part, kind)}
    if "type" not in tree:
        raise ValueError(f"{lines.at(place)}: says no type; choose from {', '.join(sorted(fitting))}")
    name = tree["type"]
    if not isinstance(name, str) or name not in fitting:
        known = isinstance(name, str) and name in names
        reason = f"{name} cannot stand here" if known else f"no part is called {name!r}"
        raise (ValueError if known else UnknownType)(
            f"{lines.at(place + '.type')}: {reason}; {suggest(str(name), fitting)}"
        )
    return options(
        fitting[name], {key: value for key, value in tree.items() if key != "type"}, names, place, lines
    )


def options(
    make: Callable[..., Any], tree: Tree, names: Names, place: str, lines: Locations | None = None
) -> PartFactory:
    """`partial(make, option=value, …)`, each option checked against the signature and its annotation."""
    lines = lines or Locations()
    if not isinstance(tree, dict):
        raise ValueError(f"{lines.at(place)}: expected options, not {tree!r}")
    parameters = inspect.signature(make).parameters
    hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    values = {}
    for key, value in tree.items():
        if key not in parameters:
            raise ValueError(
                f"{lines.at(f'{place}.{key}')}: {make.__name__} has no option {key!r}; {suggest(str(key), parameters)}"
            )
        values[key] = convert(value, hints.get(key, Any), names, f"{place}.{key}", lines)
    part = PartFactory(make, **values)
    part.place = lines.at(place)
    return part


def convert(value: Any, hint: Any, names: Names, place: str, lines: Locations) -> Any:
    """A YAML value as the annotated type, or an error that says what is expected."""
    origin, inside = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in inside:
            return None
        rest = [hint for hint in inside if hint is not type(None)]
        for choice in rest[:-1]:
            try:
                return convert(value, choice, names, place, lines)
            except ValueError:
                continue
        return convert(value, rest[-1], names, place, lines)
    if origin is typing.Literal:
        if value in inside:
            return value
        raise ValueError(f"{lines.at(place)}: {value!r} is not one of {', '.join(map(str, inside))}")
    if origin is collections.abc.Callable:
        return build(value, names, place, lines, inside[1])
    if origin in (list, tuple, collections.abc.Sequence):
        items = value if isinstance(value, list) else [value]
        each = inside[0] if inside else Any
        return (tuple if origin is tuple else list)(
            convert(v, each, names, f"{place}[{n}]", lines) for n, v in enumerate(items)
        )
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if hint is int and isinstance(value, float) and value.is_integer():
        return int(value)
    if (
        inspect.isclass(hint)
        and isinstance(value, hint)
        and not (hint is not bool and isinstance(value, bool))
    ):
        return value
    if hint is Path and isinstance(value, str):
        return Path(value)
    word = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}.get(
        hint, getattr(hint, "__name__", hint)
    )
    raise ValueError(f"{lines.at(place)}: expected {word}, not {value!r}")


def produces(part: Callable[..., Any], kind: Any) -> bool:
    """Whether calling `part` gives a `kind`: its class, or what a function says it returns."""
    if kind in (object, Any) or isinstance(kind, typing.TypeVar):
        return True
    made = part if inspect.isclass(part) else typing.get_type_hints(part).get("return")
    wanted = typing.get_origin(kind) or kind
    made = typing.get_origin(made) or made
    if inspect.isclass(made) and inspect.isclass(wanted):
        return issubclass(made, wanted)
    return made == kind


def suggest(word: str, known: Iterable[str]) -> str:
    """The end of an error's sentence: the nearest right word, or all of them."""
    known = [name for name in known if name != "self"]
    close = difflib.get_close_matches(word, known, 1, 0.6) or difflib.get_close_matches(
        word.lower(), [k.lower() for k in known], 1, 0.6
    )
    match = next((name for name in known if close and name.lower() == close[0].lower()), None)
    return f"did you mean {match!r}?" if match else f"choose from {', '.join(sorted(known))}"


def diff(old: Tree, new: Tree, place: str = "") -> list[str]:
    """Each place where two trees differ, as `place: old → new`."""
    found = []
    for key in [*old, *(key for key in new if key not in old)]:
        inner = f"{place}.{key}" if place else str(key)
        before, after = old.get(key), new.get(key)
        if isinstance(before, dict) and isinstance(after, dict):
            found += diff(before, after, inner)
        elif before != after or (key in old) != (key in new):
            found.append(f"{inner}: {before!r} → {after!r}")
    return found


def write(tree: Tree) -> str:
    """The tree as YAML text."""
    return yaml.dump(tree, Dumper=StrictDumper, sort_keys=False, allow_unicode=True, width=140)
