"""Explanations and comparisons as text for a terminal and as Markdown; page.py makes the HTML."""

from __future__ import annotations

import textwrap

from seqloom.equations.diff import Difference, DiffRow, PartDifference
from seqloom.equations.parts import Explanation, PartSummary, value

NOTE = (
    "FLOPs are those of products (a multiplication and an addition are two), forward, for each token of a sequence of T; work by coordinate "
    "is left out. Training takes three times as many: the backward pass has two products for each. A shared weight counts where it first stands."
)


def sizes(found: Explanation) -> str:
    return (
        f"{found.parameters:,} parameters, {format_mflops(found.flops)} a token forward, {format_mflops(3 * found.flops)} in training "
        f"(V = {found.vocabulary:,}, T = {found.length:,})"
    )


def largest_part(found: Explanation) -> str:
    """Which part has most [G7]."""
    name, times, parameters, _ = found.ranking()[0]
    many = f"The {times} {name} together have" if times > 1 else f"{name} has"
    return f"{many} most parameters: {parameters:,} of {found.parameters:,} ({share(parameters, found.parameters)})."


def table(found: Explanation) -> list[list[str]]:
    """The parts by parameters, with shares, and their sum."""
    rows = [["part", "times", "parameters", "share", "FLOPs a token", "share"]]
    for name, times, parameters, flops in found.ranking():
        cost = [f"{flops:,.0f}", share(flops, found.flops)]
        rows.append([name, str(times), f"{parameters:,}", share(parameters, found.parameters), *cost])
    return [*rows, ["sum", "", f"{found.parameters:,}", "100.0 %", f"{found.flops:,.0f}", "100.0 %"]]


def shown_before(part: PartSummary, whole: Explanation) -> bool:
    """Whether a part of this kind, with other options, has said its equation before."""
    return next(other for other in whole.parts if other.name == part.name) is not part


def facts(part: PartSummary, whole: Explanation) -> list[str]:
    """Letters, weights and costs, a line each."""
    lines = ["equation as above" if shown_before(part, whole) and part.equation else ""]
    lines += [", ".join(f"{letter} = {size:,}" for letter, size in part.letters.items())]
    weights = [f"{name} {value(shape)}" for name, shape in part.weights.items()] + [
        f"{name} = {where}" for name, where in part.shared.items()
    ]
    lines.append(f"weights: {', '.join(weights)}" if weights else "")
    costs = (
        [f"{part.parameters:,} parameters ({share(part.parameters, whole.parameters)})"]
        if part.parameters
        else []
    )
    costs += [f"{format_mflops(part.flops)} a token ({share(part.flops, whole.flops)})"] if part.flops else []
    return [line for line in [*lines, ", ".join(costs)] if line]


def text(found: Explanation) -> list[str]:
    lines = [f"{found.source}: {sizes(found)}", "", *columns(table(found)), "", largest_part(found), ""]
    for part in found.parts:
        indent = "  " * part.depth
        lines.append(f"{indent}{', '.join(part.places)}: {part.title()}")
        fresh = not shown_before(part, found)
        lines += [f"{indent}      {line}" for line in part.equation if fresh]
        for note in part.notes if fresh else ():
            lines += textwrap.wrap(
                note, 120, initial_indent=f"{indent}    ", subsequent_indent=f"{indent}    "
            )
        lines += [f"{indent}    {line}" for line in facts(part, found)]
        lines.append("")
    return [*lines, *textwrap.wrap(NOTE, 120)]


def markdown(found: Explanation) -> list[str]:
    lines = [
        f"# {found.source}",
        "",
        f"{sizes(found)}.",
        "",
        largest_part(found),
        "",
        *grid(table(found)),
        "",
    ]
    for part in found.parts:
        lines += [
            f"{'#' * min(part.depth + 2, 6)} {part.title()}",
            "",
            ", ".join(f"`{place}`" for place in part.places),
            "",
        ]
        fresh = not shown_before(part, found)
        if part.equation and fresh:
            lines += ["```text", *part.equation, "```", ""]
        for paragraph in part.notes if fresh else ():
            lines += [paragraph, ""]
        lines += [*(f"- {line}" for line in facts(part, found)), ""] if facts(part, found) else []
    return [*lines, NOTE]


def sections(found: Difference) -> list[PartDifference]:
    """Everything that differs, under headings."""
    groups = [
        PartDifference("the whole model", found.totals),
        *found.parts,
        PartDifference("outside the model", found.config),
    ]
    return [group for group in groups if group.rows]


def text_differences(found: Difference) -> list[str]:
    if not found:
        return [f"no difference between {found.first} and {found.second}"]
    lines = [*two_columns("", found.first, found.second), ""]
    for group in sections(found):
        lines += [
            group.place,
            *(line for row in group.rows for line in two_columns(f"  {row.what}", *sides(row))),
            "",
        ]
    return lines[:-1]


def markdown_differences(found: Difference) -> list[str]:
    lines = [f"# {found.first} and {found.second}", ""]
    if not found:
        return [*lines, "No difference."]
    for group in sections(found):
        rows = [
            ["", f"{found.first}", f"{found.second}"],
            *([row.what, *(one.replace("\n", "<br>") for one in sides(row))] for row in group.rows),
        ]
        lines += [f"## {group.place}", "", *grid(rows, numbers=False), ""]
    return lines[:-1]


def sides(row: DiffRow) -> tuple[str, str]:
    made = [
        value(one) if row.what != "flops" or one is None else f"{one:,.0f}" for one in (row.first, row.second)
    ]
    return made[0], made[1]


def two_columns(label: str, first: str, second: str, width: int = 46) -> list[str]:
    """A label and two columns, wrapped."""
    cut = [
        [line for piece in side.split("\n") for line in textwrap.wrap(piece, width) or [""]]
        for side in (first, second)
    ]
    height = max(map(len, cut))
    left, right = (side + [""] * (height - len(side)) for side in cut)
    labels = [label] + [""] * (height - 1)
    return [f"{a:24.24} {b:{width}} │ {c}".rstrip() for a, b, c in zip(labels, left, right, strict=True)]


def format_mflops(flops: float) -> str:
    return f"{flops / 1e6:,.2f} MFLOP" if flops >= 1e4 else f"{flops:,.0f} FLOP"


def share(one: float, whole: float) -> str:
    return f"{100 * one / whole:.1f} %" if whole else "–"


def columns(rows: list[list[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            [
                f"{row[0]:{widths[0]}}",
                *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True)),
            ]
        )
        for row in rows
    ]


def grid(rows: list[list[str]], numbers: bool = True) -> list[str]:
    """A table of Markdown."""
    rows = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---", *(["---:"] if numbers else ["---"]) * (len(rows[0]) - 1)]
    return [f"| {' | '.join(row)} |" for row in [rows[0], rule, *rows[1:]]]
