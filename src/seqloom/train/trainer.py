"""What a training run is described by: the options of the `train` section, the job, and the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch

from seqloom.batches.batch import Batch, Batches
from seqloom.models import Model
from seqloom.nn.layer import Factory
from seqloom.train.budget import Estimate
from seqloom.train.optim import AdamW, Clip, Cosine, GlobalNorm, Schedule
from seqloom.train.process import World


class TrainJob(NamedTuple):
    """The model, its data and the folder of one training run."""

    folder: Path
    model: Model
    objective: Any
    train: Batches
    valid: Batches
    world: World = World()
    seed: int = 0
    lr_factors: Mapping[str, float] = {}  # weight name → factor on the learning rate

    def held_out(self, limit: int) -> Iterator[Batch]:
        """This rank's share of the held-out data, at most `limit` batches."""
        return islice(self.valid.sequential(self.world.rank, self.world.size), limit)


class TrainResult(NamedTuple):
    """What a finished training run reports."""

    step: int
    best: float  # nats per held-out token
    best_step: int
    seconds: float
    tokens: float  # predicted tokens, summed over all ranks
    estimate: Estimate | None
    resumed_from: int | None


class Trainer:
    """The options of the `train` section of a config; its signature is the schema of the section.

    steps: number of optimizer steps, unless one of the three budgets sets it:
    minutes: wall-clock time, converted to steps by timing a few of them before the first;
    tokens: predicted tokens;
    flops: training FLOPs.
    accumulate: batches per step.
    eval_every: steps between evaluations; smaller if a budget allows only a few steps.
    save_every: steps between checkpoints (default: eval_every).
    keep_checkpoints: number of newest checkpoints to keep, in addition to the best one.
    patience: evaluations without improvement before training stops early.
    average_checkpoints: number of newest checkpoints to average into the final weights (0: use the best one).
    log_every: steps between training losses in metrics.jsonl.
    eval_batches: largest number of held-out batches that one evaluation reads.
    """

    def __init__(
        self,
        steps: int = 1000,
        minutes: float | None = None,
        tokens: float | None = None,
        flops: float | None = None,
        optimizer: Factory[torch.optim.Optimizer] = AdamW,
        schedule: Factory[Schedule] = Cosine,
        clip: Factory[Clip] = GlobalNorm,
        accumulate: int = 1,
        eval_every: int = 250,
        save_every: int | None = None,
        keep_checkpoints: int = 2,
        patience: int | None = None,
        average_checkpoints: int = 0,
        precision: Literal["auto", "float32", "bfloat16"] = "auto",
        log_every: int = 10,
        eval_batches: int = 400,
    ):
        counts = {
            "steps": steps,
            "accumulate": accumulate,
            "eval_every": eval_every,
            "save_every": save_every or eval_every,
            "log_every": log_every,
            "eval_batches": eval_batches,
        }
        for name, count in counts.items():
            if count < 1:
                raise ValueError(f"train.{name} must be at least 1, not {count}")
        budgets = {"minutes": minutes, "tokens": tokens, "flops": flops}
        self.budgets = {name: value for name, value in budgets.items() if value is not None}
        if len(self.budgets) > 1 or any(value <= 0 for value in self.budgets.values()):
            listed = ", ".join(f"{name}={value:g}" for name, value in self.budgets.items())
            raise ValueError(f"train: give one budget above 0, not {listed}")
        self.steps = steps
        self.eval_every = eval_every
        self.save_every = save_every or eval_every
        self.log_every = log_every
        self.make_optimizer = optimizer
        self.schedule = schedule()
        self.clip = clip()
        self.accumulate = accumulate
        self.patience = patience
        self.average_checkpoints = average_checkpoints
        self.keep_checkpoints = max(keep_checkpoints, average_checkpoints, 2)
        self.precision = precision
        self.eval_batches = eval_batches

    def use_bf16(self, device: torch.device) -> bool:
        """Whether to compute in bfloat16: if requested, or with `auto` on a GPU that supports it.

        `auto` never selects it on a CPU: one without bfloat16 instructions is 40 times slower.
        """
        if self.precision == "bfloat16":
            return True
        return self.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
