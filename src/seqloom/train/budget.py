"""The cost of a training: parameters, FLOPs, memory and seconds per step, counted or measured on this machine; what does not fit the
machine is refused  [N10].

A rehearsal, training steps on a copy of the model that leave no trace, gives a first estimate. A batch of 32 rows through 12 layers of
768 takes minutes and many gigabytes, so a slice of its rows is measured and scaled: time and memory grow with the rows. A budget
in minutes needs a better estimate: the first steps of the training itself are timed, during the warm-up, in which the learning rate does
not depend on the number of steps.
"""

from __future__ import annotations

import copy
import logging
import math
import resource
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

import torch
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from seqloom.batches.batch import Batch, first_rows, num_positions
from seqloom.config_source import TRAINING_BYTES
from seqloom.errors import NoRoom
from seqloom.evaluation import total_nll
from seqloom.fused.dispatch import plain
from seqloom.train import checkpoint, process
from seqloom.train.process import machine_memory

if TYPE_CHECKING:
    from seqloom.run_config import Config
    from seqloom.train.options import TrainJob, TrainOptions

MIN_TIMED_STEPS = 5
QUIET_MARGIN = 0.25  # of a promise on a machine of its own
BUSY_MARGIN = 1.5  # more for the share of the CPU that other programs take
MIN_TIMED_BATCHES = 4  # of an evaluation
logger = logging.getLogger("seqloom.train")
NUM_REHEARSED = 32  # batches whose tokens are counted
SLICE_FLOPS = 2e11  # of the step that is measured: a few seconds of one core
LONG_STEP = 4.0  # seconds after which no further step is timed
ACCEPTED_STEP = 60.0  # seconds; a step up to this is never refused, however small the budget is


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def affordable_rows(model: nn.Module, batch: Batch) -> int:
    """How many rows of a batch can be measured in seconds, at least one: a token takes about 6 FLOPs for each parameter."""
    rows = len(batch.ids)
    flops_per_row = 6.0 * count_parameters(model) * num_positions(batch) / max(rows, 1)
    return max(1, min(rows, int(SLICE_FLOPS / max(flops_per_row, 1.0))))


def seconds_per_step(step: Callable[[int], object], min_seconds: float = 2.0, max_steps: int = 20) -> float:
    """The mean time of a step after one warm-up step, which may compile kernels; `step` takes the number of the step. At least three steps are
    timed, of a long step one."""
    step(0)
    done = 0
    start_time = time.perf_counter()
    long = max(LONG_STEP, min_seconds)
    while done < max_steps and (time.perf_counter() - start_time < (min_seconds if done >= 3 else long)):
        done += 1
        step(done)
    return (time.perf_counter() - start_time) / done


class Rehearsal:
    """Training steps on a copy of the model. `scale` is how many times the rows of the slice a batch has; 1 if it is measured in full."""

    def __init__(self, options: TrainOptions, job: TrainJob):
        self.options = options
        self.objective = job.objective
        self.model: nn.Module = copy.deepcopy(job.model).train()
        self.stream = job.train.batches((), job.group.rank, job.group.size)
        self.batches: list[Batch] = [next(self.stream)[0] for _ in range(NUM_REHEARSED)]
        self.optimizer = options.make_optimizer(self.model.parameters())
        first = self.batches[0]
        self.rows = affordable_rows(job.model, first)
        self.scale = len(first.ids) / self.rows

    def slice(self, batch: Batch) -> Batch:
        """The rows of a batch that are measured."""
        return batch if self.scale == 1 else first_rows(batch, self.rows)

    def forward(self, batch: Batch) -> Tensor:
        """The loss of one batch."""
        loss, _, _ = self.objective(self.model, batch, None)
        return loss

    def backward(self, _: int) -> None:
        """The gradients of the slice of the next batch."""
        self.forward(self.slice(next(self.stream)[0])).backward()

    def update(self, _: int) -> None:
        """One update of the weights."""
        self.options.clip([p.grad for p in self.model.parameters() if p.grad is not None])
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)

    def step(self, index: int) -> None:
        """One step on the next batches."""
        for _ in range(self.options.accumulate):
            self.backward(index)
        self.update(index)

    def time_step(self, timer: Callable[..., float], min_seconds: float, max_steps: int) -> float:
        """The seconds of a step, by a timer such as `seconds_per_step`. Of a long step, one slice of a batch is timed and one update."""
        rows = sum(map(len, (batch.ids for batch in self.batches))) / len(self.batches) / self.rows
        work = (
            self.options.accumulate * self.scale * affordable_share(self.model, self.slice(self.batches[0]))
        )
        if work <= 1:
            return timer(self.step, min_seconds, max_steps)
        seconds = timer(self.backward, min_seconds, max_steps)
        start_time = time.perf_counter()
        self.update(0)
        return self.options.accumulate * max(rows, 1.0) * seconds + time.perf_counter() - start_time

    def activation_bytes(self) -> float:
        """The bytes that the forward pass of a batch saves for the backward pass, scaled from the slice; weights do not grow with it."""
        bytes_by_address: dict[int, int] = {}
        weights = {parameter.untyped_storage().data_ptr() for parameter in self.model.parameters()}

        def record(tensor: Tensor) -> Tensor:
            storage = tensor.untyped_storage()
            bytes_by_address[storage.data_ptr()] = storage.nbytes()
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(record, lambda tensor: tensor):
            self.forward(self.slice(self.batches[0]))
        return sum(
            size if address in weights else size * self.scale for address, size in bytes_by_address.items()
        )

    def state_bytes(self) -> int:
        """The bytes of the parameters and of the optimizer's moments."""
        moments: list[Any] = [value for state in self.optimizer.state.values() for value in state.values()]
        return sum(tensor.nbytes for tensor in [*self.model.parameters(), *moments])


