"""The pages of inspections: one file each, offline, with a table beside each picture."""

from __future__ import annotations

import base64
import json
import math
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import numpy as np

from seqloom.inspect.attention_maps import Attention, AttentionMap
from seqloom.inspect.gate_values import Gates
from seqloom.inspect.patching import Patch
from seqloom.inspect.reading import one_of
from seqloom.report.page import escape, page, shown_token
from seqloom.report.plots import PLOT_STYLE

STYLE = """
.maps { display: grid; grid-template-columns: minmax(0, 1fr); gap: .2rem; margin: 1rem 0; }
.layer { color: var(--soft); font-size: .85rem; margin-top: .5rem; overflow-wrap: anywhere; }
.heads { display: flex; flex-wrap: wrap; gap: .4rem; }
.map { background: var(--wash); border: 2px solid transparent; border-radius: 6px; padding: .25rem; cursor: pointer; color: var(--soft);
       display: flex; flex-direction: column; align-items: center; font: inherit; font-size: .75rem; }
.map canvas { width: 74px; height: 74px; object-fit: contain; image-rendering: pixelated; }
.map[aria-pressed=true] { border-color: var(--mark); color: var(--ink); } .map:focus-visible { outline: 2px solid var(--ink); }
.detail { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 29rem); gap: 1.5rem; align-items: start; }
@media (max-width: 900px) { .detail { grid-template-columns: minmax(0, 1fr); } }
#large { max-width: 100%; height: auto; image-rendering: pixelated; border: 1px solid var(--line); cursor: crosshair; }
#large:focus-visible { outline: 2px solid var(--mark); }
svg.lines { width: 100%; max-width: 44rem; height: auto; } svg.lines text { fill: var(--ink); font: 15px system-ui, sans-serif; cursor: pointer; }
svg.lines text.on { font-weight: 700; fill: var(--mark); }
.note { border-left: 4px solid var(--mark); background: var(--wash); padding: .5rem .9rem; max-width: 60rem; }
button.plain { font: inherit; font-size: .85rem; border: 1px solid var(--line); background: var(--paper); color: var(--ink);
               border-radius: 6px; padding: .2rem .7rem; cursor: pointer; }
:root { --below: #b3470b; } @media (prefers-color-scheme: dark) { :root { --below: #ff9a5c; } }
.save { margin: .3rem 0 1rem; } td.heat { text-align: center; min-width: 3.2rem; } .heatmap td, .heatmap th { padding: .25rem .45rem; }
.heatmap { width: auto; } .heatmap thead th { text-align: center; vertical-align: bottom; }
.heatmap th:first-child { position: sticky; left: 0; background: var(--paper); }
@media (max-width: 600px) { .heatmap th:first-child { white-space: normal; min-width: 5.5rem; } }
"""


FEW_EDGES = 30  # with fewer a rank correlation says nothing
MOST_COLOUR = 60  # per cent, so that the text of a cell stays readable in both colour schemes
MOST_WEIGHTS = 1_250_000  # on one page: as many bytes, 1.7 MB as text


def maps_that_fit(found: Attention) -> tuple[AttentionMap, ...]:
    """The maps of the first layers, as many as fit on a page."""
    total = np.cumsum([one.weights.size for one in found.maps])
    left_out = {one.layer for one, size in zip(found.maps, total, strict=True) if size > MOST_WEIGHTS}
    return tuple(one for one in found.maps if one.layer not in left_out) or found.maps[:1]


