"""The verbs of runs: list, show, replay and clean run folders."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.cli.app import TRAIN, add_group, json_text, print_result
from seqloom.cli.inputs import load_code
from seqloom.cli.options import Common, CommonOptions, Machine, MachineOptions, RunPath
from seqloom.cli.tables import short_bytes, short_number, table
from seqloom.errors import UserError

if TYPE_CHECKING:
    from seqloom.runs import RunFacts, RunSummary
    from seqloom.train.replay import Replay

logger = logging.getLogger("seqloom.cli")
runs_app = add_group("runs", "List, show, replay and clean what was trained.", TRAIN)


@runs_app.command(name="list")
def list_runs(
    folder: Path | None = None,
    /,
    *,
    task: str | None = None,
    sort: str = "name",
    common: CommonOptions = Common(),
) -> None:
    """List the runs of a folder: state, step, scores, size.

    Examples:
      seqloom runs list
      seqloom runs list --sort valid_loss
      seqloom runs list runs/compare-reviews --task classification --json

    Parameters
    ----------
    folder
        Where to look, at any depth; default: runs, or SEQLOOM_RUNS.
    task
        List the runs of this task only, such as translation.
    sort
        A column, or a score such as bleu; scores are sorted from the best on.
    """
    from seqloom import runs

    found = runs.list(folder, task=task, sort=sort)
    if common.json:
        print("\n".join(json_text(run.to_dict()) for run in found))
        return
    if not found:
        print("no runs; make one with: seqloom train PRESET --data FILE")
        return
    scores = list(dict.fromkeys(name for run in found for name in run.numbers if name in MAIN_SCORES))
    letters = data_letters(found)
    header = (
        *("run", "task", "state", "step", *(["on"] if letters else []), "valid_loss"),
        *(*scores, "parameters", "size", "modified"),
    )
    rows = [run_row(run, scores, letters) for run in found]
    print("\n".join([*table(header, rows, left=3), *legend(letters)]))


MAIN_SCORES = (
    "bits_per_byte",
    "perplexity",
    "bleu",
    "accuracy",
    "span_f1",
    "spearman",
    "exact_match",
    "per",
    "wer",
)


def data_letters(found: Sequence[RunSummary]) -> dict[str, str]:
    """A letter for each held-out data and tokenizer that scores of these runs are measured with; none if all are measured alike."""
    from seqloom.measure.number import letter

    scored = [run for run in found if run.measured_on and (run.numbers or run.valid_loss is not None)]
    different = dict.fromkeys(run.measured_on for run in scored)
    return (
        {conditions: letter(number) for number, conditions in enumerate(different)}
        if len(different) > 1
        else {}
    )


def legend(letters: dict[str, str]) -> list[str]:
    """What the letters of a list mean."""
    if not letters:
        return []
    lines = [
        f"{name}: {conditions.replace('|', ', ').replace(':', ' ')}" for conditions, name in letters.items()
    ]
    return [
        "",
        "scores with different letters were measured on other data or tokens: do not compare them",
        *lines,
    ]


def run_row(run: RunSummary, scores: list[str], letters: dict[str, str]) -> tuple[str, ...]:
    """A run as a row of the table."""
    steps = f"{run.step:,}" if run.steps in (None, run.step) else f"{run.step:,}/{run.steps:,}"
    return (
        str(run.path),
        run.task,
        run.state,
        steps,
        *([letters.get(run.measured_on, "")] if letters else []),
        number_text(run.valid_loss),
        *(number_text(run.numbers.get(name)) for name in scores),
        "" if run.parameters is None else short_number(run.parameters),
        short_bytes(run.size),
        time.strftime("%Y-%m-%d %H:%M", time.localtime(run.modified)),
    )


def number_text(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


@runs_app.command
def show(run: RunPath, /, *, common: CommonOptions = Common()) -> None:
    """Show one run: scores, cost, config, checkpoints.

    Examples:
      seqloom runs show runs/gpt-input
      seqloom runs show runs/gpt-input --json
      seqloom runs show runs/compare-reviews/runs/classifier/seed-0

    Parameters
    ----------
    run
        The run folder; it need not be finished.
    """
    from seqloom import runs

    facts = runs.show(run)
    print_result(facts.to_dict(), fact_lines(facts), common.json)


def fact_lines(facts: RunFacts) -> list[str]:
    """The facts of a run as lines."""
    from seqloom import config_tree

    run = facts.run
    steps = "" if run.steps in (None, run.step) else f" of {run.steps:,}"
    lines = [
        f"run: {run.path}",
        f"{run.task}, {run.preset or 'own config'}, {run.state} at step {run.step:,}{steps}, {short_bytes(run.size)}",
    ]
    results: dict[str, Any] = facts.results or {}
    for number in [*results.get("valid", []), *results.get("test", [])]:
        bounds = "" if number.get("low") is None else f" [{number['low']:.4f}, {number['high']:.4f}]"
        lines.append(f"{number['name']} {number['value']:.4f}{bounds}  {number['signature']}")
    if counts := results.get("parameters"):
        parts = ", ".join(f"{name} {count:,}" for name, count in counts["by_part"].items())
        lines.append(f"parameters {counts['total']:,}" + (f": {parts}" if parts else ""))
    if actual := results.get("actual"):
        lines.append(f"took {actual['seconds']:.0f} s and {short_bytes(actual['memory'])}")
    if facts.checkpoints:
        steps_there = ", ".join(f"{step} ({short_bytes(size)})" for step, size in facts.checkpoints.items())
        lines.append(f"checkpoints: {steps_there}; open one as {run.path}@{list(facts.checkpoints)[-1]}")
    return [*lines, "", config_tree.write(facts.config).rstrip()]


@runs_app.command
def replay(
    run: RunPath,
    /,
    *,
    from_step: int | None = None,
    steps: int | None = None,
    common: CommonOptions = Common(),
    machine: MachineOptions = Machine(),
) -> None:
    """Take steps of a run again and compare the bits.

    Weights, optimizer and metrics are compared with what the run recorded; the run stays as it is. The exit code is 1 if a bit differs, and 2 if
    the bits cannot be the same: other threads, versions or another processor.

    Examples:
      seqloom runs replay runs/gpt-input
      seqloom runs replay runs/gpt-input --from-step 0 --steps 100
      seqloom runs replay runs/gpt-input --json

    Parameters
    ----------
    run
        The run folder; it need not be finished.
    from_step
        The checkpoint to begin at; 0 is the beginning; default: the last but one.
    steps
        How many steps to take; default: up to the next checkpoint.
    """
    from seqloom import runs

    result = runs.replay(
        run,
        from_step=from_step,
        steps=steps,
        threads=machine.threads,
        parts=load_code(machine.code),
        progress=common.progress,
    )
    print_result(result.to_dict(), replay_lines(result), common.json)
    if not result.same:
        raise SystemExit(1)


def replay_lines(result: Replay) -> list[str]:
    """What a replay found, as lines."""
    checkpoints = ", ".join(map(str, result.checkpoints)) or "none"
    compared = (
        f"{result.lines} lines of metrics, {result.tensors} tensors of checkpoints (steps: {checkpoints})"
    )
    steps = f"steps {result.from_step:,} to {result.to_step:,}"
    if result.difference is None:
        return [f"same bits: {steps}, {compared}"]
    first = result.difference
    return [
        f"different bits: {steps}, {compared}",
        f"first at step {first.step}: {first.file}, {first.name}",
        f"recorded: {first.recorded}",
        f"replayed: {first.replayed}",
    ]


@runs_app.command
def clean(*runs: Path, dry_run: bool = False, common: CommonOptions = Common()) -> None:
    """Delete checkpoints except the newest and the best.

    The run stays usable, and training can go on.

    Examples:
      seqloom runs clean runs/gpt-input
      seqloom runs clean runs/* --dry-run
      seqloom runs clean runs/compare-reviews/runs/*/*

    Parameters
    ----------
    runs
        Run folders.
    dry_run
        Delete nothing, only print what would be deleted.
    """
    from seqloom.runs import clean as clean_runs

    if not runs:
        raise UserError("no run: name the run folders to clean, as in: seqloom runs clean runs/gpt-input")
    vectors = [run for run in runs if (run / "vectors.npy").is_file()]
    for folder in vectors:
        logger.warning("%s: word vectors, which have no checkpoints; skipped", folder)
    cleaned = clean_runs(*(run for run in runs if run not in vectors), dry_run=dry_run)
    verb = "would delete" if dry_run else "deleted"
    for one in cleaned:
        removed = ", ".join(map(str, one.removed))
        line = f"{one.run}: {verb} {len(one.removed)} checkpoints ({removed}), {short_bytes(one.freed)}"
        if not one.removed:
            line = f"{one.run}: nothing to delete"
        print(json_text(one.to_dict()) if common.json else line)
    if len(cleaned) > 1 and not common.json:
        print(f"{'would free' if dry_run else 'freed'} {short_bytes(sum(one.freed for one in cleaned))}")
