"""The cost of a training: parameters, FLOPs, memory and seconds per step, counted or measured on this machine; and the steps that a budget
allows  [N10]."""

from __future__ import annotations

import copy
import math
import resource
import sys
import time
from collections.abc import Callable, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqloom.batches.batch import Batch
from seqloom.evaluation import total_nll
from seqloom.fused.dispatch import plain
from seqloom.train import process

if TYPE_CHECKING:
    from seqloom.train.trainer import Trainer, TrainJob

MIN_EVALUATIONS = (
    10  # evaluations of a run whose steps come from a budget, so that its loss curve has a shape
)


class Estimate(NamedTuple):
    """What a training run will cost."""

    parameters: dict[str, int]  # by part
    flops_per_token: float  # forward and backward, of the matrix products of the plain form
    memory: float  # bytes at the peak of a step
    seconds: float
    steps: int

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Estimate:
        """The estimate that a checkpoint's state.json holds."""
        return cls(*(record[name] for name in cls._fields))

    def text(self) -> str:
        """The estimate in a few lines."""
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parameters.items())
        return (
            f"promise: {sum(self.parameters.values()):,} parameters ({parts})\n"
            f"          {self.flops_per_token / 1e6:,.2f} MFLOP per token, {self.memory / 2**20:,.0f} MiB, "
            f"{self.steps:,} steps in {duration(self.seconds)} on this machine"
        )


def num_evaluations(train_seconds: float, eval_seconds: float) -> int:
    """How many evaluations to make: MIN_EVALUATIONS, or fewer if they would take over a tenth of the training time."""
    return max(1, min(MIN_EVALUATIONS, int(train_seconds / 10 / max(eval_seconds, 1e-9))))


def parameters(model: nn.Module) -> dict[str, int]:
    """The number of parameters of each part. A parameter that two parts share counts once, for the first of them."""
    counted: set[int] = set()
    result = {}
    for name, part in model.named_children():
        new = [p for p in part.parameters() if id(p) not in counted]
        counted.update(map(id, new))
        if new:
            result[name] = sum(p.numel() for p in new)
    return result


def flops(run_step: Callable[[], object]) -> float:
    """The FLOPs of one call, counted from its matrix products in plain form."""
    with plain(), flop_counter() as counter:
        run_step()
    return float(counter.get_total_flops())


def activation_bytes(run_forward: Callable[[], object]) -> int:
    """The bytes that a forward pass saves for the backward pass."""
    bytes_by_address: dict[int, int] = {}

    def record(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        bytes_by_address[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
        run_forward()
    return sum(bytes_by_address.values())


def duration(seconds: float) -> str:
    """Seconds as text, in minutes from two minutes on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def peak_memory() -> int:
    """The largest resident size of this process so far, in bytes."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def current_memory() -> int:
    """The resident size of this process in bytes; its peak where the system does not report the current size."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * resource.getpagesize()
    except OSError:
        return peak_memory()


def seconds_per_step(step: Callable[[int], object], min_seconds: float = 2.0, max_steps: int = 20) -> float:
    """The mean time of a step after one warm-up step; `step` takes the number of the step."""
    step(0)
    count = 0
    start_time = time.perf_counter()
    while count < max_steps and (count < 3 or time.perf_counter() - start_time < min_seconds):
        count += 1
        step(count)
    return (time.perf_counter() - start_time) / count


class Plan(NamedTuple):
    """How many steps a run makes, how often it evaluates, and what that will cost."""

    steps: int
    eval_every: int
    estimate: Estimate


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
    activations = activation_bytes(rehearsal.forward)
    costs = measure_costs(trainer, job, rehearsal)
    steps, eval_every = plan_steps(trainer, costs)
    seconds = costs.seconds * steps + costs.eval_seconds * -(-steps // eval_every)
    memory = current_memory() + rehearsal.state_bytes() + activations
    counts = parameters(rehearsal.model)
    torch.set_rng_state(random_state)
    return Plan(steps, eval_every, Estimate(counts, costs.flops_per_token, memory, seconds, steps))


def measure_costs(trainer: Trainer, job: TrainJob, rehearsal: Rehearsal) -> StepCosts:
    """The costs of a step and of an evaluation; the mean over all processes, so that all of them plan the same steps."""
    batches = rehearsal.batches
    flops_per_token = flops(lambda: rehearsal.forward().backward()) / max(batches[0].num_targets, 1)
    seconds = seconds_per_step(rehearsal.step, *timing_limits(trainer))

    def evaluate_one_batch(_: int) -> None:
        total_nll(rehearsal.model, job.objective, islice(job.held_out(trainer.eval_batches), 1))

    eval_seconds = seconds_per_step(evaluate_one_batch, min_seconds=0.5, max_steps=5)
    eval_seconds *= sum(1 for _ in job.held_out(trainer.eval_batches))
    tokens = trainer.accumulate * sum(batch.num_targets for batch in batches)
    sums = process.all_sum(job.world, seconds, eval_seconds, flops_per_token, tokens)
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
            evaluations = MIN_EVALUATIONS
            if name == "minutes":
                evaluations = num_evaluations(costs.seconds * steps, costs.eval_seconds)
            eval_every = min(trainer.eval_every, max(1, steps // evaluations))
    return steps, eval_every


def timing_limits(trainer: Trainer) -> tuple[float, int]:
    """For how many seconds and steps to time; longer for a budget in minutes, since the speed of a machine varies."""
    minutes = trainer.budgets.get("minutes")
    if minutes is None:
        return 2.0, 20
    return min(max(2.0, 60 * minutes / 50), 30.0), 10_000


def matvec_flops(matrix: torch.Size, vector: torch.Size, out_shape: torch.Size | None = None) -> int:
    return 2 * math.prod(matrix)


def addmv_flops(
    start: torch.Size, matrix: torch.Size, vector: torch.Size, out_shape: torch.Size | None = None
) -> int:
    return 2 * math.prod(matrix)


EXTRA_FLOPS = {
    torch.ops.aten.mv: matvec_flops,
    torch.ops.aten.dot: matvec_flops,
    torch.ops.aten.addmv: addmv_flops,
}


def flop_counter() -> FlopCounterMode:
    """A context that counts the FLOPs of every matrix product inside it; its `flop_registry` holds the formulas."""
    return FlopCounterMode(display=False, custom_mapping=EXTRA_FLOPS)