def attention_page(found: Attention, title: str) -> str:
    """Small maps of all heads; one of them large, with lines between words and the effects of its edges."""
    whole, found = found, replace(found, maps=maps_that_fit(found))
    left_out = len(whole.maps) - len(found.maps)
    cut = f"The page has the maps of the first layers; {left_out} more do not fit. " if left_out else ""
    maps = [
        {
            "layer": one.layer,
            "head": one.head,
            "reads": one.reads,
            "weights": base64.b64encode(
                np.round(255 * one.weights.clip(0, 1)).astype(np.uint8).tobytes()
            ).decode(),
        }
        for one in found.maps
    ]
    strongest = max(found.edges, key=lambda edge: abs(edge.effect), default=None)
    start = next(
        (
            index
            for index, one in enumerate(found.maps)
            if strongest and (one.layer, one.head) == (strongest.layer, strongest.head)
        ),
        0,
    )
    numbers = {(one.layer, one.head): index for index, one in enumerate(found.maps)}
    word = one_of(found.unit)
    measured = any(edge.target_effect is not None for edge in found.edges)
    content = {
        "tokens": [shown_token(token) for token in found.tokens],
        "source": [shown_token(token) for token in found.source],
        "maps": maps,
        "edges": [
            [
                numbers[edge.layer, edge.head],
                edge.query,
                edge.key,
                round(edge.weight, 4),
                float(f"{edge.effect:.3g}"),
                None if edge.target_effect is None else float(f"{edge.target_effect:.3g}"),
                int(edge.drawn),
            ]
            for edge in found.edges
            if (edge.layer, edge.head) in numbers
        ],
        "start": start,
        "own": measured,
    }
    own = f", and of the score at the {word} itself" if measured else ""
    embedded = json.dumps(content, ensure_ascii=False, separators=(",", ":")).replace("</", "<\\/")
    body = f"""
<h1>Attention</h1>
<p class=soft>{escape(title)}</p>
<p>{escape(describe(whole))}. {escape(cut)}</p>
<p class=note>{escape(warning(found))}</p>
<h2>Every head</h2>
<p class=soft>A row is a {word} that reads, a column a {word} that is read; the stronger the colour, the larger the weight.
Choose a map, or move from map to map with the arrow keys.</p>
<div class=maps id=maps></div>
<h2 id=which></h2>
<p class=soft><button class=plain id=save>Save the map as PNG</button> <button class=plain id=save-lines>Save the lines as SVG</button></p>
<div class=detail>
<div><canvas id=large tabindex=0 role=img aria-label="the map; arrow keys move over its cells, the table below has its numbers"></canvas>
<p class=soft id=cell aria-live=polite>Point at a cell, or move over the map with the arrow keys, to read it.</p>
<details id=numbers><summary>The map as a table</summary><div class=wide></div></details></div>
<div class=wide><table><caption>Edges of this head whose removal was measured:
the change of all scores ({escape(found.score)}){own}. ○ drawn at random.</caption>
<thead><tr><th>edge</th><th>weight</th><th>effect</th>{own and f"<th>at the {word}</th>"}</tr></thead><tbody id=edges></tbody></table>
<p class=soft id=none>No edge of this head was measured; --edges N measures more.</p></div>
</div>
<h3>Lines between {word}s</h3>
<p class=soft>The {word}s that read on the left, those that are read on the right; weights below .05 are left out.
Choose a {word} to see its lines alone.</p>
<svg class=lines id=lines role=img aria-label="lines between words" xmlns="http://www.w3.org/2000/svg"></svg>
<script type="application/json" id=data>{embedded}</script>"""
    script = files("seqloom.report").joinpath("attention.js").read_text("utf-8")
    return page("Attention", body, script, STYLE)


def describe(found: Attention) -> str:
    """What was looked at, in one line."""
    layers = len({one.layer for one in found.maps})
    source = (
        f"{len(found.source)} source and {len(found.tokens)} target tokens"
        if found.source
        else f"{len(found.tokens)} {found.unit}"
    )
    if found.window is not None:
        source += f" ({found.window}; --window N reads another)"
    maps = f"{len(found.maps)} map{'s' * (len(found.maps) != 1)} in {layers} layer{'s' * (layers != 1)}"
    return f"{maps}; {source}; {len(found.edges)} edges removed one at a time"


def warning(found: Attention) -> str:
    """How far the weights may be read as explanations."""
    if found.correlation is None:
        return "Too few edges were drawn to say whether weights and effects agree."
    drawn = sum(edge.drawn for edge in found.edges)
    verdict = "read weights with care" if found.correlation < 0.6 else "here large weights tend to matter"
    if drawn < FEW_EDGES:
        verdict = "too few edges to conclude anything"
    return f"Over {drawn} edges drawn at random, weight and effect agree with rank correlation {found.correlation:.2f}: {verdict}."


def picture_page(title: str, body: str, style: str = "") -> str:
    """A page whose plots, trees and coloured tables can be saved as SVG and PNG."""
    script = files("seqloom.report").joinpath("pictures.js").read_text("utf-8")
    return page(title, body, script, STYLE + PLOT_STYLE + style)


