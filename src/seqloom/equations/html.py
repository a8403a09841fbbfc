"""Explanations and differences as one self-contained HTML file: MathML, light and dark colours."""

from __future__ import annotations

import re
from html import escape

from seqloom.equations import notation, text
from seqloom.equations.diff import Difference, DiffRow
from seqloom.equations.mathml import math
from seqloom.equations.parts import Explanation, PartSummary
from seqloom.report import page

STYLE = """
:root { --bar: light-dark(#3a6ea5, #6ea8dc); --bar2: light-dark(#c07a2c, #dca35c); }
h3 { font-size: 1rem; margin: 0; }
h3 small { font-weight: 400; color: var(--soft); }
p { margin: .35rem 0; }
.lead, .note, .places, footer { color: var(--soft); }
.note, .places, .facts, footer { font-size: .875rem; }
.places, code { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: .8rem; overflow-wrap: anywhere; }
math { font-family: "STIX Two Math", "Latin Modern Math", "Cambria Math", math; font-size: 1.15em; }
msub > :nth-child(2), msubsup > :nth-child(2) { transform: translateY(.13em); } /* fonts without tables for mathematics set indices too high */
.equation { line-height: 1.9; }
.equation math { margin-right: .45em; }
.reference { color: var(--soft); font-size: .75rem; white-space: nowrap; }
.words { font-size: .9rem; }
article { background: var(--wash); border: 1px solid var(--line); border-radius: .5rem; padding: .8rem 1.1rem;
  margin: .6rem 0 .6rem calc(var(--depth) * 1.4rem); }
th, td { text-align: left; white-space: normal; font-size: .9rem; }
.equation { overflow-x: auto; overflow-y: hidden; }
.number { text-align: right; white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
tr.sum td { font-weight: 600; border-top: 2px solid var(--line); }
.bar { display: block; height: .4rem; border-radius: .2rem; background: var(--bar); margin: .1rem 0; }
.bar.work { background: var(--bar2); }
td.bars { width: 22%; padding-top: .55rem; }
.two td:first-child { width: 16%; color: var(--soft); }
.two td { width: 42%; }
.facts { margin: .4rem 0 0; padding: 0; list-style: none; color: var(--soft); overflow-wrap: anywhere; }
footer { margin-top: 2.5rem; border-top: 1px solid var(--line); padding-top: .8rem; }
@media (max-width: 40rem) { article { margin-left: calc(var(--depth) * .5rem); } td.bars { display: none; } }
"""


def explanation(result: Explanation) -> str:
    """The page of an explanation."""
    body = [
        f"<h1>{escape(result.source)}</h1>",
        f'<p class="lead">{escape(text.sizes(result))}</p>',
        "<h2>Which part has most</h2>",
        f"<p>{escape(text.largest_part(result))}</p>",
        ranking(result),
        "<h2>Equations</h2>",
        *(article(part, result) for part in result.parts),
        f"<footer>{escape(text.NOTE)}</footer>",
    ]
    return document(result.source, body)


def comparison(difference: Difference) -> str:
    """The page of a difference."""
    body = [f"<h1>{escape(difference.first)} and {escape(difference.second)}</h1>"]
    if not difference:
        body.append("<p>No difference.</p>")
    names = f"<tr><th></th><th>{escape(difference.first)}</th><th>{escape(difference.second)}</th></tr>"
    for group in text.sections(difference):
        rows = "".join(f"<tr><td>{escape(row.what)}</td>{sides(row)}</tr>" for row in group.rows)
        body.append(f"<h2>{escape(group.place)}</h2>")
        body.append(f'<div class="wide"><table class="two">{names}{rows}</table></div>')
    return document(f"{difference.first} and {difference.second}", body)


def sides(row: DiffRow) -> str:
    """The two cells of a row."""
    cells = []
    for value, value_text in zip((row.first, row.second), text.sides(row), strict=True):
        if row.what == "equation" and value:
            cells.append(equation(value))
        else:
            cells.append("<br>".join(escape(line) for line in value_text.splitlines()))
    return "".join(f"<td>{cell}</td>" for cell in cells)


def ranking(result: Explanation) -> str:
    """The table of parts, with bars for parameters and FLOPs."""
    head, *rows, total = text.table(result)
    lines = [f"<tr>{cells(head, 'th')}<th></th></tr>"]
    for row, (_, _, parameters, flops) in zip(rows, result.ranking(), strict=True):
        bars = bar(parameters / max(result.parameters, 1)) + bar(flops / max(result.flops, 1), " work")
        lines.append(f'<tr>{cells(row)}<td class="bars">{bars}</td></tr>')
    lines.append(f'<tr class="sum">{cells(total)}<td></td></tr>')
    return f'<div class="wide"><table>{"".join(lines)}</table></div>'


def cells(row: list[str], tag: str = "td") -> str:
    """The cells of a row; all but the first are numbers."""
    first, *numbers = map(escape, row)
    return f"<{tag}>{first}</{tag}>" + "".join(f"<{tag} class=number>{cell}</{tag}>" for cell in numbers)


def bar(fraction: float, modifier: str = "") -> str:
    return f'<span class="bar{modifier}" style="width: {100 * fraction:.1f}%"></span>'


def article(part: PartSummary, result: Explanation) -> str:
    """One part: title, places, equation, notes, and its letters, weights and costs."""
    name, _, options = part.title().partition(" (")
    small = f" <small>{escape(options[:-1])}</small>" if options else ""
    lines = [f"<h3>{escape(name)}{small}</h3>", f'<p class="places">{escape(", ".join(part.places))}</p>']
    if not text.shown_before(part, result):
        lines.append(equation(part.equation))
        lines += [f'<p class="note">{words(note)}</p>' for note in part.notes]
    items = "".join(f"<li>{escape(fact)}</li>" for fact in text.facts(part, result))
    lines.append(f'<ul class="facts">{items}</ul>')
    return f'<article style="--depth: {part.depth}">{"".join(lines)}</article>'


def equation(lines: list[str]) -> str:
    """The lines of a docstring with their formulas in MathML. A line that begins with words continues the one before."""
    names = notation.equation_names(lines)
    rows: list[str] = []
    for line in lines:
        pieces = notation.pieces(line, names)
        if not rows or pieces[0].kind == "math":
            rows.append("")
        rows[-1] += "".join(map(render_piece, pieces))
    return "".join(f'<p class="equation">{row}</p>' for row in rows)


def render_piece(piece: notation.Piece) -> str:
    """A piece with a space before it, unless it begins with punctuation."""
    space = "" if piece.text[0] in ".,;:" else " "
    if piece.kind == "math":
        return space + math(piece.text)
    style = "reference" if piece.kind == "reference" else "words"
    return f'{space}<span class="{style}">{words(piece.text)}</span>'


def words(prose: str) -> str:
    """Prose as HTML, with text in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(prose))


def document(title: str, body: list[str]) -> str:
    return page(title, "".join(body), style=STYLE)
