"""The number of steps of a run: fixed once from its budget and stored in plan.json, so that a resumed run keeps it.

    [{"start": 0, "budget": {"minutes": 5.0}, "steps": 1000, "eval_every": 100},
     {"start": 1000, "budget": {"minutes": 10.0}, "steps": 2012, "eval_every": 100}]

A phase holds from its first step on. A run has one phase, and one more each time it is lengthened. The budget is what the config asks
for: if it is another than that of the last phase, the run is being lengthened (`lengthen.py`).
"""

from __future__ import annotations

import difflib
import json
import logging
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

from seqloom import files
from seqloom.errors import ConfigError, RunError
from seqloom.run_files import Results, read_results
from seqloom.train import process
from seqloom.train.budget import (
    MIN_TIMED_STEPS,
    Costs,
    Estimate,
    duration,
    duration_range,
    measure_costs,
    promise_range,
    time_checkpoint,
    time_evaluation,
)
from seqloom.train.options import TrainJob, TrainOptions

if TYPE_CHECKING:
    from seqloom.train.solvers import Solver

PLAN_FILE = "plan.json"
BUDGETS = ("steps", "minutes", "epochs", "tokens", "flops")
MIN_EVALUATIONS = 10  # of a run whose steps come from a budget, so that its loss curve has a shape
TIMED_SHARE = 0.2  # of the steps that a budget in minutes allows; timed to fix their number
MAX_TIMED_SHARE = 0.4  # of a budget in minutes; the steps are fixed by then, if a few could be timed
LATE_SECONDS = 10.0  # above the promise, which are worth a warning
BUSY_SHARE = 0.75  # of the time; a training that has a CPU for less of it shares it with other programs
EVAL_TIMING_SHARE = 0.02  # of a budget in minutes; spent to time evaluations before the steps are fixed
logger = logging.getLogger("seqloom.train")


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
    pace = pace._replace(seconds=max(pace.seconds, 1e-9))  # a clock may be too coarse for one step
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
        if name not in BUDGETS:
            near = difflib.get_close_matches(name, BUDGETS, 1)
            hint = f"did you mean {near[0]}?" if near else f"choose from {', '.join(BUDGETS)}"
            raise ConfigError(f"{name}: there is no such budget or option; {hint}")
        if not isinstance(value, str):
            continue
        try:
            number = float(value) if name != "steps" else int(value)
        except ValueError:
            raise ConfigError(
                f"{name}={value!r}: give a number, or +number to lengthen a run by it"
            ) from None
        if value.startswith("+"):
            if folder is None:
                raise ConfigError(
                    f"--{name} {value}: a run is lengthened in its own folder, without --out and --from, as in: "
                    f"seqloom train RUN --{name} {value}; a new run takes a number without +"
                )
            from seqloom.train.lengthen import reached

            number += reached(folder, name, present)
        resolved[name] = number
    return Budget(**resolved)  # type: ignore[typeddict-item]  # the names are those of BUDGETS


