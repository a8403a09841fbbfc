"""The promise before training: parameters, FLOPs, memory and minutes on this machine  [N10]. Counted and measured, not guessed."""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn

from seqloom.fused.dispatch import plain
from seqloom.train.flops import flop_counter

POINTS = 10  # of a curve


class Estimate(NamedTuple):
    parameters: dict[str, int]  # for each part
    flops_per_token: float  # forward and backward, products of the plain form
    memory: float  # bytes at the peak of a step
    seconds: float
    steps: int

    def text(self) -> str:
        """The promise in a few lines."""
        parts = ", ".join(f"{name} {count:,}" for name, count in self.parameters.items())
        return (
            f"promise: {sum(self.parameters.values()):,} parameters ({parts})\n"
            f"         {self.flops_per_token / 1e6:,.2f} MFLOP a token, {self.memory / 2**20:,.0f} MiB, "
            f"{self.steps:,} steps in {duration(self.seconds)} on this machine"
        )


def num_evaluations(training: float, look: float) -> int:
    """How often to look at the held-out text: often enough for a curve, but for at most a tenth of the seconds of training."""
    return max(1, min(POINTS, int(training / 10 / max(look, 1e-9))))


def parameters(model: nn.Module) -> dict[str, int]:
    """The number of parameters of each part; one that two parts share counts once, where it first stands."""
    counted: set[int] = set()
    result = {}
    for name, part in model.named_children():
        own = [p for p in part.parameters() if id(p) not in counted]
        counted.update(map(id, own))
        if own:
            result[name] = sum(p.numel() for p in own)
    return result


def flops(run_step: Callable[[], object]) -> float:
    """The FLOPs of one call, from the products it really makes in plain form."""
    with plain(), flop_counter() as counted:
        run_step()
    return float(counted.get_total_flops())


def activation_bytes(run_forward: Callable[[], object]) -> int:
    """The bytes that a forward pass keeps for the backward pass."""
    kept: dict[int, int] = {}

    def note(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        held = run_forward()
        del held
    return sum(kept.values())


def duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.1f} min"


def peak_memory(now: bool = False) -> int:
    """The most bytes this process has had resident, or those it has now."""
    if now:
        try:
            with open("/proc/self/statm") as file:
                return int(file.read().split()[1]) * resource.getpagesize()
        except OSError:
            pass
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def seconds_per_step(step: Callable[[int], object], at_least: float = 2.0, most: int = 20) -> float:
    """The time of a step: the mean of some after one that warms up, on copies that leave nothing behind."""
    step(0)
    count, begin = 0, time.perf_counter()
    while count < most and (count < 3 or time.perf_counter() - begin < at_least):
        count += 1
        step(count)
    return (time.perf_counter() - begin) / count
