"""The page of a trace: its script computes every number again from the operands that the page shows."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import UserError
from seqloom.inspect.pages import STYLE
from seqloom.inspect.trace_steps import Operand, Step
from seqloom.inspect.trace_values import Trace
from seqloom.report.page import escape, page, shown_token

DIGITS = 5  # of the numbers on the page
MOST_NUMBERS = 250_000  # on one page: 1.3 MB
ROWS = (100_000, 256, 128, 64, 32, 16, 8, 4, 2, 1)  # of a weight matrix
TRACE_STYLE = """
.tokens { display: flex; flex-wrap: wrap; gap: .3rem; margin: .4rem 0; }
button.token { font: inherit; border: 1px solid var(--line); background: var(--paper); color: var(--ink); border-radius: 6px;
               padding: .1rem .5rem; cursor: pointer; }
button.token[aria-pressed=true] { border: 2px solid var(--mark); font-weight: 700; }
.step { border-top: 1px solid var(--line); padding: .4rem 0 .8rem; } .step h3 { margin: .4rem 0 .2rem; font-size: 1rem; overflow-wrap: anywhere; }
.step p { margin: .2rem 0; } .formula { font-family: ui-monospace, monospace; margin-right: .8rem; }
table.numbers { width: auto; font-size: .85rem; } table.numbers td, table.numbers th { padding: .12rem .4rem; }
button.n { font: inherit; border: 0; background: none; color: inherit; cursor: pointer; padding: 0 .1rem;
           text-decoration: underline dotted var(--soft); }
