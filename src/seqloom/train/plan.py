"""The number of steps of a run: fixed once from its budget and stored in plan.json, so that a resumed run keeps it.

    [{"start": 0, "budget": {"minutes": 5.0}, "steps": 1000, "eval_every": 100},
     {"start": 1000, "budget": {"minutes": 10.0}, "steps": 2012, "eval_every": 100}]

A phase holds from its first step on. A run has one phase, and one more each time it is lengthened. The budget is what the config asks
for: if it is another than that of the last phase, the run is being lengthened.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

from seqloom import compat, files
from seqloom.errors import ConfigError, RunError
from seqloom.run_files import Results, read_results
from seqloom.train import checkpoint

PLAN_FILE = "plan.json"
BUDGETS = ("steps", "minutes", "epochs", "tokens", "flops")
MIN_EVALUATIONS = 10  # of a run whose steps come from a budget, so that its loss curve has a shape


class Budget(TypedDict, total=False):
    """The length of a training, one of these. A text such as "+100" lengthens a run by so much."""

    steps: int | str | None
    minutes: float | str | None
    epochs: float | str | None
    tokens: float | str | None
    flops: float | str | None


class Phase(NamedTuple):
    """What holds from the step `start` on: the number of steps of the run, and the steps between evaluations."""

    start: int
    budget: dict[str, float]
    steps: int
    eval_every: int


def read_plan(folder: Path) -> list[Phase]:
    """The phases of a run; none if its steps are not fixed yet, or if an older version wrote it."""
    path = folder / PLAN_FILE
    try:
        return [Phase(**record) for record in json.loads(path.read_text("utf-8"))]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, TypeError):
        raise RunError(f"{path}: damaged; train the run again in another folder") from None


def final_results(folder: Path, phases: list[Phase]) -> Results | None:
    """The results of a run that has reached the end of its plan, else None. `phases` may be empty for a run of an older version."""
    try:
        results = read_results(folder)
    except RunError:
        return None
    planned = results.promised.steps if results.promised else None
    return results if results.valid and (not phases or planned == phases[-1].steps) else None


def write_plan(folder: Path, phases: list[Phase]) -> None:
    """Writes plan.json."""
    records = ",\n ".join(json.dumps(phase._asdict()) for phase in phases)
    files.write_atomic(folder / PLAN_FILE, f"[{records}]\n")


def num_evaluations(train_seconds: float, eval_seconds: float) -> int:
    """How many evaluations to make: MIN_EVALUATIONS, or fewer if they would take over a tenth of the training time."""
    return max(1, min(MIN_EVALUATIONS, int(train_seconds / 10 / max(eval_seconds, 1e-9))))


class Pace(NamedTuple):
    """How fast a run is: after `step` steps it has taken `elapsed` seconds, and a step takes `seconds` from now on."""

    step: int
    elapsed: float
    seconds: float
    eval_seconds: float  # of an evaluation and its checkpoint


def steps_in_time(budget_seconds: float, pace: Pace, eval_every: int) -> tuple[int, int]:
    """The steps that a budget of time allows, and the steps between evaluations, at most `eval_every`."""
    steps = pace.step + max(1, round((budget_seconds - pace.elapsed) / pace.seconds))
    interval = eval_every
    # With fewer steps evaluations are more frequent, which leaves time for fewer steps.
    for _ in range(3):
        evaluations = num_evaluations(pace.seconds * steps, pace.eval_seconds)
        interval = min(eval_every, max(1, pace.step, steps // evaluations))
        spent = pace.elapsed + pace.eval_seconds * math.ceil(steps / interval)
        steps = pace.step + max(1, round((budget_seconds - spent) / pace.seconds))
    return steps, min(interval, steps)


def set_budget(tree: dict[str, Any], budget: Mapping[str, Any]) -> dict[str, Any]:
    """A config tree whose `train` section has this budget and no other."""
    section = {name: value for name, value in tree.get("train", {}).items() if name not in BUDGETS}
    return {**tree, "train": {**section, **budget}}


def without_budget(tree: dict[str, Any]) -> dict[str, Any]:
    """A config tree without the budget."""
    return set_budget(tree, {})


def resolve_increase(budget: Mapping[str, Any], folder: Path | None, present: Mapping[str, float]) -> Budget:
    """A budget in which a text such as "+100" is replaced by what the run has already, and so much more."""
    resolved: dict[str, Any] = {name: value for name, value in budget.items() if value is not None}
    for name, value in resolved.items():
        if not isinstance(value, str):
            continue
        number = float(value) if name != "steps" else int(value)
        if value.startswith("+"):
            if folder is None:
                raise ConfigError(
                    f"--{name} {value}: only a run can be lengthened, as in: seqloom train RUN --{name} {value}"
                )
            number += reached(folder, name, present)
        resolved[name] = number
    return Budget(**resolved)  # type: ignore[typeddict-item]  # the names are those of BUDGETS


def reached(folder: Path, name: str, present: Mapping[str, float]) -> float:
    """What a run has of a unit at its planned end: its steps, or the value of its own budget."""
    if name == "steps":
        phases = read_plan(folder)
        if phases:
            return phases[-1].steps
        if saved := checkpoint.latest(folder / "checkpoints", lambda message: None):
            return compat.upgrade_json("state.json", saved.metadata)["steps"]
    if name not in present:
        own = ", ".join(f"{value:g} {unit}" for unit, value in present.items())
        raise ConfigError(
            f"--{name} +…: the budget of {folder} is {own}; lengthen it by steps, as in --steps +100"
        )
    return present[name]


class LengthUnits(NamedTuple):
    """What turns budgets into steps when a run is lengthened."""

    epoch_steps: float  # steps of an epoch
    default_eval_every: int


def lengthen(
    folder: Path, before: Mapping[str, float], budget: Mapping[str, float], units: LengthUnits
) -> Phase:
    """Adds a phase with the new budget to the plan of a run, which had the budget `before`. Raises unless it is larger."""
    saved = checkpoint.latest(folder / "checkpoints", lambda message: None)
    if saved is None:
        raise RunError(
            f"{folder}: the run has no checkpoint, so it cannot go on; begin a new run from its weights with --from {folder}"
        )
    state = compat.upgrade_json("state.json", saved.metadata)
    phases = read_plan(folder) or [
        Phase(0, dict(before), state["steps"], state.get("eval_every", units.default_eval_every))
    ]
    last = phases[-1]
    start = state["step"]
    ended = start >= last.steps or final_results(folder, phases) is not None
    steps = steps_of(budget, state, units)
    if steps <= (start if ended else last.steps):
        raise ConfigError(
            f"{folder}: the run has {start if ended else last.steps:,} steps, and this budget allows {steps:,}; "
            "give a larger one, as in --steps +100"
        )
    write_plan(folder, phases)
    return Phase(start, dict(budget), steps, last.eval_every)


def steps_of(budget: Mapping[str, float], state: Mapping[str, Any], units: LengthUnits) -> int:
    """The steps that a budget allows a run that has come as far as its checkpoint says, at the pace it had."""
    (name, value), step = next(iter(budget.items())), state["step"]
    if name == "steps":
        return int(value)
    if name == "epochs":
        return math.ceil(value * units.epoch_steps)
    used = {"minutes": state["seconds"] / 60, "tokens": state.get("tokens", 0.0)}
    estimate = state.get("estimate") or {}
    used["flops"] = used["tokens"] * estimate.get("flops_per_token", 0.0)
    if not used[name]:
        raise ConfigError(
            f"train.{name}: the checkpoint does not say how many the run has; give --steps +100"
        )
    return step + int((value - used[name]) * step / used[name])