def heat_table(
    rows: tuple[str, ...] | list[str],
    columns: tuple[str, ...] | list[str],
    values: np.ndarray,
    caption: str,
    largest: float,
) -> str:
    """A matrix as a table whose cells are coloured by the size of their values, in full at `largest`, and in another colour below 0. The
    numbers, with their signs, stay readable without colour; a cell that is not a number is empty. Small values have more digits."""
    digits = max(2, 1 - math.floor(math.log10(largest))) if largest < 0.1 else 2

    def cell(value: float) -> str:
        if not np.isfinite(value):
            return "<td class=heat></td>"
        number = f"{value:.{digits}f}"
        below = number.startswith("-") and float(number) != 0
        number = f"−{number[1:]}" if below else number.removeprefix("-")
        share = MOST_COLOUR * min(1.0, abs(value) / largest)
        colour = "below" if below else "mark"
        return f'<td class=heat style="background: color-mix(in srgb, var(--{colour}) {share:.0f}%, var(--paper))">{number}</td>'

    if np.nanmin(values, initial=0) <= -0.5 * 10.0**-digits:
        caption += "; values below 0 have a minus sign and the other colour"
    head = "".join(f"<th>{escape(shown_token(name))}</th>" for name in ("", *columns))
    lines = "".join(
        f"<tr><th>{escape(name).replace('.', '.<wbr>')}</th>{''.join(cell(float(value)) for value in line)}</tr>"
        for name, line in zip(rows, values, strict=True)
    )
    return (
        f"<div class=wide><table class=heatmap><caption>{escape(caption)}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>"
    )


def gates_page(found: Gates, title: str, coordinates: int = 16) -> str:
    """For each cell a table of its gates over the words, as means and for the first coordinates, and the carry."""
    parts = [f"<h1>Gates</h1><p class=soft>{escape(title)}</p>"]
    parts.append(
        "<p>A gate near 1 is open. One that keeps holds on to the old state, one that writes lets the new value in, one that reads shows the state. "
        f"The carry is the product of the keeping gate over all {found.word}s that are read later: the share of a memory that is kept to the end.</p>"
    )
    if found.window:
        parts.append(f"<p class=note>{escape(found.window)}</p>")
    for cell in found.cells:
        tokens = found.source if cell.positions == "source" else found.tokens
        open_gates = [one for one in cell.gates if one.role != "value"]
        rows = [f"{one.name} ({one.symbol}) {one.role}" for one in open_gates]
        values = [one.values.mean(1) for one in open_gates]
        if cell.carry is not None:
            rows.append(f"carry to the {'first' if cell.reads_backward else 'last'} {found.word}")
            values.append(cell.carry.mean(1))
        parts.append(f"<h2>{escape(cell.kind)}: {escape(cell.cell)}</h2>")
        if not values:
            parts.append("<p>This cell has no gates.</p>")
            continue
        length = len(values[0])
        columns = tokens if len(tokens) == length else tuple(str(index) for index in range(length))
        parts.append(heat_table(rows, columns, np.array(values), "mean over all coordinates", 1))
        for one in open_gates:
            names = [f"{one.name} {index}" for index in range(min(coordinates, one.values.shape[1]))]
            block = heat_table(
                names, columns, one.values.T[:coordinates], f"{one.name}: the first coordinates", 1
            )
            parts.append(f"<details><summary>{escape(one.name)} by coordinate</summary>{block}</details>")
    return picture_page("Gates", "\n".join(parts))


def patch_page(found: Patch, title: str) -> str:
    """The restored share of each value and position."""
    columns = [
        shown_token(new) if old == new else f"{shown_token(new)} ← {shown_token(old)}"
        for old, new in zip(found.clean, found.corrupted, strict=True)
    ]
    clean, corrupted = (escape(repr(answer)) for answer in found.answers)
    body = f"""<h1>Patching</h1><p class=soft>{escape(title)}</p>
<p>The clean text goes on with {clean}, the corrupted one with {corrupted}: d = ln P({clean}) − ln P({
        corrupted
    }) is {found.difference[0]:+.3f} after the clean text and {
        found.difference[1]:+.3f} after the corrupted one.</p>
<p>Each cell: the corrupted text runs with this one value, at this one position, taken from the clean text. 1 restores the clean d, 0 changes
nothing, below 0 moves d further away. Columns are the tokens of the corrupted text; where the clean one differs, its token follows the
arrow.</p>
{
        heat_table(
            list(found.points), columns, found.restored, "restored share of d, for each value and position", 1
        )
    }
<p class=soft>Rows are named values, from the input up to the output: <code>seqloom inspect activations RUN</code> lists them with
their equations, <code>--points</code> chooses others.</p>"""
    return picture_page("Patching", body)


def report_path(folder: Path, name: str) -> Path:
    """Where a page of a run goes."""
    return folder / "reports" / f"{name}.html"
