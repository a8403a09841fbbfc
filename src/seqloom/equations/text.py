"""Explanations and differences as text for a terminal and as Markdown; `html.py` makes the HTML."""

from __future__ import annotations

import textwrap

from seqloom.equations.diff import Difference, DiffRow, PartDifference
from seqloom.equations.parts import Explanation, PartSummary, format_value

LABEL = 30  # columns of the name of a value; a longer name moves its line
NOTE = (
    "FLOPs are those of matrix products (a multiplication and an addition are two), forward, for each token of a "
    "sequence of T; elementwise work is left out. Training takes three times as many: the backward pass has two "
    "products for each. A shared weight counts for the first part that has it."
)


def sizes(explanation: Explanation) -> str:
    """The size and the cost of the model in one line."""
    forward, training = (format_mflops(flops) for flops in (explanation.flops, 3 * explanation.flops))
    return (
        f"{explanation.parameters:,} parameters, {forward} a token forward, {training} in training "
        f"(V = {explanation.vocabulary:,}, T = {explanation.length:,})"
    )


def largest_part(explanation: Explanation) -> str:
    """The type of part with most parameters [G7]."""
    name, times, parameters, _ = explanation.ranking()[0]
    subject = f"The {times} {name} together have" if times > 1 else f"{name} has"
    percentage = format_share(parameters, explanation.parameters)
    return f"{subject} most parameters: {parameters:,} of {explanation.parameters:,} ({percentage})."


def table(explanation: Explanation) -> list[list[str]]:
    """The parts by parameters, with percentages, and their sum."""
    rows = [["part", "times", "parameters", "share", "FLOPs a token", "share"]]
    for name, times, parameters, flops in explanation.ranking():
        cells = [name, str(times), f"{parameters:,}", format_share(parameters, explanation.parameters)]
        rows.append([*cells, f"{flops:,.0f}", format_share(flops, explanation.flops)])
    total = ["sum", "", f"{explanation.parameters:,}", "100.0 %", f"{explanation.flops:,.0f}", "100.0 %"]
    return [*rows, total]


def shown_before(part: PartSummary, explanation: Explanation) -> bool:
    """Whether a part of the same type, with other options, comes earlier and shows the equation."""
    return next(other for other in explanation.parts if other.name == part.name) is not part


def facts(part: PartSummary, explanation: Explanation) -> list[str]:
    """Letters, weights and costs of a part, a line each."""
    weights = [f"{name} {format_value(shape)}" for name, shape in part.weights.items()]
    weights += [f"{name} = {owner}" for name, owner in part.shared.items()]
    costs = []
    if part.parameters:
        percentage = format_share(part.parameters, explanation.parameters)
        costs.append(f"{part.parameters:,} parameters ({percentage})")
    if part.flops:
        costs.append(f"{format_mflops(part.flops)} a token ({format_share(part.flops, explanation.flops)})")
    lines = [
        "equation as above" if shown_before(part, explanation) and part.equation else "",
        ", ".join(f"{letter} = {size:,}" for letter, size in part.letters.items()),
        f"weights: {', '.join(weights)}" if weights else "",
        ", ".join(costs),
    ]
    return [line for line in lines if line]


def text(explanation: Explanation) -> list[str]:
    """The explanation for a terminal."""
    lines = [f"{explanation.source}: {sizes(explanation)}", "", *columns(table(explanation)), ""]
    lines += [largest_part(explanation), ""]
    for part in explanation.parts:
        indent = "  " * part.depth
        lines.append(f"{indent}{', '.join(part.places)}: {part.title()}")
        if not shown_before(part, explanation):
            lines += [f"{indent}      {line}" for line in part.equation]
            for note in part.notes:
                margin = f"{indent}    "
                lines += textwrap.wrap(note, 120, initial_indent=margin, subsequent_indent=margin)
        lines += [f"{indent}    {line}" for line in facts(part, explanation)]
        lines.append("")
    return [*lines, *textwrap.wrap(NOTE, 120)]


def markdown(explanation: Explanation) -> list[str]:
    """The explanation as Markdown."""
    lines = [f"# {explanation.source}", "", f"{sizes(explanation)}.", "", largest_part(explanation), ""]
    lines += [*grid(table(explanation)), ""]
    for part in explanation.parts:
        lines += [f"{'#' * min(part.depth + 2, 6)} {part.title()}", ""]
        lines += [", ".join(f"`{place}`" for place in part.places), ""]
        if not shown_before(part, explanation):
            if part.equation:
                lines += ["```text", *part.equation, "```", ""]
            for paragraph in part.notes:
                lines += [paragraph, ""]
        if part_facts := facts(part, explanation):
            lines += [*(f"- {line}" for line in part_facts), ""]
    return [*lines, NOTE]


