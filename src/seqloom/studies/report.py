"""A comparison as lines for a terminal, as JSON, and as a self-contained page."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from seqloom.report import escape, figure, page, table
from seqloom.studies.published import REPORTED, SOURCE
from seqloom.studies.study import Study
from seqloom.studies.table import ResultRow, buckets, entries, read_test_text, translations_of
from seqloom.train.progress import read_metrics

HEAD = ("system", "rank", "BLEU", "±", "chrF", "FLOPs", "seconds", "parameters", "tokens", "steps", "memory")


def cells(row: ResultRow) -> list[str]:
    """The cells of a row, as HEAD names them."""
    return [
        row.system,
        f"{row.rank}{' tie' if row.tie else ''}",
        f"{row.bleu:.2f}",
        f"{row.interval:.2f}",
        f"{row.chrf:.2f}",
        f"{row.flops:.2e}",
        f"{row.seconds:,.0f}",
        f"{row.parameters:,}",
        f"{row.tokens:,.0f}",
        f"{row.steps:,}",
        f"{row.memory / 2**20:,.0f} MiB",
    ]


def lines(rows: Sequence[ResultRow]) -> list[str]:
    """The table in aligned columns."""
    if not rows:
        return ["no finished run"]
    grid = [list(HEAD), *map(cells, rows)]
    widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
    result = []
    for system, *numbers in grid:
        padded = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        result.append("  ".join([f"{system:<{widths[0]}}", *padded]))
    return [*result, f"measured here, seeds: {rows[0].seeds}; {rows[0].signature}"]


def report(rows: Sequence[ResultRow]) -> dict[str, Any]:
    """The table as JSON."""
    return {"rows": [row._asdict() for row in rows]}


def curves(study: Study, rows: Sequence[ResultRow]) -> dict[str, tuple[list[float], list[float]]]:
    """Held-out loss of the first seed over training FLOPs, in the order of the rows."""
    result = {}
    folders = {entry.title: entry.folders[0] for entry in entries(study) if not entry.is_ensemble}
    for row in rows:
        if row.system not in folders:
            continue
        points = [line for line in read_metrics(folders[row.system]) if "valid" in line]
        flops = [row.flops * point["step"] / row.steps for point in points]
        result[row.system] = (flops, [point["valid"] for point in points])
    return result


def render(study: Study, rows: Sequence[ResultRow], failures: Sequence[str], examples: int = 12) -> str:
    """The page: table, learning curves, BLEU by length, example sentences, and the published figures separately."""
    if not rows:
        raise ValueError(f"{study.folder}: no finished run to show yet")
    sources, references = read_test_text(study)
    learning = curves(study, rows)
    names = [f"{low}–{high}" if low < high else str(low) for low, high in buckets(sources)]
    lengths = {row.system: (names, row.by_length) for row in rows}
    # Systems in the order of the figure above, so that both give a system the same colour.
    by_length = {system: lengths[system] for system in [*learning, *lengths]}
    parts = [
        "<h1>One budget, every system</h1>",
        f"<p class=soft>{escape(describe(study, len(sources)))}</p>",
        table(HEAD, [cells(row) for row in rows], f"Measured here. {rows[0].signature}"),
        *(f"<p>{escape(message)}</p>" for message in failures),
        "<h2>Learning</h2><p class=soft>Held-out loss (nats per token) over training FLOPs.</p>",
        figure(learning, "training FLOPs", "held-out loss", first=True, log=True),
        "<h2>By length</h2><p class=soft>BLEU by the number of words in the source sentence.</p>",
        figure(by_length, "words in the source", "BLEU", first=False),
        "<h2>The same sentences</h2>",
        *example_tables(study, rows, sources, references, examples),
        "<h2>Published figures</h2>"
        "<p class=soft>Other data, sizes and scripts: do not compare them with the figures above.</p>",
        published_table(),
    ]
    return page("Comparison", "\n".join(parts))


def describe(study: Study, num_sentences: int) -> str:
    """The conditions of the study in a sentence or two."""
    unit, value = study.budget
    budget = f"{value:g} {unit.removesuffix('s') if value == 1 else unit}"
    seeds = f"{study.seeds} seed{'s' if study.seeds > 1 else ''}"
    return (
        f"{budget} of training each, {seeds}; beam {study.beam}, length penalty {study.penalty}; "
        f"test text of {num_sentences:,} sentences. "
        "A tie: the paired bootstrap finds no difference from the system above at 5 %."
    )


def example_tables(
    study: Study,
    rows: Sequence[ResultRow],
    sources: Sequence[str],
    references: Sequence[str],
    examples: int,
) -> list[str]:
    """Test sentences from short to long, each with its reference and its translation by every system."""
    by_length = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    chosen = [
        by_length[(2 * n + 1) * len(by_length) // (2 * examples)]
        for n in range(min(examples, len(by_length)))
    ]
    folders = {
        entry.title: entry.folders if entry.is_ensemble else entry.folders[:1] for entry in entries(study)
    }
    texts = {row.system: translations_of(study, *folders[row.system])[0] for row in rows}
    result = []
    for i in chosen:
        translations = [[system, outputs[i]] for system, outputs in texts.items()]
        block = [["source", sources[i]], ["reference", references[i]], *translations]
        result.append(table(("", ""), block, text=(1,)))
    return result


def published_table() -> str:
    """The figures of the Transformer paper."""
    head = ("system", "BLEU en-de", "BLEU en-fr", "FLOPs en-de", "FLOPs en-fr")
    rows = [
        [reported.system, *("–" if value is None else f"{value:.4g}" for value in reported[1:])]
        for reported in REPORTED
    ]
    return table(head, rows, SOURCE)
