"""The parts of a model: each distinct part once, with its places, options, equation, letters, weights and costs."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import nn

from seqloom import config_tree
from seqloom.equations import costs, notation
from seqloom.errors import ConfigError
from seqloom.models import Model
from seqloom.report import frame
from seqloom.results import Result
from seqloom.run_config import Config

MAX_PARAMETERS = 1_000_000_000  # the largest model that is built in memory to count its FLOPs
LETTERS = {"V": "vocabulary", "D": "dim", "H": "heads", "E": "experts"}
"""Letters of docs/notation.md that are sizes of a model, and the option that sets each; K, the size of a head, follows from D and H."""


@runtime_checkable
class HasDim(Protocol):
    """A part that knows the width of its output, as every layer does."""

    dim: int


@dataclass
class PartSummary(Result):
    """Equal parts of a model. Costs are the sums over all of them, without the parts inside them."""

    name: str
    places: list[str]
    depth: int
    times: int
    options: dict[str, Any]  # sizes, and options with another value than the default
    defaults: dict[str, Any]  # options with their default value
    equation: list[str]
    notes: list[str]
    letters: dict[str, int]  # letters of the equation, with their sizes in this model
    weights: dict[str, list[int]]  # shapes, of one of the parts
    shared: dict[str, str]  # weights that belong to another part, and their full names
    parameters: int = 0
    flops: float = 0.0  # forward, per token

    def title(self) -> str:
        """4 × Name (options)."""
        times = f"{self.times} × " if self.times > 1 else ""
        listed = ", ".join(f"{name} {format_value(value)}" for name, value in self.options.items())
        options = f" ({listed})" if listed else ""
        return f"{times}{self.name}{options}"


def format_value(value: Any) -> str:
    """A value for people: true, 1,000, 384 × 128, lines."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list) and value and all(isinstance(item, int) for item in value):
        return " × ".join(f"{item:,}" for item in value)
    if isinstance(value, list):
        return "\n".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) else str(value)


@dataclass(frozen=True)
class Explanation(Result):
    """The parts, sizes and costs of a model."""

    source: str
    vocabulary: int
    length: int  # T, over which FLOPs are counted
    parameters: int
    flops: float  # forward, per token
    parts: list[PartSummary]
    config: config_tree.Tree = field(repr=False)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "training_flops": 3 * self.flops}

    def to_text(self) -> str:
        """The explanation for a terminal."""
        from seqloom.equations import text

        return "\n".join(text.text(self)) + "\n"

    def to_markdown(self) -> str:
        """The explanation as Markdown with equations in LaTeX."""
        from seqloom.equations import text

        return "\n".join(text.markdown(self)) + "\n"

    def to_html(self) -> str:
        """The explanation as a page that needs no network, with equations in MathML."""
        from seqloom.equations import html

        return html.explanation(self)

    def _repr_html_(self) -> str:
        return frame(self.to_html())

    def ranking(self) -> list[tuple[str, int, int, float]]:
        """(name, number of parts, parameters, FLOPs) of each type of part, largest first [G7]."""
        rows: dict[str, tuple[int, int, float]] = {}
        for part in self.parts:
            times, parameters, flops = rows.get(part.name, (0, 0, 0.0))
            rows[part.name] = times + part.times, parameters + part.parameters, flops + part.flops
        named = [(name, *row) for name, row in rows.items() if row[1] or row[2]]
        return sorted(named, key=lambda row: (-row[2], -row[3], row[0]))


class CountedModel(NamedTuple):
    """A model that was built and run once, for its FLOPs."""

    model: Model
    parts: dict[str, nn.Module]  # by place
    args: costs.ConstructorArgs
    flops: dict[str, int]  # by place, over `length` tokens
    length: int


def explain_config(config: Config, name: str, vocabulary: int, length: int | None) -> Explanation:
    """Explains the model of a config for a vocabulary; FLOPs are counted over `length` tokens."""
    counted = count(name, config, vocabulary, length or config.parts["batches"].keywords.get("width", 32))
    summaries = summarize_parts(counted)
    return Explanation(
        name,
        vocabulary,
        counted.length,
        sum(part.parameters for part in summaries),
        sum(counted.flops.values()) / counted.length,
        summaries,
        config.tree,
    )


def count(name: str, config: Config, vocabulary: int, length: int) -> CountedModel:
    """Builds the model without memory if possible, and counts its FLOPs."""
    try:
        return build_and_count(config, vocabulary, length, "meta")
    except (NotImplementedError, RuntimeError):
        # The computation depends on values, as in a mixture of experts: the model needs real weights.
        pass
    with torch.device("meta"):
        size = sum(parameter.numel() for parameter in config.model(vocabulary).parameters())
    if size > MAX_PARAMETERS:
        raise ConfigError(
            f"{name}: its FLOPs depend on the values of its weights, and {size:,} parameters are too many to build; "
            "give it fewer layers, as in model.stack.layers=1"
        )
    return build_and_count(config, vocabulary, length, "cpu")


