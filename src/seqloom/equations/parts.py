"""A model taken apart: each distinct part once, with its places, options, equation, letters, weights and costs."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn

from seqloom import config
from seqloom.equations import costs, notation
from seqloom.run import Config, is_run
from seqloom.text import tokenizer_file

MAX_PARAMETERS = 1_000_000_000  # parameters that are made to count FLOPs
LETTERS = {"V": "vocabulary", "D": "dim", "H": "heads", "E": "experts"}
"""Letters of docs/notation.md that are sizes of a model, and the option that says each; K, the size of a head, follows from D and H."""


@dataclass
class PartSummary:
    """Parts of one kind, made alike; costs are those of all of them together, without what stands inside."""

    name: str
    places: list[str]
    depth: int
    times: int
    options: dict[str, Any]  # sizes, and what differs from the default
    defaults: dict[str, Any]  # options left as they are
    equation: list[str]
    notes: list[str]
    letters: dict[str, int]  # those of the equation, with their sizes in this model
    weights: dict[str, list[int]]  # shapes, of one of them
    shared: dict[str, str]  # weights that another part holds, and where
    parameters: int = 0
    flops: float = 0.0  # forward, for each token

    def title(self) -> str:
        """4 × Name (options)."""
        many = f"{self.times} × " if self.times > 1 else ""
        said = (
            f" ({', '.join(f'{name} {value(one)}' for name, one in self.options.items())})"
            if self.options
            else ""
        )
        return f"{many}{self.name}{said}"


def value(one: Any) -> str:
    """A value for people: true, 1,000, 384 × 128, lines."""
    if one is None:
        return "–"
    if isinstance(one, bool):
        return str(one).lower()
    if isinstance(one, list) and one and all(isinstance(item, int) for item in one):
        return " × ".join(f"{item:,}" for item in one)
    if isinstance(one, list):
        return "\n".join(map(str, one))
    return f"{one:,}" if isinstance(one, int) else str(one)


@dataclass
class Explanation:
    """A model in words and numbers."""

    source: str
    vocabulary: int
    length: int  # T, over which FLOPs are counted
    parameters: int
    flops: float  # forward, for each token
    parts: list[PartSummary]
    config: config.Tree = field(repr=False)

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "training_flops": 3 * self.flops}

    def ranking(self) -> list[tuple[str, int, int, float]]:
        """Which part has most [G7]: name, how many there are, parameters, FLOPs; by parameters, then FLOPs."""
        rows: dict[str, tuple[int, int, float]] = {}
        for part in self.parts:
            times, parameters, flops = rows.get(part.name, (0, 0, 0.0))
            rows[part.name] = times + part.times, parameters + part.parameters, flops + part.flops
        named = [(name, *row) for name, row in rows.items() if row[1] or row[2]]
        return sorted(named, key=lambda row: (-row[2], -row[3], row[0]))


def explain(
    what: str,
    overrides: Sequence[str] = (),
    vocabulary: int = 1000,
    length: int | None = None,
    parts: Sequence[type[nn.Module]] = (),
) -> Explanation:
    """Take apart the model of a run folder, a preset or a YAML file. `vocabulary` is for configs that have no tokenizer yet, `length` the
    number of tokens over which FLOPs are counted, `parts` classes of the user's own."""
    recipe = Config.load(what, overrides, parts=parts)
    if is_run(what):
        vocabulary = tokenizer_file.load(f"{what}/tokenizer.json").get_vocab_size()
    if vocabulary < 1 or (length is not None and length < 1):
        raise ValueError(
            f"a vocabulary of {vocabulary} and a length of {length} count nothing; give numbers above 0"
        )
    width = length or recipe.parts["data"].keywords.get("width", 32)
    try:  # sizes without numbers: a model of any size takes no memory
        model, found, said, work, width = build_and_count(recipe, vocabulary, width, "meta")
    except (
        NotImplementedError,
        RuntimeError,
    ):  # what is computed depends on numbers, as in a mixture of experts
        with torch.device("meta"):
            size = sum(parameter.numel() for parameter in recipe.model(vocabulary).parameters())
        if size > MAX_PARAMETERS:
            raise ValueError(
                f"{what}: {size:,} parameters, which must be at hand to count the FLOPs of what they choose, are too many for a laptop; "
                "give it fewer layers, as in model.stack.layers=1"
            ) from None
        model, found, said, work, width = build_and_count(recipe, vocabulary, width, "cpu")
    held, shared = costs.weights(model, found)
    owner = {id(tensor): name for name, tensor in model.named_parameters()}
    groups: dict[str, PartSummary] = {}
    for place, module in found.items():
        one = describe(place, module, found, said)
        one.weights = {name: list(tensor.shape) for name, tensor in held[place].items()}
        one.shared = {name: owner[id(tensor)] for name, tensor in shared[place].items()}
        part = groups.setdefault(
            repr((one.name, one.options, one.defaults, one.weights, one.shared, one.letters)), one
        )
        part.places.append(place or "model")
        part.times += 1
        part.parameters += sum(tensor.numel() for tensor in held[place].values())
        part.flops += work[place] / width
    for part in groups.values():
        part.places = merge_places(part.places)
    total = sum(part.parameters for part in groups.values())
    return Explanation(
        " ".join([what, *overrides]),
        vocabulary,
        width,
        total,
        sum(work.values()) / width,
        list(groups.values()),
        recipe.tree,
    )