def sections(difference: Difference) -> list[PartDifference]:
    """All differences, under headings."""
    groups = [
        PartDifference("the whole model", difference.totals),
        *difference.parts,
        PartDifference("outside the model", difference.config),
    ]
    return [group for group in groups if group.rows]


def text_differences(difference: Difference) -> list[str]:
    """The differences for a terminal, in two columns."""
    if not difference:
        return [f"no difference between {difference.first} and {difference.second}"]
    lines = [*two_columns("", difference.first, difference.second), ""]
    for group in sections(difference):
        owner = only_side(group)
        if owner is None:
            lines.append(group.place)
            for row in group.rows:
                lines += two_columns(f"  {row.what}", *sides(row))
        else:  # nothing beside it: the whole width is free
            lines.append(f"{group.place}, only in {(difference.first, difference.second)[owner]}")
            for row in group.rows:
                lines += one_column(f"  {row.what}", sides(row)[owner])
        lines.append("")
    return lines[:-1]


def only_side(group: PartDifference) -> int | None:
    """The side that all values of a group belong to, 0 or 1; None if both sides have values."""
    there = [
        any(value is not None for value in side)
        for side in zip(*((row.first, row.second) for row in group.rows), strict=True)
    ]
    return None if all(there) else there.index(True)


def markdown_differences(difference: Difference) -> list[str]:
    """The differences as Markdown."""
    lines = [f"# {difference.first} and {difference.second}", ""]
    if not difference:
        return [*lines, "No difference."]
    for group in sections(difference):
        rows = [["", difference.first, difference.second]]
        for row in group.rows:
            rows.append([row.what, *(side.replace("\n", "<br>") for side in sides(row))])
        lines += [f"## {group.place}", "", *grid(rows, numbers=False), ""]
    return lines[:-1]


def sides(row: DiffRow) -> tuple[str, str]:
    """The two values of a row as text."""
    if row.what == "flops":
        first, second = (
            "–" if flops is None else f"{flops:,.0f} FLOP a token" for flops in (row.first, row.second)
        )
        return first, second
    return format_value(row.first), format_value(row.second)


def one_column(label: str, value: str) -> list[str]:
    """A label and a column, wrapped."""
    lines = [line for paragraph in value.split("\n") for line in textwrap.wrap(paragraph, 112) or [""]]
    return [f"{label if not index else '':14} {line}".rstrip() for index, line in enumerate(lines)]


def two_columns(label: str, first: str, second: str, width: int = 46) -> list[str]:
    """A label and two columns, wrapped."""
    wrapped = [
        [line for paragraph in side.split("\n") for line in textwrap.wrap(paragraph, width) or [""]]
        for side in (first, second)
    ]
    height = max(map(len, wrapped))
    left, right = (lines + [""] * (height - len(lines)) for lines in wrapped)
    labels = [label] + [""] * (height - 1)
    return [f"{a:{LABEL}} {b:{width}} │ {c}".rstrip() for a, b, c in zip(labels, left, right, strict=True)]


def format_mflops(flops: float) -> str:
    return f"{flops / 1e6:,.2f} MFLOP" if flops >= 1e4 else f"{flops:,.0f} FLOP"


def format_share(value: float, total: float) -> str:
    return f"{100 * value / total:.1f} %" if total else "–"


def columns(rows: list[list[str]]) -> list[str]:
    """A table in aligned columns, the first to the left."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    result = []
    for first, *rest in rows:
        padded = [f"{cell:>{width}}" for cell, width in zip(rest, widths[1:], strict=True)]
        result.append("  ".join([f"{first:{widths[0]}}", *padded]))
    return result


def grid(rows: list[list[str]], numbers: bool = True) -> list[str]:
    """A table in Markdown; `numbers` aligns all columns but the first to the right."""
    escaped = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    rule = ["---", *(["---:"] if numbers else ["---"]) * (len(rows[0]) - 1)]
    return [f"| {' | '.join(row)} |" for row in [escaped[0], rule, *escaped[1:]]]