def build_and_count(config: Config, vocabulary: int, length: int, device: str) -> CountedModel:
    """Builds the model on a device, records the arguments of its parts, and counts their FLOPs."""
    args: costs.ConstructorArgs = {}
    with costs.record_constructor_args(args), torch.device(device):
        model = config.model(vocabulary)
    length = min(limit for limit in (model.context, model.source_context, length) if limit)
    parts = costs.explained_parts(model)
    return CountedModel(model, parts, args, costs.flops(model, parts, vocabulary, length), length)


def summarize_parts(counted: CountedModel) -> list[PartSummary]:
    """The parts of a model, equal ones together."""
    own, shared = costs.weights(counted.model, counted.parts)
    name_of = {id(tensor): name for name, tensor in counted.model.named_parameters()}
    groups: dict[str, PartSummary] = {}
    for place in counted.parts:
        new = describe(place, counted)
        new.weights = {name: list(tensor.shape) for name, tensor in own[place].items()}
        new.shared = {name: name_of[id(tensor)] for name, tensor in shared[place].items()}
        key = repr((new.name, new.options, new.defaults, new.weights, new.shared, new.letters))
        part = groups.setdefault(key, new)
        part.places.append(place or "model")
        part.times += 1
        part.parameters += sum(tensor.numel() for tensor in own[place].values())
        part.flops += counted.flops[place] / counted.length
    for part in groups.values():
        part.places = merge_places(part.places)
    return list(groups.values())


def describe(place: str, counted: CountedModel) -> PartSummary:
    """The part at a place, before its weights and costs are counted."""
    module = counted.parts[place]
    equation, notes = notation.parse(type(module).__doc__)
    ancestors = [place]  # from the part itself outwards
    while ancestors[-1]:
        ancestors.append(costs.owner_of(ancestors[-1].rpartition(".")[0], counted.parts))
    letters = {
        letter: size
        for letter in [*LETTERS, "K"]
        if uses_letter(letter, equation) and (size := letter_size(letter, ancestors, counted))
    }
    changed, defaults = split_options(type(module), counted.args.get(id(module), {}))
    return PartSummary(
        name=type(module).__name__,
        places=[],
        depth=len(ancestors) - 1,
        times=0,
        options=changed,
        defaults=defaults,
        equation=equation,
        notes=notes,
        letters=letters,
        weights={},
        shared={},
    )


def split_options(cls: type, args: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain values of a part's arguments: sizes and values other than the default, and values equal to the default.

    Parts among the arguments are left out: they are explained themselves.
    """
    plain = {name: value for name, value in args.items() if isinstance(value, int | float | str)}
    parameters = inspect.signature(cls).parameters
    defaults = {
        name: value
        for name, value in plain.items()
        if name in parameters and (value == parameters[name].default or repr(value) == "0.0")
    }
    return {name: value for name, value in plain.items() if name not in defaults}, defaults


def uses_letter(letter: str, lines: list[str]) -> bool:
    """Whether a letter occurs by itself, or as the last of a series (head_H), but not in a matrix's name (W_K)."""
    return any(
        re.search(rf"(?<![A-Za-z0-9])(?<![A-Z]_)(?<!\[){letter}(?![A-Za-z0-9-])", line) for line in lines
    )


def letter_size(letter: str, ancestors: list[str], counted: CountedModel) -> int | None:
    """The size of a letter at a part, from its own options or those of the nearest part around it that has it.

    `ancestors` are the places from the part itself outwards.
    """
    if letter == "K":
        heads = letter_size("H", ancestors, counted)
        dim = letter_size("D", ancestors, counted)
        args = counted.args.get(id(counted.parts[ancestors[0]]), {})
        if set(args) == {"dim"} or not heads or not dim:
            return args.get("dim")
        return dim // heads
    for place in ancestors:
        module = counted.parts[place]
        args = counted.args.get(id(module), {})
        size = module.dim if letter == "D" and isinstance(module, HasDim) else None
        size = size or args.get(LETTERS[letter])
        if isinstance(size, int) and not isinstance(size, bool):
            return size
    return None


def merge_places(places: Sequence[str]) -> list[str]:
    """Merges places that differ in numbers only: blocks.0.norm, blocks.1.norm → blocks.0–1.norm."""
    groups: dict[str, list[str]] = {}
    for place in places:
        groups.setdefault(re.sub(r"\d+", "#", place), []).append(place)
    return [merged for group in groups.values() for merged in merge_range(group)]


def merge_range(places: list[str]) -> list[str]:
    """Places of one pattern as one place with ranges, if their numbers leave no gap."""
    numbers = [[int(number) for number in re.findall(r"\d+", place)] for place in places]
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    contiguous = all(column == list(range(column[0], column[-1] + 1)) for column in columns)
    if not contiguous or math.prod(map(len, columns)) != len(places):
        return places
    ranges = iter(f"{column[0]}–{column[-1]}" if len(column) > 1 else str(column[0]) for column in columns)
    return [re.sub(r"\d+", lambda _: next(ranges), places[0])]
