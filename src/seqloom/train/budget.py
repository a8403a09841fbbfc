"""Costs that are counted or measured: parameters, FLOPs, memory and seconds per step on this machine  [N10]."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from seqloom.fused.dispatch import plain
from seqloom.train.flops import flop_counter

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
            f"estimate: {sum(self.parameters.values()):,} parameters ({parts})\n"
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