def affordable_share(model: nn.Module, batch: Batch) -> float:
    """The work of a batch as a share of what is measured at most."""
    return 6.0 * count_parameters(model) * num_positions(batch) / SLICE_FLOPS


class Estimate(NamedTuple):
    """What a training run will cost."""

    parameters: dict[str, int]  # by part
    flops_per_token: float  # forward and backward, of the matrix products of the plain form
    memory: float  # bytes at the peak of a step
    seconds: float
    steps: int
    low: float | None = None  # seconds if other programs leave the CPU to the training
    high: float | None = None  # seconds if they take more of it

    @classmethod
    def from_json(cls, record: Mapping[str, Any]) -> Estimate:
        """The estimate that a checkpoint's state.json holds; those of older versions have no range."""
        return cls(**{name: record[name] for name in cls._fields if name in record})

    def text(self, certainty: str = "") -> str:
        """The estimate in one line; `certainty` comes before the number of steps."""
        return (
            f"promise: {sum(self.parameters.values()):,} parameters, {self.memory / 2**20:,.0f} MiB, "
            f"{certainty}{self.steps:,} step{'' if self.steps == 1 else 's'} in "
            f"{duration_range(self.seconds, self.low, self.high)} on cpu, {count_threads()}"
        )


def count_threads() -> str:
    """How many CPU threads torch uses, as text."""
    threads = torch.get_num_threads()
    return f"{threads} thread{'' if threads == 1 else 's'}"


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


def duration(seconds: float) -> str:
    """Seconds as text, in minutes from two minutes on."""
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def duration_range(seconds: float, low: float | None, high: float | None) -> str:
    """Seconds and their range as text: `2.1 min (1.9–3.4)`; without the range if it is not known or shows nothing."""
    text = duration(seconds)
    if low is None or high is None:
        return text
    digits, unit = (0, 1) if seconds < 120 else (1, 60)
    bounds = [f"{bound / unit:.{digits}f}" for bound in (low, high)]
    return text if bounds[0] == bounds[1] else f"{text} ({bounds[0]}–{bounds[1]})"


def promise_range(done: float, ahead: float, cpu_share: float) -> tuple[float, float]:
    """The range of a promise: the seconds that have passed, and what is ahead.

    At least its CPU time, if other programs end; at most QUIET_MARGIN more, and BUSY_MARGIN more for the share of the CPU that others take.
    """
    share = min(max(cpu_share, 0.05), 1.0)
    more = QUIET_MARGIN + BUSY_MARGIN * (1 - share)
    return done + ahead * share * (1 - QUIET_MARGIN / 2), done + ahead * (1 + more)


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


