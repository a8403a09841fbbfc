"""The plan of one training as it runs: how many steps, how often to evaluate, and what that costs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable, Mapping
from typing import Any

from seqloom.errors import ConfigError
from seqloom.train import process
from seqloom.train.budget import (
    MIN_TIMED_STEPS,
    Costs,
    Estimate,
    measure_costs,
    plan_steps,
    time_checkpoint,
    time_evaluation,
)
from seqloom.train.options import TrainJob, TrainOptions
from seqloom.train.plan import Pace, Phase, read_plan, steps_in_time, write_plan

TIMED_SHARE = 0.2  # of the steps that a budget in minutes allows; timed to fix their number
MAX_TIMED_SHARE = 0.4  # of a budget in minutes; the steps are fixed by then, if a few could be timed
BUSY_SHARE = 0.75  # of the time; a training that has a CPU for less of it shares it with other programs
EVAL_TIMING_SHARE = 0.02  # of a budget in minutes; spent to time evaluations before the steps are fixed
logger = logging.getLogger("seqloom.train")


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
            self.estimate = Estimate.from_json(state["estimate"])._replace(steps=self.last_step)

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
        self.costs = self.costs._replace(seconds=pace.seconds, eval_seconds=pace.eval_seconds)
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
            logger.info("step %d: the budget allows %s steps", step, f"{self.steps:,}")
        if self.job.group.size == 1 and cpu_share < BUSY_SHARE:
            logger.warning(
                "other programs use the CPU too, this training gets %.0f %% of its time: a budget in minutes allows fewer steps, "
                "and may not be kept; --steps does not depend on them",
                100 * cpu_share,
            )
        return True

    def keep(self) -> None:
        """Stores the number of steps, which the run keeps from now on."""
        self.phases = [Phase(0, self.options.budget, self.steps, self.eval_every)]
        if self.job.group.is_main:
            write_plan(self.job.folder, self.phases)