def build_and_count(
    recipe: Config, vocabulary: int, width: int, device: str
) -> tuple[nn.Module, dict[str, nn.Module], costs.ConstructorArgs, dict[str, int], int]:
    """The model, its parts, what they were made with, their FLOPs, and over how many tokens."""
    said: costs.ConstructorArgs = {}
    with costs.record_constructor_args(said), torch.device(device):
        model = recipe.model(vocabulary)
    width = min(width, *(limit for limit in (model.context, model.source_context, width) if limit))
    found = costs.explained_parts(model)
    return model, found, said, costs.flops(model, found, vocabulary, width), width


def describe(
    place: str, module: nn.Module, found: dict[str, nn.Module], said: costs.ConstructorArgs
) -> PartSummary:
    """The part at a place, not yet counted."""
    equation, notes = notation.parse(type(module).__doc__)
    around = [place]
    while around[-1]:
        around.append(costs.owner_of(around[-1].rpartition(".")[0], found))
    letters = {
        letter: size
        for letter in [*LETTERS, "K"]
        if uses_letter(letter, equation) and (size := letter_size(letter, around, found, said))
    }
    made, usual = options(type(module), said.get(id(module), {}))
    return PartSummary(
        type(module).__name__, [], len(around) - 1, 0, made, usual, equation, notes, letters, {}, {}
    )


def options(kind: type, given: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The plain values that a part was made with: its sizes and what differs from the default, and the rest. The parts inside it are listed
    themselves."""
    plain = {name: value for name, value in given.items() if isinstance(value, int | float | str)}
    known = {name: parameter.default for name, parameter in inspect.signature(kind).parameters.items()}
    usual = {
        name: value
        for name, value in plain.items()
        if name in known and (value == known[name] or repr(value) == "0.0")
    }
    return {name: value for name, value in plain.items() if name not in usual}, usual


def uses_letter(letter: str, lines: list[str]) -> bool:
    """Whether a letter stands by itself, or as the last of a series (head_H), and not as a matrix's name (W_K)."""
    return any(
        re.search(rf"(?<![A-Za-z0-9])(?<![A-Z]_)(?<!\[){letter}(?![A-Za-z0-9-])", line) for line in lines
    )


def letter_size(
    letter: str, around: list[str], found: dict[str, nn.Module], said: costs.ConstructorArgs
) -> int | None:
    """The size of a letter at a part, from its own options or those of the nearest part around it that has it."""
    if letter == "K":
        heads, dim = (letter_size(one, around, found, said) for one in "HD")
        own = said.get(id(found[around[0]]), {})
        return own.get("dim") if set(own) == {"dim"} or not heads or not dim else dim // heads
    for place in around:
        options, module = said.get(id(found[place]), {}), found[place]
        value = getattr(module, "dim", None) if letter == "D" else None
        value = value or options.get(LETTERS[letter])
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return None


def merge_places(places: Sequence[str]) -> list[str]:
    """Places that differ in numbers only as one: blocks.0.norm, blocks.1.norm → blocks.0–1.norm."""
    found: dict[str, list[str]] = {}
    for place in places:
        found.setdefault(re.sub(r"\d+", "#", place), []).append(place)
    return [joined for alike in found.values() for joined in span(alike)]


def span(places: list[str]) -> list[str]:
    """Places of one pattern as one, where their numbers leave no gap."""
    numbers = [[int(number) for number in re.findall(r"\d+", place)] for place in places]
    columns = [sorted(set(column)) for column in zip(*numbers, strict=True)]
    whole = all(column == list(range(column[0], column[-1] + 1)) for column in columns)
    if not whole or math.prod(map(len, columns)) != len(places):
        return places
    spans = iter(f"{column[0]}–{column[-1]}" if len(column) > 1 else str(column[0]) for column in columns)
    return [re.sub(r"\d+", lambda _: next(spans), places[0])]