class StepTimer:
    """Times the first steps of a training, up to the step `stop`, or up to `max_seconds` of the run if the machine has become slower since
    the rehearsal; the first fifth of the steps is slower and left out. Also how much of the CPU the training gets meanwhile."""

    def __init__(self, stop: int, max_seconds: float = math.inf):
        self.stop = stop
        self.max_seconds = max_seconds
        self.times: list[float] = []  # after each step
        self.cpu_start = time.thread_time()
        self.start_time = time.perf_counter()

    @classmethod
    def for_budget(cls, options: TrainOptions, steps: int) -> StepTimer | None:
        """A timer for a budget that allows about so many steps; None if too few steps can be timed.

        No step may be timed that depends on the number of steps: by its learning rate, or because it is evaluated.
        """
        longest = min(options.schedule.fixed_steps, options.eval_every, steps // 3)
        stop = min(longest, max(MIN_TIMED_STEPS, round(TIMED_SHARE * steps)))
        max_seconds = 60 * options.budget["minutes"] * MAX_TIMED_SHARE
        return cls(stop, max_seconds) if stop >= MIN_TIMED_STEPS else None

    def note(self, step: int, elapsed: float) -> bool:
        """Called after each step, with the seconds of the run; whether it was the last to be timed."""
        self.times.append(time.perf_counter())
        return step >= self.stop or (elapsed >= self.max_seconds and self.seconds(step) is not None)

    def seconds(self, step: int) -> float | None:
        """The mean time of a step so far; None if too few were timed."""
        first = 1 + step // 5
        if len(self.times) < step or step < first + MIN_TIMED_STEPS - 2:
            return None
        return (time.perf_counter() - self.times[first - 1]) / (step - first)

    def cpu_share(self) -> float:
        """The share of the time in which this thread had a CPU; less than 1 if other programs use it too."""
        seconds = time.perf_counter() - self.start_time
        return (time.thread_time() - self.cpu_start) / seconds if seconds > 0 else 1.0


class RunPlan:
    """The number of steps of a run and the steps between evaluations, from plan.json, or from the budget.

    The steps of a budget in minutes are open until some steps are timed; what happens before does not depend on them.
    """

    def __init__(self, options: TrainOptions, job: TrainJob):
        self.options = options
        self.job = job
        self.phases = read_plan(job.folder)
        self.steps = int(options.budget.get("steps", 1))
        self.eval_every = options.eval_every
        self.estimate: Estimate | None = None
        self.timer: StepTimer | None = None
        self.is_late = False  # whether a warning has said that the training takes longer than promised
        self.save_seconds = 0.0  # of a checkpoint
        self.costs: Costs

    @property
    def last_step(self) -> int:
        """The number of steps of the run, as far as it is known."""
        return self.phases[-1].steps if self.phases else self.steps

    def resume(self, state: Mapping[str, Any]) -> None:
        """Takes over the state of a checkpoint."""
        if not self.phases:  # an older version began the run
            self.phases = [Phase(0, {}, state["steps"], state.get("eval_every", self.options.eval_every))]
        if state["estimate"]:
            self.estimate = Estimate.from_json(state["estimate"])
            if self.estimate.steps != self.last_step:  # lengthened: the new steps at the pace of the old ones
                done, ahead = state["seconds"], self.seconds_ahead(state["step"], state["seconds"])
                low, high = promise_range(done, ahead, 1.0)
                self.estimate = self.estimate._replace(
                    steps=self.last_step, seconds=done + ahead, low=low, high=high
                )

    def seconds_ahead(self, step: int, seconds: float) -> float:
        """The time that the other steps take at the pace of the first `step`."""
        return seconds / max(step, 1) * max(0, self.last_step - step)

    def going_on(self, step: int, seconds: float) -> str:
        """Where a resumed run goes on, and the promise of its rest."""
        rest = duration(self.seconds_ahead(step, seconds))
        return f"goes on after step {step:,} of {self.last_step:,}, about {rest} more"

    def begin(self, elapsed: float) -> None:
        """Measures what the run costs, logs it, and sets the number of steps, unless it is fixed already."""
        (elapsed,) = process.all_mean(self.job.group, elapsed)
        self.costs = measure_costs(self.options, self.job)
        refused: ConfigError | None = None
        try:
            self.job.check_costs(self.costs)
        except ConfigError as error:
            refused = error
        process.agree(self.job.group, refused)
        elapsed += self.costs.rehearsal_seconds
        if "minutes" in self.options.budget:
            save_seconds = 0.0
            if self.job.group.is_main:
                save_seconds = time_checkpoint(self.job.folder / "checkpoints", self.job.model)
            (self.save_seconds,) = process.all_sum(self.job.group, save_seconds)
            self.costs = self.costs._replace(eval_seconds=self.costs.eval_seconds + self.save_seconds)
            elapsed += self.save_seconds
        if self.phases:
            self.enter(0)
        else:
            epoch_steps = 0.0
            if "epochs" in self.options.budget:
                epoch_steps = self.job.train.epoch_batches() / self.options.accumulate
            self.steps, self.eval_every = plan_steps(self.options, self.costs, epoch_steps, elapsed)
            if "minutes" in self.options.budget:
                self.timer = StepTimer.for_budget(self.options, self.steps)
            if not self.timer:
                self.keep()
        self.estimate = self.costs.estimate(elapsed, self.last_step, self.eval_every)
        if self.timer:
            self.eval_every = self.options.eval_every  # no evaluation before the steps are fixed
        if self.job.group.is_main:
            logger.info("%s", self.estimate.text("about " if self.timer else ""))

    def enter(self, step: int) -> bool:
        """Enters the phase that holds at a step; whether the run is lengthened there."""
        lengthened = False
        for phase in self.phases:
            if phase.start <= step:
                self.steps = phase.steps
                self.eval_every = phase.eval_every
                lengthened = step == phase.start > 0
        return lengthened

    def is_timed(self, step: int, elapsed: float) -> bool:
        """Called after each step; whether enough steps are timed to fix their number. All processes give the same answer."""
        if self.timer is None:
            return False
        return any(process.all_sum(self.job.group, self.timer.note(step, elapsed)))

    def fix(self, step: int, elapsed: Callable[[], float]) -> bool:
        """Fixes the steps of a budget in minutes by the time that the steps so far have taken; whether they were open.

        An evaluation is timed again: the rehearsal's model and caches are not those of the training.
        """
        if self.timer is None:
            return False
        budget_seconds = 60 * self.options.budget["minutes"]
        step_seconds = self.timer.seconds(step) or self.costs.seconds
        eval_seconds = time_evaluation(
            self.options, self.job, self.job.model, EVAL_TIMING_SHARE * budget_seconds
        )
        means = process.all_mean(self.job.group, elapsed(), step_seconds, eval_seconds + self.save_seconds)
        cpu_share = self.timer.cpu_share()
        self.timer = None
        pace = Pace(step, *means)
        self.costs = self.costs._replace(
            seconds=pace.seconds, eval_seconds=pace.eval_seconds, cpu_share=cpu_share
        )
        logger.debug(
            "a step takes %.4f s, an evaluation %.2f s and a checkpoint %.2f s",
            step_seconds,
            eval_seconds,
            self.save_seconds,
        )
        self.steps, self.eval_every = steps_in_time(budget_seconds, pace, self.options.eval_every)
        self.keep()
        self.estimate = self.costs.estimate(pace.elapsed - pace.seconds * step, self.steps, self.eval_every)
        if self.job.group.is_main:
            time_text = duration_range(self.estimate.seconds, self.estimate.low, self.estimate.high)
            logger.info("step %d: the budget allows %s steps, %s", step, f"{self.steps:,}", time_text)
        if self.job.group.size == 1 and cpu_share < BUSY_SHARE:
            logger.warning(
                "other programs use the CPU too, this training gets %.0f %% of its time: a budget in minutes allows fewer steps, "
                "and may not be kept; --steps does not depend on them",
                100 * cpu_share,
            )
        return True

    def note_pace(self, step: int, seconds: float, seconds_left: float | None) -> None:
        """Says once that a training will take longer than the range of its promise, and how long at the pace of late."""
        estimate = self.estimate
        if self.is_late or not self.job.group.is_main or seconds_left is None:
            return
        if estimate is None or estimate.high is None:
            return
        total = seconds + seconds_left
        if self.timer is None and step * 10 >= self.steps and total > estimate.high + LATE_SECONDS:
            self.is_late = True
            promised = duration_range(estimate.seconds, estimate.low, estimate.high)
            logger.warning(
                "step %d: at the pace of late it takes %s in all, promised were %s",
                step,
                duration(total),
                promised,
            )

    def keep(self) -> None:
        """Stores the number of steps, which the run keeps from now on."""
        self.phases = [Phase(0, self.options.budget, self.steps, self.eval_every)]
        if self.job.group.is_main:
            write_plan(self.job.folder, self.phases)


def budget_of(options: TrainOptions | Solver) -> dict[str, float]:
    """The budget of a training; empty for a solver, which ends by itself."""
    return options.budget if isinstance(options, TrainOptions) else {}


def plan_steps(options: TrainOptions, costs: Costs, epoch_steps: float, elapsed: float) -> tuple[int, int]:
    """The steps that the budget allows and the steps between evaluations; a budget in steps leaves both as they are."""
    name, value = next(iter(options.budget.items()))
    if name == "minutes":
        pace = Pace(0, elapsed, costs.seconds, costs.eval_seconds)
        return steps_in_time(60 * value, pace, options.eval_every)
    if name == "steps":
        return int(value), options.eval_every
    if name == "epochs":
        steps = math.ceil(value * epoch_steps)
    else:
        steps = int(value / {"tokens": costs.tokens, "flops": costs.tokens * costs.flops_per_token}[name])
    steps = max(1, steps)
    return steps, min(options.eval_every, max(1, steps // MIN_EVALUATIONS))
