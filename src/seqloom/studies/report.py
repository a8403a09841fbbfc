"""A comparison as lines for a terminal, as JSON, and as a page that needs no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from seqloom.report import escape, figure, page, table
from seqloom.studies.published import REPORTED, SOURCE
from seqloom.studies.study import Study
from seqloom.studies.table import ResultRow, buckets, entries, translations_of
from seqloom.text.corpus import Parallel

HEAD = ("system", "rank", "BLEU", "±", "chrF", "FLOPs", "seconds", "parameters", "tokens", "steps", "memory")


def cells(row: ResultRow) -> list[str]:
    return [
        row.system, f"{row.rank}{' tie' if row.tie else ''}", f"{row.bleu:.2f}", f"{row.interval:.2f}", f"{row.chrf:.2f}", f"{row.flops:.2e}",
        f"{row.seconds:,.0f}", f"{row.parameters:,}", f"{row.tokens:,.0f}", f"{row.steps:,}", f"{row.memory / 2**20:,.0f} MiB",
    ]  # fmt: skip


def lines(found: Sequence[ResultRow]) -> list[str]:
    """Aligned columns."""
    grid = [list(HEAD), *map(cells, found)]
    widths = [max(len(line[column]) for line in grid) for column in range(len(HEAD))]
    shown = [
        "  ".join(
            f"{cell:<{w}}" if n == 0 else f"{cell:>{w}}"
            for n, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        for line in grid
    ]
    return (
        [*shown, f"measured here, seeds: {found[0].seeds}; {found[0].signature}"]
        if found
        else ["no finished run"]
    )


def report(found: Sequence[ResultRow]) -> dict[str, Any]:
    return {"rows": [row._asdict() for row in found]}


def curves(study: Study, found: Sequence[ResultRow]) -> dict[str, tuple[list[float], list[float]]]:
    """Held-out loss of the first seed over the FLOPs spent, in the order of the rows."""
    result = {}
    folders = {entry.title: entry.folders[0] for entry in entries(study) if not entry.joined}
    for row in found:
        if row.system not in folders:
            continue
        text = (folders[row.system] / "metrics.jsonl").read_text("utf-8")
        points = [one for one in map(json.loads, text.splitlines()) if "valid" in one]
        result[row.system] = (
            [row.flops * one["step"] / row.steps for one in points],
            [one["valid"] for one in points],
        )
    return result


def render(study: Study, found: Sequence[ResultRow], failed: Sequence[str], shown: int = 12) -> str:
    """The page: table, curves, BLEU by length, the same sentences by every system, and the published figures apart."""
    if not found:
        raise ValueError(f"{study.folder}: no finished run to show yet")
    sources = [source for source, _ in Parallel(list(study.test))]
    targets = [target for _, target in Parallel(list(study.test))]
    kind, value = study.budget
    parts = [
        "<h1>One budget, every system</h1>",
        f"<p class=soft>{value:g} {escape(kind.removesuffix('s') if value == 1 else kind)} of training each, "
        f"{study.seeds} seed{'s' if study.seeds > 1 else ''}; beam {study.beam}, "
        f"length penalty {study.penalty}; test text of {len(sources):,} sentences. A tie: the paired bootstrap cannot tell a system "
        "from the one above it at 5 %.</p>",
        table(HEAD, [cells(row) for row in found], f"Measured here. {found[0].signature}"),
        *(f"<p>{escape(sentence)}</p>" for sentence in failed),
        "<h2>Learning</h2><p class=soft>Held-out loss (nats per token) over the training FLOPs spent.</p>",
        figure(learning := curves(study, found), "training FLOPs", "held-out loss", first=True, log=True),
        "<h2>By length</h2><p class=soft>BLEU over source sentences of so many words.</p>",
    ]
    names = [f"{low}–{high}" if low < high else str(low) for low, high in buckets(sources)]
    lengths = {row.system: (names, row.by_length) for row in found}
    alike = {system: lengths[system] for system in [*learning, *lengths]}  # the colours of the figure above
    parts.append(figure(alike, "words in the source", "BLEU", first=False))
    order = sorted(range(len(sources)), key=lambda i: len(sources[i]))
    chosen = [order[(2 * n + 1) * len(order) // (2 * shown)] for n in range(min(shown, len(order)))]
    folders = {entry.title: entry.folders if entry.joined else entry.folders[:1] for entry in entries(study)}
    written = {row.system: translations_of(study, *folders[row.system])[0] for row in found}
    parts.append("<h2>The same sentences</h2>")
    for i in chosen:
        block = [
            ["source", sources[i]],
            ["reference", targets[i]],
            *([system, texts[i]] for system, texts in written.items()),
        ]
        parts.append(table(("", ""), block, text=(1,)))
    reported = [[one.system, *("–" if x is None else f"{x:.4g}" for x in one[1:])] for one in REPORTED]
    parts.append(
        "<h2>Reported elsewhere</h2><p class=soft>Other data, other sizes, other scripts: not to be compared with the figures above.</p>"
    )
    parts.append(
        table(("system", "BLEU en-de", "BLEU en-fr", "FLOPs en-de", "FLOPs en-fr"), reported, SOURCE)
    )
    return page("Comparison", "\n".join(parts))