button.n:focus-visible, button.token:focus-visible { outline: 2px solid var(--mark); }
.terms { background: var(--wash); padding: 0 .8rem; border-radius: 6px; } .tall { max-height: 22rem; overflow: auto; }
.good { color: #1d7a46; } .bad { color: #b01e1e; } .note.good { border-color: #1d7a46; } .note.bad { border-color: #b01e1e; }
@media (prefers-color-scheme: dark) { .good { color: #62d394; } .bad { color: #ff8a80; } }
select { font: inherit; max-width: 100%; background: var(--paper); color: var(--ink); }
"""


class Shown(NamedTuple):
    """What a page has of a trace."""

    steps: list[Step]
    rows: int  # of each weight matrix
    layer: int | None  # the only layer, None for all
    numbers: int


def layer_of(step: Step) -> int | None:
    """The number of a step's layer."""
    found = re.search(r"\b(?:blocks|layers)\.(\d+)\b", step.name)
    return int(found[1]) if found else None


def check_layer(trace: Trace, layer: int | None) -> None:
    """Raises unless the trace has the layer."""
    there = sorted({number for step in trace.steps if (number := layer_of(step)) is not None})
    if layer is None or layer in there:
        return
    if not there:
        raise UserError(f"--layer {layer}: the model has no numbered layers; leave --layer out")
    exist = "layer 0" if there == [0] else f"layers {there[0]} to {there[-1]}"
    raise UserError(f"--layer {layer}: the model has {exist}, counted from 0; choose one of them")


def select(trace: Trace, layer: int | None = None, most: int = MOST_NUMBERS) -> Shown:
    """The steps that fit on a page: all layers if they do, else one; as many rows of each weight matrix as fit."""
    steps = [step for step in trace.steps if step.shown]
    chosen = [None, 0] if layer is None else [layer]
    for number in chosen:
        kept = [step for step in steps if number is None or layer_of(step) in (None, number)]
        for rows in ROWS:
            count = count_numbers(kept, rows)
            if count <= most:
                return Shown(kept, rows, number, count)
    kept = [step for step in steps if layer_of(step) in (None, chosen[-1])]
    while len(kept) > 1 and count_numbers(kept, 1) > most:
        kept.pop()
    return Shown(kept, 1, chosen[-1], count_numbers(kept, 1))


def cut_rows(step: Step, operand: Operand, rows: int) -> np.ndarray:
    """The operand, or of a weight matrix the rows of the first coordinates of the result."""
    shared = [letter for letter in operand.axes if letter in step.axes and letter not in "tsw"]
    summed = [letter for letter in operand.axes if letter in step.over]
    if "t" in operand.axes or "s" in operand.axes or not shared or not summed:
        return operand.values
    axis = operand.axes.index(shared[-1])
    return operand.values.take(range(min(rows, operand.values.shape[axis])), axis)


def count_numbers(steps: Sequence[Step], rows: int) -> int:
    """How many numbers a page of these steps has."""
    sizes: dict[int, int] = {}
    for step in steps:
        sizes[identity(step.values)] = step.values.size
        for operand in step.operands.values():
            part = cut_rows(step, operand, rows)
            key = identity(operand.values) if part is operand.values else hash((id(operand), rows))
            sizes[key] = part.size
    return sum(sizes.values())


def identity(values: np.ndarray) -> int:
    """Equal for arrays with the same numbers."""
    return hash((values.shape, np.ascontiguousarray(values).tobytes()))


def rounded(values: np.ndarray) -> np.ndarray:
    """The numbers with as many digits as the page shows."""
    with np.errstate(divide="ignore", invalid="ignore"):
        power = np.floor(np.log10(np.abs(values)))
    power = np.where(np.isfinite(power), power, 0)
    factor = 10.0 ** (DIGITS - 1 - power)
    return np.where(np.isfinite(values), np.round(values * factor) / factor, values).astype(np.float32)


class Arrays:
    """The arrays of a page, each once."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.numbers: dict[int, int] = {}

    def add(self, values: np.ndarray) -> int:
        key = identity(values)
        if key not in self.numbers:
            self.numbers[key] = len(self.entries)
            text = base64.b64encode(rounded(values).tobytes()).decode()
            self.entries.append({"shape": values.shape, "values": text})
        return self.numbers[key]


def group_of(name: str) -> str:
    """The heading under which a step is found: its layer, or its first part."""
    found = re.match(r"(.*?\b(?:blocks|layers)\.\d+(?:\.\d+)?)\b", name)
    return found[1] if found else name.partition(".")[0]


def trace_page(trace: Trace, title: str, layer: int | None = None) -> str:
    """Tokens to choose a position, and a table of numbers for each step."""
    shown = select(trace, layer)
    arrays = Arrays()
    steps = []
    keys = {}
    for step in shown.steps:
        operands = {
            variable: {
                "name": one.name,
                "axes": one.axes,
                "array": arrays.add(cut_rows(step, one, shown.rows)),
            }
            for variable, one in step.operands.items()
        }
        values = arrays.add(step.values)
        entry = {
            "name": step.name,
            "part": step.part,
            "formula": step.formula,
            "axes": step.axes,
            "values": values,
            "side": step.side,
            "term": step.term,
            "over": step.over,
            "finish": step.finish,
            "noise": step.noise,
            "operands": operands,
            "labels": step.labels,
            "group": group_of(step.name),
        }
        steps.append(entry)
        reads = next((one for one in step.operands.values() if "s" in one.axes), None)
        if reads is not None and trace.source:
            length = reads.values.shape[reads.axes.index("s")]
            keys[step.name] = keys_of(trace, step, length)
    content = {
        "tokens": [shown_token(token) for token in trace.tokens],
        "source": [shown_token(token) for token in trace.source],
        "keys": {name: [shown_token(token) for token in found] for name, found in keys.items()},
        "arrays": arrays.entries,
        "steps": steps,
    }
    embedded = json.dumps(content, ensure_ascii=False).replace("</", "<\\/")
    source = "<p class=soft>Source</p><div class=tokens id=source></div>" if trace.source else ""
    body = f"""
<h1>Trace</h1>
<p class=soft>{escape(title)}</p>
<p>{escape(describe(trace))}</p>
<p>{escape(describe_page(trace, shown))}</p>
<p class="note" id=verdict role=status>Computing every number again …</p>
<p class=soft>Choose a position; choose a number to see its sum term by term.</p>
{source}<p class=soft>{"Target" if trace.source else "Text"}</p><div class=tokens id=tokens></div>
<p><label>Part <select id=part></select></label></p>
<div id=steps></div>
<script type="application/json" id=data>{embedded}</script>"""
    script = files("seqloom.report").joinpath("trace.js").read_text("utf-8")
    return page("Trace", body, script, STYLE + TRACE_STYLE)


def describe(trace: Trace) -> str:
    """What was computed again, in one line."""
    agree = trace.checked - len(trace.wrong)
    cut = f" ({trace.window}; --window N reads another)" if trace.window else ""
    tokens = (
        f"{len(trace.source)} source and {len(trace.tokens)} target tokens"
        if trace.source
        else f"{len(trace.tokens)} tokens"
    )
    given = f"; {trace.given} more have no equation here" if trace.given else ""
    if not trace.checked:  # of word vectors, every value is computed here
        return f"{tokens}{cut}; {len(trace.steps)} steps, computed here from the vectors{given}"
    return (
        f"{tokens}{cut}; {trace.checked} values of the model computed again from their operands in double precision: {agree} agree, "
        f"largest relative error {trace.largest_error:.1e}{given}"
    )


def describe_page(trace: Trace, shown: Shown) -> str:
    """What the page has of the trace."""
    all_steps = [step for step in trace.steps if step.shown]
    text = f"The page has {len(shown.steps)} of {len(all_steps)} steps"
    if shown.layer is not None:
        text += f" (layer {shown.layer}; --layer N shows another)"
    if shown.rows < ROWS[0]:
        text += f"; of each weight matrix the rows of the first {shown.rows} coordinates, whose sums are written out"
    return text + "."


def keys_of(trace: Trace, step: Step, length: int) -> tuple[str, ...]:
    """The tokens that a step with `length` keys reads: those of the source, but for the self-attention of a decoder."""
    own = step.side != "source" and ".blocks." in step.name and ".attention" in step.name
    return trace.tokens if not trace.source or (own and length == len(trace.tokens)) else trace.source


def worked_example(trace: Trace) -> list[str]:
    """The strongest edge of the last query in the first layer that attends, from the product to the weight."""
    for step in trace.steps:
        product = f"{step.name.removesuffix('weights')}score.product"
        names = {one.name for one in trace.steps}
        if not step.name.endswith(".weights") or step.axes != "hts" or product not in names:
            continue
        weights = step.values[:, -1]  # (H, S)
        if weights.shape[1] < 2:
            continue
        head, key = np.unravel_index(int(np.where(weights < 0.999, weights, 0).argmax()), weights.shape)
        values = [trace.step(product).values[head, -1, key]]
        values.append(trace.step(product.removesuffix(".product")).values[head, -1, key])
        keys = keys_of(trace, step, weights.shape[1])
        queries = trace.source if step.side == "source" else trace.tokens
        return [
            f"{step.name.removesuffix('.weights')} head {head}, {queries[-1]!r} → {keys[key]!r}: "
            f"q · k = {values[0]:.4g} → score {values[1]:.4g} → softmax {weights[head, key]:.4g}"
        ]
    return []
