"""A run that is lengthened: a larger budget adds a phase to its plan, and the run goes on to the new end."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seqloom import compat, run_files
from seqloom.config_source import config_of
from seqloom.errors import ConfigError, RunError
from seqloom.run_config import Config
from seqloom.train import checkpoint
from seqloom.train.options import TrainOptions
from seqloom.train.plan import PLAN_FILE, Phase, budget_of, final_results, read_plan, write_plan
from seqloom.train.preparation import read_options

logger = logging.getLogger("seqloom.train")


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


def lengthen_if_asked(
    folder: Path,
    config: Config,
    options: TrainOptions,
    epoch_batches: Callable[[], int],
    has_checkpoint: bool,
) -> None:
    """Lengthens the run in a folder if the config has another budget than its plan. A run without a checkpoint just begins again.

    The config is written before the plan: if the process dies between, the next one finds the difference again.
    """
    before = budget_of(read_options(*config_of(folder)))
    phases = read_plan(folder)
    if options.budget == (phases[-1].budget if phases else before):
        return
    if not has_checkpoint and not (folder / "model.safetensors").exists():
        (folder / PLAN_FILE).unlink(missing_ok=True)
        run_files.write_with_config(folder, config.to_yaml())
        return
    epoch_steps = epoch_batches() / options.accumulate if "epochs" in options.budget else 0.0
    phase = lengthen(folder, before, options.budget, LengthUnits(epoch_steps, options.eval_every))
    run_files.write_with_config(folder, config.to_yaml())
    phases = read_plan(folder)
    write_plan(folder, [*phases, phase])
    name, value = next(iter(options.budget.items()))
    logger.info(
        "lengthened to %s %s in all (--%s +N adds N): the run now ends at step %s instead of %s, and so does its schedule; "
        "after an interruption, go on with: seqloom train %s",
        f"{value:,g}",
        name.removesuffix("s") if value == 1 else name,
        name,
        f"{phase.steps:,}",
        f"{phases[-1].steps:,}",
        folder,
    )
