"""The estimate before training: counts and times a few steps on a copy of the model, and converts a budget to steps  [N10]."""

from __future__ import annotations

import copy
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor, nn

from seqloom.batches.batch import Batch
from seqloom.evaluation import total_nll
from seqloom.train import budget, distributed
from seqloom.train.trainer import Trainer, TrainJob


class Plan(NamedTuple):
    """How many steps a run makes, how often it evaluates, and what that will cost."""

    steps: int
    eval_every: int
    estimate: budget.Estimate


class StepCosts(NamedTuple):
    """Measured costs, averaged over all processes."""

    seconds: float  # of one step
    eval_seconds: float  # of one evaluation
    flops_per_token: float
    tokens: float  # predicted by one step


class Rehearsal:
    """Training steps on a copy of the model, which leave no trace in the model itself."""

    def __init__(self, trainer: Trainer, job: TrainJob):
        self.trainer = trainer
        self.objective = job.objective
        self.model: nn.Module = copy.deepcopy(job.model).train()
        stream = job.train.batches((), job.world.rank, job.world.size)
        self.batches: list[Batch] = [next(stream)[0] for _ in range(8)]
        self.optimizer = trainer.make_optimizer(self.model.parameters())

    def forward(self, index: int = 0) -> Tensor:
        """The loss of one batch."""
        loss, _, _ = self.objective(self.model, self.batches[index % len(self.batches)], None)
        return loss

    def step(self, index: int) -> None:
        """One optimizer step."""
        for micro in range(self.trainer.accumulate):
            self.forward(index + micro).backward()
        self.trainer.clip([p.grad for p in self.model.parameters() if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def state_bytes(self) -> int:
        """The bytes of the parameters and of the optimizer's moments."""
        moments = [value for state in self.optimizer.state.values() for value in state.values()]
        tensors: list[Tensor] = [*self.model.parameters(), *moments]
        return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def estimate_cost(trainer: Trainer, job: TrainJob) -> Plan:
    """Times a few steps and plans the run; leaves the random state as it was."""
    random_state = torch.get_rng_state()
    rehearsal = Rehearsal(trainer, job)
    activations = budget.activation_bytes(rehearsal.forward)
    costs = measure_costs(trainer, job, rehearsal)
    steps, eval_every = plan_steps(trainer, costs)
    seconds = costs.seconds * steps + costs.eval_seconds * -(-steps // eval_every)
    memory = budget.current_memory() + rehearsal.state_bytes() + activations
    counts = budget.parameters(rehearsal.model)
    torch.set_rng_state(random_state)
    return Plan(steps, eval_every, budget.Estimate(counts, costs.flops_per_token, memory, seconds, steps))


def measure_costs(trainer: Trainer, job: TrainJob, rehearsal: Rehearsal) -> StepCosts:
    """The costs of a step and of an evaluation; the mean over all processes, so that all of them plan the same steps."""
    batches = rehearsal.batches
    flops = budget.flops(lambda: rehearsal.forward().backward()) / max(batches[0].num_targets, 1)
    seconds = budget.seconds_per_step(rehearsal.step, *timing_limits(trainer))

    def evaluate_one_batch(_: int) -> None:
        total_nll(rehearsal.model, job.objective, islice(job.held_out(trainer.eval_batches), 1))

    eval_seconds = budget.seconds_per_step(evaluate_one_batch, min_seconds=0.5, max_steps=5)
    eval_seconds *= sum(1 for _ in job.held_out(trainer.eval_batches))
    tokens = trainer.accumulate * sum(batch.num_targets for batch in batches)
    sums = distributed.all_sum(job.world, seconds, eval_seconds, flops, tokens)
    size = job.world.size
    return StepCosts(sums[0] / size, sums[1] / size, sums[2] / size, sums[3] / len(batches))


def plan_steps(trainer: Trainer, costs: StepCosts) -> tuple[int, int]:
    """The steps that the budget allows and the steps between evaluations; without a budget, those of the options."""
    steps, eval_every = trainer.steps, trainer.eval_every
    for name, value in trainer.budgets.items():
        # Two passes: with fewer steps evaluations are more frequent, which leaves time for fewer steps.
        for _ in range(2):
            cost_per_step = {
                "minutes": (costs.seconds + costs.eval_seconds / eval_every) / 60,
                "tokens": costs.tokens,
                "flops": costs.tokens * costs.flops_per_token,
            }
            steps = max(1, int(value / cost_per_step[name]))
            evaluations = budget.MIN_EVALUATIONS
            if name == "minutes":
                evaluations = budget.num_evaluations(costs.seconds * steps, costs.eval_seconds)
            eval_every = min(trainer.eval_every, max(1, steps // evaluations))
    return steps, eval_every


def timing_limits(trainer: Trainer) -> tuple[float, int]:
    """For how many seconds and steps to time; longer for a budget in minutes, since the speed of a machine varies."""
    minutes = trainer.budgets.get("minutes")
    if minutes is None:
        return 2.0, 20
    return min(max(2.0, 60 * minutes / 50), 30.0), 10_000