class Costs(NamedTuple):
    """Measured costs, averaged over all processes."""

    seconds: float  # of one step
    eval_seconds: float  # of one evaluation
    flops_per_token: float
    tokens: float  # predicted by one step
    memory: float  # bytes at the peak of a step
    activations: float  # bytes of these that a forward pass saves for the backward pass
    parameters: dict[str, int]  # by part
    rehearsal_seconds: float  # what it took to measure them
    cpu_share: float = (
        1.0  # of the time in which the measuring thread had a CPU; less if other programs use it too
    )

    def estimate(self, elapsed: float, steps: int, eval_every: int) -> Estimate:
        """What so many steps cost, after the seconds that have passed already."""
        ahead = self.seconds * steps + self.eval_seconds * -(-steps // eval_every)
        bounds = promise_range(elapsed, ahead, self.cpu_share)
        return Estimate(self.parameters, self.flops_per_token, self.memory, elapsed + ahead, steps, *bounds)


def measure_costs(options: TrainOptions, job: TrainJob) -> Costs:
    """Times a few steps and an evaluation; leaves the random state as it was.

    Costs are the mean over all processes, so that all of them plan the same steps.
    """
    start_time, start_cpu = time.perf_counter(), time.thread_time()
    random_state = torch.get_rng_state()
    rehearsal = Rehearsal(options, job)
    if rehearsal.scale > 1 and job.group.is_main:
        rows = len(rehearsal.batches[0].ids)
        logger.info("measuring the cost of a step on %d of the %d rows of a batch", rehearsal.rows, rows)
    activations = rehearsal.activation_bytes()
    piece = rehearsal.slice(rehearsal.batches[0])
    flops_per_token = flops(lambda: rehearsal.forward(piece).backward()) / max(piece.num_targets, 1)
    seconds = rehearsal.time_step(seconds_per_step, *timing_limits(options))
    eval_seconds = time_evaluation(options, job, rehearsal.model, max_seconds=0.5)
    tokens = options.accumulate * sum(batch.num_targets for batch in rehearsal.batches) / NUM_REHEARSED
    memory = current_memory() + rehearsal.state_bytes() + activations
    torch.set_rng_state(random_state)
    took = time.perf_counter() - start_time
    cpu_share = (time.thread_time() - start_cpu) / max(took, 1e-9)
    means = process.all_mean(job.group, seconds, eval_seconds, flops_per_token, took, cpu_share)
    (tokens,) = process.all_sum(job.group, tokens)
    return Costs(
        seconds=means[0],
        eval_seconds=means[1],
        flops_per_token=means[2],
        tokens=tokens,
        memory=memory,
        activations=activations,
        parameters=parameters(rehearsal.model),
        rehearsal_seconds=means[3],
        cpu_share=means[4],
    )


def time_evaluation(options: TrainOptions, job: TrainJob, model: nn.Module, max_seconds: float) -> float:
    """The seconds of an evaluation, from every n-th of its batches, which take about `max_seconds`."""
    random_state = torch.get_rng_state()
    start_time = time.perf_counter()
    num_batches = sum(1 for _ in job.held_out(options.eval_batches))
    reading_seconds = time.perf_counter() - start_time
    first = list(job.held_out(1))
    if first and (rows := affordable_rows(model, first[0])) < len(first[0].ids):  # one slice takes seconds
        seconds = time_batches(job, model, [first_rows(first[0], rows)])
        torch.set_rng_state(random_state)
        return reading_seconds + seconds * len(first[0].ids) / rows * num_batches
    time_batches(job, model, first)  # the first call may compile kernels and prepare buffers
    one_batch = max(time_batches(job, model, first), 1e-6)
    sample = min(num_batches, max(MIN_TIMED_BATCHES, int(max_seconds / one_batch)))
    interval = -(-num_batches // max(sample, 1))
    batches = list(islice(job.held_out(options.eval_batches), 0, None, max(interval, 1)))
    seconds = time_batches(job, model, batches)
    torch.set_rng_state(random_state)
    return reading_seconds + seconds * num_batches / max(len(batches), 1)


def time_batches(job: TrainJob, model: nn.Module, batches: Iterable[Batch]) -> float:
    """The seconds that the held-out loss of these batches takes."""
    start_time = time.perf_counter()
    total_nll(model, job.objective, batches)
    return time.perf_counter() - start_time


def time_checkpoint(folder: Path, model: nn.Module) -> float:
    """The seconds that a checkpoint takes to write, and to verify before older ones are deleted; 0 if the disk has no room for it.

    The weights stand for the two moments of AdamW too.

    Its folder has the name of an unfinished save, which the next save removes if this process dies here.
    """
    place = folder / f".tmp-0-{uuid4().hex}"
    weights = {name: parameter.detach() for name, parameter in model.named_parameters()}
    moments = {f"{name}:{key}": weights[name] for name in weights for key in ("exp_avg", "exp_avg_sq")}
    start_time = time.perf_counter()
    try:
        path = checkpoint.save(place, 0, {"model": weights, "optim": moments}, {})
        checkpoint.verify(path)
        return time.perf_counter() - start_time
    except NoRoom:
        return 0.0
    finally:
        shutil.rmtree(place, ignore_errors=True)


def timing_limits(options: TrainOptions) -> tuple[float, int]:
    """For how many seconds and steps to rehearse; longer if the steps of the training cannot be timed for a budget in minutes."""
    minutes = options.budget.get("minutes")
    if minutes is None or options.schedule.fixed_steps >= MIN_TIMED_STEPS:
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


def refuse_parameters(config: Config, parameters: int) -> None:
    """Raises if the weights, their gradients and the optimizer do not fit, before the model is built."""
    needed, memory = TRAINING_BYTES * parameters, machine_memory()
    if memory and needed > memory:
        from seqloom.train.limits import memory_error

        raise memory_error(config, parameters, needed, memory)


def refuse_costs(config: Config, options: TrainOptions, costs: Costs) -> None:
    """Raises if a step does not fit the memory, or is longer than the budget in minutes."""
    memory, minutes = machine_memory(), options.budget.get("minutes")
    too_slow = minutes is not None and costs.seconds > max(ACCEPTED_STEP, 60 * minutes)
    if (memory and costs.memory > memory) or too_slow:
        from seqloom.train.limits import step_error

        raise step_error(config, options, costs, memory)
