"""The page of a beam search: its tree as a picture, and every step as a table."""

from __future__ import annotations

from seqloom.inspect.pages import picture_page
from seqloom.inspect.search_tree import Beam, SearchBranch
from seqloom.report.page import escape, shown_token, table

COLUMN, ROW, MARGIN = 178, 30, 12
MOST_STEPS = 60  # drawn; the tables have all
MARKS = {"lives": "●", "outcome": "■", "pruned": "○"}
TREE_STYLE = """
svg.tree text { font: 13px system-ui, sans-serif; fill: var(--ink); } svg.tree text.pruned { fill: var(--soft); opacity: .75; }
svg.tree path { fill: none; stroke: var(--line); stroke-width: 1.5; } svg.tree path.kept { stroke: var(--soft); stroke-width: 2; }
svg.tree path.asked { stroke: var(--mark); stroke-width: 3; } svg.tree path.pruned { stroke-dasharray: 4 3; }
svg.tree text.asked { fill: var(--mark); font-weight: 700; }
"""


def beam_page(found: Beam) -> str:
    """The tree from left to right: a column for each step, its branches by rank."""
    why = "".join(f"<li>{escape(line)}</li>" for line in found.why_lines)
    cut = (
        f" The first {MOST_STEPS} of {len(found.steps)} steps are drawn."
        if len(found.steps) > MOST_STEPS
        else ""
    )
    asked = " The thick line is the target." if found.why is not None else ""
    parts = [
        f"<h1>Beam search</h1><p class=soft>{escape(found.text)}</p>",
        f"<p>Result: <strong>{escape(found.answer) or '(no text)'}</strong>, score {found.score:.4f}, ln P {found.logprob:.4f}; beam {found.beam}, "
        f"length penalty {found.length_penalty:g}.</p>",
        f"<ul>{why}</ul>" if why else "",
        f"<p class=soft>{MARKS['lives']} kept, {MARKS['outcome']} ended here, {MARKS['pruned']} pruned, with dashed lines.{asked}{cut} "
        "The number is ln P of the text so far.</p>",
        tree(found.steps[:MOST_STEPS]),
    ]
    for number, step in enumerate(found.steps, 1):
        rows = [
            [one.rank, one.text, f"{one.logprob:.4f}", one.status, "yes" if one.asked else ""] for one in step
        ]
        head = ["rank", "text so far", "ln P", "status", "target"]
        parts.append(f"<details><summary>Step {number}</summary>{table(head, rows, text=(1,))}</details>")
    return picture_page("Beam search", "\n".join(parts), TREE_STYLE)


def tree(steps: tuple[tuple[SearchBranch, ...], ...]) -> str:
    """The branches of each step below one another, with a line from the branch that each continues."""
    width = COLUMN * len(steps) + 2 * MARGIN
    height = ROW * max((len(step) for step in steps), default=1) + 2 * MARGIN
    lines, words = [], []
    ends: list[list[float]] = []  # where the words of each step end
    for column, step in enumerate(steps):
        here = []
        for row, one in enumerate(step):
            x, y = place(column, row)
            kind = "asked" if one.asked else "pruned" if one.status == "pruned" else "kept"
            if one.parent is not None:
                from_x, from_y = place(column - 1, one.parent)
                start = from_x + ends[-1][one.parent]
                dashes = " pruned" if one.asked and one.status == "pruned" else ""
                lines.append(
                    f'<path class="{kind}{dashes}" d="M{start} {from_y}C{start + 30} {from_y} {x - 34} {y} {x - 4} {y}"/>'
                )
            token = shown_token(one.token)
            label = token if len(token) <= 9 else token[:8] + "…"
            here.append(34.0 + 8 * len(label) + 6 * len(f"{one.logprob:.1f}"))
            title = f"<title>rank {one.rank}, {one.status}: {escape(one.text)}</title>"
            words.append(
                f'<text class={kind} x="{x}" y="{y + 4}">{MARKS[one.status]} {escape(label)} '
                f'<tspan font-size="10">{one.logprob:.1f}</tspan>{title}</text>'
            )
        ends.append(here)
    return (
        f'<div class=wide><svg class=tree role=img aria-label="search tree; the tables below have all of it" width="{width}" '
        f'height="{height}" xmlns="http://www.w3.org/2000/svg">{"".join(lines)}{"".join(words)}</svg></div>'
    )


def place(column: int, row: int) -> tuple[int, int]:
    return MARGIN + COLUMN * column, MARGIN + ROW * row + ROW // 2
