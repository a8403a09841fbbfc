"""The differences between two models."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from seqloom.equations.parts import Explanation, PartSummary, format_value
from seqloom.report import frame
from seqloom.results import Result

MISSING = object()  # in place of a value that one side does not have


@dataclass(frozen=True)
class DiffRow(Result):
    """One value that differs; None for a side that does not have it."""

    what: str
    first: Any
    second: Any


@dataclass(frozen=True)
class PartDifference(Result):
    """The differences at one place."""

    place: str
    rows: list[DiffRow]


@dataclass(frozen=True)
class Difference(Result):
    """All differences between two explained models."""

    first: str
    second: str
    totals: list[DiffRow]
    parts: list[PartDifference]
    config: list[DiffRow]  # outside the model

    def __bool__(self) -> bool:
        return bool(self.totals or self.parts or self.config)

    def to_dict(self) -> dict[str, Any]:
        return {**super().to_dict(), "equal": not self}

    def to_text(self) -> str:
        """The differences for a terminal."""
        from seqloom.equations import text

        return "\n".join(text.text_differences(self)) + "\n"

    def to_markdown(self) -> str:
        """The differences as Markdown tables."""
        from seqloom.equations import text

        return "\n".join(text.markdown_differences(self)) + "\n"

    def to_html(self) -> str:
        """The differences as a page that needs no network."""
        from seqloom.equations import html

        return html.comparison(self)

    def _repr_html_(self) -> str:
        return frame(self.to_html())


def diff(first: Explanation, second: Explanation) -> Difference:
    """The differences between two models: sizes and costs, parts, and the rest of their configs except the files."""
    totals = rows(counts(first), counts(second))
    parts: list[PartDifference] = []
    shown_equations: list[DiffRow] = []  # each pair of equations is shown once
    for left, right in pairs(first.parts, second.parts):
        describe = fields if left and right and left.name == right.name else summary
        sides = [describe(part) if part else {} for part in (left, right)]
        changed = [row for row in rows(*sides) if row not in shown_equations]
        shown_equations += [row for row in changed if row.what == "equation"]
        part = left or right
        if changed and part:
            parts.append(PartDifference(part.places[0], changed))
    outside = [
        {key: value for key, value in side.config.items() if key not in ("model", "files")}
        for side in (first, second)
    ]
    return Difference(first.source, second.source, totals, parts, rows(*map(leaves, outside)))


def counts(explanation: Explanation) -> dict[str, Any]:
    """The sizes and costs of the model."""
    return {
        "vocabulary": explanation.vocabulary,
        "length": explanation.length,
        "parameters": explanation.parameters,
        "flops": explanation.flops,
    }


def pairs(
    first: list[PartSummary], second: list[PartSummary]
) -> list[tuple[PartSummary | None, PartSummary | None]]:
    """Which part of one model corresponds to which of the other.

    Pairs parts of the same type at the same place, then of the same type, then at the same place; the rest is unpaired.
    """
    unpaired_left = list(first)
    unpaired_right = list(second)
    partner: dict[int, PartSummary] = {}
    criteria: tuple[Callable[[PartSummary, PartSummary], bool], ...] = (
        lambda a, b: a.name == b.name and a.places[0] == b.places[0],
        lambda a, b: a.name == b.name,
        lambda a, b: a.places[0] == b.places[0],
    )
    for corresponds in criteria:
        for left in list(unpaired_left):
            right = next((part for part in unpaired_right if corresponds(left, part)), None)
            if right is not None:
                partner[id(left)] = right
                unpaired_left.remove(left)
                unpaired_right.remove(right)
    return [*((left, partner.get(id(left))) for left in first), *((None, right) for right in unpaired_right)]


def fields(part: PartSummary) -> dict[str, Any]:
    """Everything in which a part can differ from another of the same type."""
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
    """A part in short, to show it beside one of another type, or beside none."""
    weights = [f"{name} {format_value(shape)}" for name, shape in {**part.weights, **part.shared}.items()]
    values = {
        "part": part.title(),
        "equation": part.equation,
        "weights": weights,
        "parameters": part.parameters,
        "flops": part.flops,
    }
    return {name: value for name, value in values.items() if value}


def leaves(tree: Any, place: str = "") -> dict[str, Any]:
    """Dotted place → value, for every value of a config."""
    if not isinstance(tree, dict):
        return {place: tree}
    result: dict[str, Any] = {}
    for key, value in tree.items():
        result |= leaves(value, f"{place}.{key}".removeprefix("."))
    return result


def rows(first: dict[str, Any], second: dict[str, Any]) -> list[DiffRow]:
    """A row for each name whose values differ."""
    names = [*first, *(name for name in second if name not in first)]
    return [
        DiffRow(name, first.get(name), second.get(name))
        for name in names
        if first.get(name, MISSING) != second.get(name, MISSING)
    ]
