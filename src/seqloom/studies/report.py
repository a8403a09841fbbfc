"""A comparison as lines for a terminal and as a self-contained page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from seqloom.errors import UserError
from seqloom.inference.completion import complete
from seqloom.measure.number import TITLES
from seqloom.report import escape, figure, page, table
from seqloom.run_files import TIMES_FILE, read_metrics
from seqloom.studies.likeness import letters
from seqloom.studies.measuring import open_members
from seqloom.studies.published import REPORTED, SOURCE, TABLE2
from seqloom.studies.study import Study
from seqloom.studies.table import ResultRow
from seqloom.studies.training import Failure

EXAMPLES = 12
DIGITS = {"bits_per_byte": 4, "spearman": 4, "pearson": 4}
HEADS = {"bits_per_byte": "bits/byte"}


def count(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}" if value < 10 else f"{value:,.0f}"


Cell = Callable[[ResultRow], str]
COSTS: dict[str, Cell] = {
    "FLOPs": lambda row: "–" if row.flops is None else f"{row.flops:.1e}",
    "seconds": lambda row: seconds(row.seconds),
    "parameters": lambda row: f"{row.parameters:,}",
    "tokens": lambda row: count(row.tokens),
    "steps": lambda row: f"{row.steps:,}",
    "memory": lambda row: "–" if row.memory is None else f"{row.memory / 2**20:,.0f} MiB",
    "texts/s": lambda row: count(row.texts_per_second),
}
# The columns of cost on a terminal; the page has all.
SHOWN = {
    "translation": ("FLOPs", "seconds", "parameters", "tokens", "steps", "memory"),
    "language modelling": ("FLOPs", "seconds", "parameters", "tokens"),
}
SHOWN_WITH_LABELS = ("seconds", "parameters", "texts/s")


def grid(rows: Sequence[ResultRow], costs: Sequence[str]) -> list[list[str]]:
    """The table, its head first. A column of letters points to `footnotes` if rows have marks."""
    main, *others = rows[0].metrics
    titles = [HEADS.get(name) or TITLES.get(name, name.replace("_", " ")) for name in (main, *others)]
    marks = letters([row.marks for row in rows])
    notes = ["note"] if marks else []
    result = [["system", "rank", *notes, titles[0], "±", *titles[1:], *costs]]
    for row in rows:
        digits = DIGITS.get(main, 2)
        interval = "–" if row.interval is None else f"{row.interval:.{2 if digits == 2 else 3}f}"
        numbers = [f"{row.metrics[main]:.{digits}f}", interval]
        numbers += [f"{row.metrics[name]:.{DIGITS.get(name, 2)}f}" for name in others]
        place = "–" if row.rank is None else f"{row.rank}{' tie' if row.tie else ''}"
        notes = [" ".join(marks[reason] for reason in row.marks)] if marks else []
        result.append([row.system, place, *notes, *numbers, *(COSTS[cost](row) for cost in costs)])
    return result


def footnotes(rows: Sequence[ResultRow]) -> list[str]:
    """What the letters of the table mean: in what the conditions of a row differ from those of most rows."""
    return [f"{letter}: {reason}" for reason, letter in letters([row.marks for row in rows]).items()]


def shared_leaks(rows: Sequence[ResultRow]) -> str:
    """How many test records are in the training data, if that is the same for all rows and more than none; else empty: rows then have marks."""
    reports = [row.leaks for row in rows]
    first = reports[0] if reports else None
    return (
        first.sentence() if first is not None and first.near and all(one == first for one in reports) else ""
    )


def lines(task: str, rows: Sequence[ResultRow]) -> list[str]:
    """The table in aligned columns, its notes and its signature."""
    if not rows:
        return ["no finished run"]
    cells = grid(rows, SHOWN.get(task, SHOWN_WITH_LABELS))
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    result = []
    for system, *numbers in cells:
        padded = [f"{cell:>{width}}" for cell, width in zip(numbers, widths[1:], strict=True)]
        result.append("  ".join([f"{system:<{widths[0]}}", *padded]))
    return [*result, *footnotes(rows), rows[0].signature]


def result_table(task: str, rows: Sequence[ResultRow]) -> str:
    """The table as HTML, with every cost."""
    head, *body = grid(rows, [cost for cost in COSTS if cost != "texts/s" or rows[0].texts_per_second])
    notes = "".join(f"{note}. " for note in footnotes(rows))
    leaks = f"{shared_leaks(rows)}. " if shared_leaks(rows) else ""
    return table(head, body, f"Measured here. {notes}{leaks}{rows[0].signature}")


Curves = dict[str, tuple[list[float], list[float]]]


def learning_curves(rows: Sequence[ResultRow]) -> dict[str, Curves]:
    """Held-out loss of the first seed over tokens and over seconds, in the order of the rows; without systems that were not trained by steps."""
    over_tokens: Curves = {}
    over_seconds: Curves = {}
    for row in rows:
        if row.is_ensemble or not (row.folders[0] / "metrics.jsonl").exists():
            continue
        points = [line for line in read_metrics(row.folders[0]) if line.get("valid_loss") is not None]
        if len(points) < 2:
            continue
        losses = [point["valid_loss"] for point in points]
        if all("tokens" in point for point in points):
            over_tokens[row.system] = ([point["tokens"] for point in points], losses)
        times = read_times(row.folders[0])
        if all(point["step"] in times for point in points):
            over_seconds[row.system] = ([times[point["step"]] for point in points], losses)
    return {"training tokens": over_tokens, "seconds of training": over_seconds}


def read_times(folder: Path) -> dict[int, float]:
    """The seconds of training at each step of which times.jsonl has a line."""
    import json

    path = folder / TIMES_FILE
    if not path.exists():
        return {}
    records = [json.loads(line) for line in path.read_text("utf-8").splitlines() if line.endswith("}")]
    return {record["step"]: record["seconds"] for record in records}


def render(
    study: Study, rows: Sequence[ResultRow], failures: Sequence[Failure], warnings: Sequence[str] = ()
) -> str:
    """The page: table, learning curves, the metric by length, and for translators example sentences."""
    if not rows:
        raise UserError(f"{study.folder}: no finished run to show yet")
    parts = [
        f"<h1>{escape(title(study))}</h1>",
        f"<p class=soft>{escape(describe(study))}</p>",
        result_table(study.task, rows),
        *(f"<p><b>Caution:</b> {escape(warning)}.</p>" for warning in warnings),
        *(f"<p>{escape(f'{one.system}, seed {one.seed}, failed: {one.reason}')}</p>" for one in failures),
    ]
    first = True
    for axis, curves in learning_curves(rows).items():
        if curves:
            heading = "<h2>Learning</h2>" if axis == "training tokens" else ""
            parts += [
                f"{heading}<p class=soft>Held-out loss (nats per token or label) over {axis}, first seed.</p>",
                figure(curves, axis, "held-out loss", first=first),
            ]
            first = False
    with_lengths = {
        row.system: ([*row.by_length], [*row.by_length.values()]) for row in rows if row.by_length
    }
    if with_lengths:
        main = next(iter(rows[0].metrics))
        name = TITLES.get(main, main.replace("_", " "))
        parts += [
            f"<h2>By length</h2><p class=soft>{escape(name)} by the number of words in the source.</p>",
            figure(with_lengths, "words in the source", name, first=first),
        ]
    if study.task == "translation":
        parts += ["<h2>The same sentences</h2>", *example_tables(study, rows)]
        if {system.title for system in study.systems} & set(TABLE2):
            parts += [
                "<h2>Published figures</h2>"
                "<p class=soft>Other data, sizes and scripts: do not compare them with the figures above.</p>",
                published_table(),
            ]
    return page("Comparison", "\n".join(parts))


def title(study: Study) -> str:
    names = [system.title for system in study.systems]
    return " against ".join(names) if len(names) <= 3 else f"{len(names)} systems for {study.task}"


def describe(study: Study) -> str:
    """The conditions of the study in a few sentences."""
    budget = study.budget_text
    seeds = f"{study.seeds} seed{'s' if study.seeds > 1 else ''}"
    trained = any(not system.is_finished for system in study.systems)
    how = f"Budget of each training: {budget}; {seeds}. " if trained else "Finished runs. "
    data = f"{study.data[0].upper()}{study.data[1:]}. " if study.data else ""
    return (
        f"{study.task[0].upper()}{study.task[1:]}. {how}{data}± is the 95 % interval. A tie: no difference from the system above at 5 %, "
        "by paired bootstrap over the test records, or by the seeds where there are no records."
    )


def example_tables(study: Study, rows: Sequence[ResultRow]) -> list[str]:
    """Test sentences from short to long, each with its reference and its translation by every system."""
    first = open_members(rows[0].folders[:1])
    pairs = list(first.config.reader(list(study.test)))
    ordered = sorted(range(len(pairs)), key=lambda index: len(pairs[index][0]))
    wanted = min(EXAMPLES, len(pairs))
    chosen = [ordered[(2 * n + 1) * len(ordered) // (2 * wanted)] for n in range(wanted)]
    sources = [pairs[index][0] for index in chosen]
    outputs: dict[str, list[str]] = {}
    for row in rows:
        run = open_members(row.folders if row.is_ensemble else row.folders[:1])
        completions = complete(run, sources, run.decoding.plan())
        outputs[row.system] = [candidates[0].text for candidates in completions]
    result = []
    for position, index in enumerate(chosen):
        translations = [[system, texts[position]] for system, texts in outputs.items()]
        block = [["source", pairs[index][0]], ["reference", pairs[index][1]], *translations]
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
