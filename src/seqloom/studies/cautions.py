"""What a reader of a table should know before the ranks are believed: systems that are hardly trained, and budgets that differ."""

from __future__ import annotations

from collections.abc import Sequence

from seqloom.config_source import config_of
from seqloom.studies.study import Study
from seqloom.studies.table import ResultRow
from seqloom.train.budget import duration

FEW_STEPS = 50  # with fewer, a model has hardly begun to learn
LIKE = 1.5  # two costs are alike if they differ by a smaller factor


def cautions(study: Study, rows: Sequence[ResultRow]) -> list[str]:
    """Sentences on the rows that cannot be compared fairly."""
    trained = [row for row in rows if row.steps > 0 and not row.is_ensemble and uses_steps(row)]
    few = [row for row in trained if row.steps < FEW_STEPS]
    found = []
    if few:
        listed = ", ".join(f"{row.system} ({row.steps} step{'' if row.steps == 1 else 's'})" for row in few)
        found.append(f"hardly trained: {listed}; ranks after so few steps say little about the models")
    finished = {system.title for system in study.systems if system.is_finished}
    if any(row.system in finished for row in trained):
        if not alike(trained):
            costs = ", ".join(f"{row.system} {cost_text(row)}" for row in trained)
            found.append(f"budgets differ: {costs}; the longer training may win, not the better model")
    elif study.budget[0] == "minutes" and not within([row.seconds or 0.0 for row in trained]):
        times = ", ".join(f"{row.system} {duration(row.seconds or 0.0)}" for row in trained)
        found.append(
            f"the budget of {study.budget_text} was not kept: {times}; other programs may have used the machine: "
            "compare by --steps, --tokens or --flops instead"
        )
    return found


def uses_steps(row: ResultRow) -> bool:
    """Whether gradient steps train the system, not a solver."""
    return "type" not in config_of(row.folders[0])[0].get("train", {})


def alike(rows: Sequence[ResultRow]) -> bool:
    """Whether the trainings had about the same seconds, tokens, FLOPs or steps."""
    columns = [
        [row.seconds or 0.0 for row in rows],
        [row.tokens for row in rows],
        [row.flops or 0.0 for row in rows],
        [float(row.steps) for row in rows],
    ]
    return any(within(column) for column in columns)


def within(values: Sequence[float]) -> bool:
    """Whether numbers differ by less than the factor LIKE."""
    return len(values) < 2 or max(values) < LIKE * min(values)


def cost_text(row: ResultRow) -> str:
    seconds = f"{duration(row.seconds)}, " if row.seconds else ""
    return f"{seconds}{row.tokens:,.0f} tokens"
