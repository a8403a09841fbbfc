"""Training steps on a copy of a model, which are timed and leave no trace; of a step that would take long, a slice.

A batch of 32 rows through 12 layers of 768 takes minutes and many gigabytes. A slice of its rows takes seconds, and time and memory grow
with the rows, so what is measured on the slice is scaled.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from seqloom.batches.batch import Batch, first_rows, num_positions

if TYPE_CHECKING:
    from seqloom.train.options import TrainJob, TrainOptions

NUM_REHEARSED = 32  # batches whose tokens are counted
SLICE_FLOPS = 2e11  # of the step that is measured: a few seconds of one core
LONG_STEP = 4.0  # seconds after which a step needs no warm-up


def count_parameters(model: nn.Module) -> int:
    return sum(parameter.numel() for parameter in model.parameters())


def affordable_rows(model: nn.Module, batch: Batch) -> int:
    """How many rows of a batch can be measured in seconds, at least one: a token takes about 6 FLOPs for each parameter."""
    rows = len(batch.ids)
    flops_per_row = 6.0 * count_parameters(model) * num_positions(batch) / max(rows, 1)
    return max(1, min(rows, int(SLICE_FLOPS / max(flops_per_row, 1.0))))


def seconds_per_step(step: Callable[[int], object], min_seconds: float = 2.0, max_steps: int = 20) -> float:
    """The mean time of a step after one warm-up step; `step` takes the number of the step. A long step is timed once, without warm-up."""
    first_time = time.perf_counter()
    step(0)
    first_seconds = time.perf_counter() - first_time
    if first_seconds > max(LONG_STEP, min_seconds):
        return first_seconds
    done = 0
    start_time = time.perf_counter()
    while done < max_steps and (done < 3 or time.perf_counter() - start_time < min_seconds):
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
