"""Two models side by side: only what differs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from seqloom.equations.parts import Explanation, PartSummary, value

MISSING = object()
COUNTS = ("vocabulary", "length", "parameters", "flops")


@dataclass
class DiffRow:
    """One thing that differs; None where a side has no such thing."""

    what: str
    first: Any
    second: Any


@dataclass
class PartDifference:
    """What differs at one place."""

    place: str
    rows: list[DiffRow]


@dataclass
class Difference:
    first: str
    second: str
    totals: list[DiffRow]
    parts: list[PartDifference]
    config: list[DiffRow]  # outside the model

    def __bool__(self) -> bool:
        return bool(self.totals or self.parts or self.config)

    def json(self) -> dict[str, Any]:
        return {**asdict(self), "equal": not self}


def diff(first: Explanation, second: Explanation) -> Difference:
    """What two explained models differ in: sizes and costs, parts, and the rest of their configs but the files."""
    totals = rows(
        {name: getattr(first, name) for name in COUNTS}, {name: getattr(second, name) for name in COUNTS}
    )
    parts: list[PartDifference] = []
    said: list[DiffRow] = []  # equations, each pair of them once
    for one, other in pairs(first.parts, second.parts):
        view = fields if one and other and one.name == other.name else summary
        found = [
            row for row in rows(*(view(part) if part else {} for part in (one, other))) if row not in said
        ]
        said += [row for row in found if row.what == "equation"]
        if found:
            parts.append(PartDifference((one or other).places[0], found))
    outside = [
        {key: value for key, value in side.config.items() if key not in ("model", "files")}
        for side in (first, second)
    ]
    return Difference(first.source, second.source, totals, parts, rows(*map(leaves, outside)))


def pairs(
    first: list[PartSummary], second: list[PartSummary]
) -> list[tuple[PartSummary | None, PartSummary | None]]:
    """Which part answers to which: the same kind at the same place, then the same kind, then the same place; the others stand alone."""
    left, right, mate = list(first), list(second), {}
    alike = (
        lambda a, b: a.name == b.name and a.places[0] == b.places[0],
        lambda a, b: a.name == b.name,
        lambda a, b: a.places[0] == b.places[0],
    )
    for fits in alike:
        for one in list(left):
            other = next((part for part in right if fits(one, part)), None)
            if other is not None:
                mate[id(one)] = other
                left.remove(one)
                right.remove(other)
    return [*((one, mate.get(id(one))) for one in first), *((None, other) for other in right)]


def fields(part: PartSummary) -> dict[str, Any]:
    """A part as what can differ from another of its kind."""
    weights = {f"weight {name}": shape for name, shape in {**part.weights, **part.shared}.items()}
    costs = {"times": part.times, "parameters": part.parameters, "flops": part.flops}
    return {
        "places": part.places,
        "equation": part.equation,
        **part.defaults,
        **part.options,
        **part.letters,
        **weights,
        **costs,
    }


def summary(part: PartSummary) -> dict[str, Any]:
    """A part as what tells it from one of another kind, or from none."""
    weights = [f"{name} {value(shape)}" for name, shape in {**part.weights, **part.shared}.items()]
    told = {
        "part": part.title(),
        "equation": part.equation,
        "weights": weights,
        "parameters": part.parameters,
        "flops": part.flops,
    }
    return {name: one for name, one in told.items() if one}


def leaves(tree: Any, place: str = "") -> dict[str, Any]:
    """Dotted place → value."""
    if not isinstance(tree, dict):
        return {place: tree}
    return {
        name: value
        for key, inner in tree.items()
        for name, value in leaves(inner, f"{place}.{key}".removeprefix(".")).items()
    }


def rows(first: dict[str, Any], second: dict[str, Any]) -> list[DiffRow]:
    names = [*first, *(name for name in second if name not in first)]
    return [
        DiffRow(name, first.get(name), second.get(name))
        for name in names
        if first.get(name, MISSING) != second.get(name, MISSING)
    ]
