"""Explanations and comparisons as one HTML file: MathML, both colour schemes, nothing fetched from anywhere."""

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


def explanation(found: Explanation) -> str:
    body = [
        f"<h1>{escape(found.source)}</h1>",
        f'<p class="lead">{escape(text.sizes(found))}</p>',
        "<h2>Which part has most</h2>",
    ]
    body += [f"<p>{escape(text.largest_part(found))}</p>", ranking(found), "<h2>Equations</h2>"]
    body += [article(part, found) for part in found.parts]
    return document(found.source, [*body, f"<footer>{escape(text.NOTE)}</footer>"])


def comparison(found: Difference) -> str:
    body = [f"<h1>{escape(found.first)} and {escape(found.second)}</h1>"]
    if not found:
        body.append("<p>No difference.</p>")
    for group in text.sections(found):
        rows = "".join(
            f"<tr><td>{escape(row.what)}</td>{side(row, 0)}{side(row, 1)}</tr>" for row in group.rows
        )
        names = f"<tr><th></th><th>{escape(found.first)}</th><th>{escape(found.second)}</th></tr>"
        body += [
            f"<h2>{escape(group.place)}</h2>",
            f'<div class="wide"><table class="two">{names}{rows}</table></div>',
        ]
    return document(f"{found.first} and {found.second}", body)


def side(row: DiffRow, number: int) -> str:
    one = (row.first, row.second)[number]
    if row.what == "equation" and one:
        return f"<td>{equation(one)}</td>"
    return f"<td>{'<br>'.join(escape(line) for line in text.sides(row)[number].splitlines())}</td>"


def ranking(found: Explanation) -> str:
    """The table of parts with a bar for each share."""
    first, *rows, last = text.table(found)
    heads = (
        "".join(f"<th{' class=number' if n else ''}>{escape(cell)}</th>" for n, cell in enumerate(first))
        + "<th></th>"
    )
    lines = [f"<tr>{heads}</tr>"]
    for cells, (_, _, parameters, flops) in zip(rows, found.ranking(), strict=True):
        bars = bar(parameters / max(found.parameters, 1)) + bar(flops / max(found.flops, 1), " work")
        lines.append(f'<tr>{numbers(cells)}<td class="bars">{bars}</td></tr>')
    return f'<div class="wide"><table>{"".join(lines)}<tr class="sum">{numbers(last)}<td></td></tr></table></div>'


def numbers(cells: list[str]) -> str:
    return "".join(f"<td{' class=number' if n else ''}>{escape(cell)}</td>" for n, cell in enumerate(cells))


def bar(share: float, kind: str = "") -> str:
    return f'<span class="bar{kind}" style="width: {100 * share:.1f}%"></span>'


def article(part: PartSummary, whole: Explanation) -> str:
    name, _, options = part.title().partition(" (")
    lines = [f"<h3>{escape(name)}{f' <small>{escape(options[:-1])}</small>' if options else ''}</h3>"]
    lines.append(f'<p class="places">{escape(", ".join(part.places))}</p>')
    if not text.shown_before(part, whole):
        lines += [equation(part.equation), *(f'<p class="note">{words(note)}</p>' for note in part.notes)]
    lines.append(
        f'<ul class="facts">{"".join(f"<li>{escape(fact)}</li>" for fact in text.facts(part, whole))}</ul>'
    )
    return f'<article style="--depth: {part.depth}">{"".join(lines)}</article>'


def equation(lines: list[str]) -> str:
    """The lines of a docstring, mathematics set as such and the words between it as words; a line that begins with words goes on."""
    names, rows = notation.equation_names(lines), []
    for line in lines:
        pieces = notation.pieces(line, names)
        if not rows or pieces[0].kind == "math":
            rows.append("")
        rows[-1] += "".join(map(piece, pieces))
    return "".join(f'<p class="equation">{row}</p>' for row in rows)


def piece(one: notation.Piece) -> str:
    """With a space before it, unless it begins with the point or comma that ends what came before."""
    space = "" if one.text[0] in ".,;:" else " "
    if one.kind == "math":
        return space + math(one.text)
    return (
        f'{space}<span class="{"reference" if one.kind == "reference" else "words"}">{words(one.text)}</span>'
    )


def words(text: str) -> str:
    """Prose, with what stands in backquotes as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


def document(title: str, body: list[str]) -> str:
    return page(title, "".join(body), style=STYLE)
