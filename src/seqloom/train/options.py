"""The options of a training, as the `train` section of a config gives them: optimizer, clipping, schedule, budget and intervals.

torch does the arithmetic of the optimizers.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from seqloom.batches.batch import Batch, Batches
from seqloom.errors import ConfigError
from seqloom.models import Model
from seqloom.nn.layer import Factory
from seqloom.train.budget import Costs, Estimate
from seqloom.train.checkpoint import Checkpoint
from seqloom.train.process import ProcessGroup

Parameters = Iterable[nn.Parameter]


def param_groups(parameters: Parameters, weight_decay: float) -> list[dict[str, Any]]:
    """The trainable parameters in two groups: matrices have weight decay, biases and gains have none."""
    trainable = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_lr_factors(optimizer: torch.optim.Optimizer, factors: Mapping[nn.Parameter, float]) -> None:
    """Splits the groups so that all parameters of a group have the same factor on the learning rate (default 1)."""
    split = []
    for group in optimizer.param_groups:
        by_factor: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            by_factor.setdefault(factors.get(parameter, 1.0), []).append(parameter)
        split += [{**group, "params": members, "factor": factor} for factor, members in by_factor.items()]
    optimizer.param_groups[:] = split


class AdamW(torch.optim.AdamW):
    """Adam with decoupled weight decay; `weight_decay: 0` is Adam."""

    def __init__(
        self,
        parameters: Parameters,
        lr: float = 1e-3,
        beta1: float = 0.9,
        beta2: float = 0.99,
        epsilon: float = 1e-8,
        weight_decay: float = 0.1,
    ):
        groups = param_groups(parameters, weight_decay)
        super().__init__(groups, lr=lr, betas=(beta1, beta2), eps=epsilon, fused=True)


class SGD(torch.optim.SGD):
    """w ← w - lr · (momentum-averaged gradient)"""

    def __init__(
        self, parameters: Parameters, lr: float = 1.0, momentum: float = 0.0, weight_decay: float = 0.0
    ):
        super().__init__(param_groups(parameters, weight_decay), lr=lr, momentum=momentum)


class Clip:
    """Clips gradients in place. A call returns their global norm before clipping; if it is not finite, nothing is clipped."""

    def __init__(self, limit: float = 1.0):
        if not limit > 0:
            raise ConfigError(f"train.clip.limit must be above 0, not {limit}")
        self.limit = limit

    def __call__(self, gradients: list[Tensor]) -> float:
        norm = global_norm(gradients)
        if torch.isfinite(norm):
            self.clip_(gradients, norm)
        return float(norm)

    def clip_(self, gradients: list[Tensor], norm: Tensor) -> None:
        raise NotImplementedError


def global_norm(gradients: list[Tensor]) -> Tensor:
    """√Σ g² over every gradient."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


class NoClip(Clip):
    """Leaves the gradients as they are."""

    def __init__(self) -> None:
        super().__init__()

    def clip_(self, gradients: list[Tensor], norm: Tensor) -> None:
        pass


class GlobalNorm(Clip):
    """g ← g · min(1, limit / ‖all g‖)   [D16, D-23, X18]: the direction of the step stays the same."""

    def clip_(self, gradients: list[Tensor], norm: Tensor) -> None:
        if norm > self.limit:
            torch._foreach_mul_(gradients, self.limit / norm)


class PerTensor(Clip):
    """g ← g · min(1, limit / ‖g‖) for each tensor by itself   [D16, D-23]"""

    def clip_(self, gradients: list[Tensor], norm: Tensor) -> None:
        for gradient in gradients:
            tensor_norm = torch.linalg.vector_norm(gradient)
            if tensor_norm > self.limit:
                gradient.mul_(self.limit / tensor_norm)


class ByValue(Clip):
    """g ← max(-limit, min(limit, g)) for each element   [D16]"""

    def clip_(self, gradients: list[Tensor], norm: Tensor) -> None:
        torch._foreach_clamp_min_(gradients, -self.limit)
        torch._foreach_clamp_max_(gradients, self.limit)


class Schedule:
    """factor = min(1, (step + 1) / (warmup + 1)) · decay(progress after the warm-up), step from 0."""

    def __init__(self, warmup: int = 100):
        if warmup < 0:
            raise ConfigError(f"train.schedule.warmup must be at least 0, not {warmup}")
        self.warmup = warmup

    @property
    def fixed_steps(self) -> int:
        """The number of steps at the beginning whose factor does not depend on the number of steps of the run."""
        return self.warmup

    def __call__(self, step: int, steps: int) -> float:
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        progress = (step - self.warmup) / max(1, steps - self.warmup)
        return self.decay(step, min(1.0, progress))

    def decay(self, step: int, progress: float) -> float:
        """The factor after the warm-up; `progress` goes from 0 to 1."""
        return 1.0


class Constant(Schedule):
    """1 after the warm-up."""

    @property
    def fixed_steps(self) -> int:
        return sys.maxsize


class LinearDecay(Schedule):
    """1 - progress (1 - floor)"""

    def __init__(self, warmup: int = 100, floor: float = 0.0):
        super().__init__(warmup)
        self.floor = floor

    def decay(self, step: int, progress: float) -> float:
        return 1 - progress * (1 - self.floor)


class Cosine(LinearDecay):
    """floor + (1 - floor) (1 + cos π progress) / 2"""

    def decay(self, step: int, progress: float) -> float:
        return self.floor + (1 - self.floor) * (1 + math.cos(math.pi * progress)) / 2


class InverseSquareRoot(Schedule):
    """√(warmup / step): the schedule of the Transformer paper; the full learning rate is reached at the end of the warm-up."""

    @property
    def fixed_steps(self) -> int:
        return sys.maxsize

    def decay(self, step: int, progress: float) -> float:
        return math.sqrt(max(self.warmup, 1) / max(step, 1))


class TrainJob(NamedTuple):
    """The model, its data and the folder of one training run."""

    folder: Path
    model: Model
    objective: Any
    train: Batches
    valid: Batches
    group: ProcessGroup = ProcessGroup()
    seed: int = 0
    lr_factors: Mapping[str, float] = {}  # weight name → factor on the learning rate
    # the UTF-8 bytes of the held-out text if it is all of the given number of tokens, else 0
    valid_bytes: Callable[[int], int] = lambda count: 0
    check_costs: Callable[[Costs], None] = lambda costs: None  # raises if this machine cannot bear them
    saved: Checkpoint | None = None  # the checkpoint to go on from
    identity: str | None = None  # of the run's manifest, which checkpoints carry

    def held_out(self, limit: int) -> Iterator[Batch]:
        """This rank's share of the held-out data, at most `limit` batches."""
        return islice(self.valid.sequential(self.group.rank, self.group.size), limit)


class TrainResult(NamedTuple):
    """What a finished training run reports."""

    step: int
    best: float  # nats per held-out token
    best_step: int
    seconds: float
    tokens: float  # predicted tokens, summed over all ranks
    estimate: Estimate | None
    resumed_from: int | None


class TrainOptions:
    """The options of the `train` section of a config; its signature is the schema of the section.

    steps: number of optimizer steps, unless one of the other budgets sets it:
    minutes: wall-clock time from the moment the data is ready, converted to steps by timing the first of them;
    epochs: passes over the training data;
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
    tensorboard: whether to write TensorBoard files too.
    watch: what to measure besides the loss at each evaluation: the gradients of the model's values (gradients.jsonl).
    """

    def __init__(
        self,
        steps: int = 1000,
        minutes: float | None = None,
        epochs: float | None = None,
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
        tensorboard: bool = False,
        watch: Literal["gradients"] | None = None,
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
                raise ConfigError(f"train.{name} must be at least 1, not {count}")
        budgets = {"minutes": minutes, "epochs": epochs, "tokens": tokens, "flops": flops}
        given = {name: float(value) for name, value in budgets.items() if value is not None}
        for name, value in given.items():
            if not value > 0:
                raise ConfigError(f"train.{name} must be above 0, not {value:g}")
        if len(given) > 1:
            listed = " and ".join(f"train.{name}" for name in given)
            raise ConfigError(f"{listed}: give one budget")
        self.budget: dict[str, float] = given or {"steps": steps}
        self.eval_every = eval_every
        self.save_every = save_every or eval_every
        self.log_every = log_every
        optimizer([nn.Parameter(torch.zeros(1, 1))])  # raises if it refuses its options
        self.make_optimizer = optimizer
        self.schedule = schedule()
        self.clip = clip()
        self.accumulate = accumulate
        self.patience = patience
        self.average_checkpoints = average_checkpoints
        self.keep_checkpoints = max(keep_checkpoints, average_checkpoints, 2)
        self.precision = precision
        self.eval_batches = eval_batches
        self.tensorboard = tensorboard
        self.watch = watch

    def use_bf16(self, device: torch.device) -> bool:
        """Whether to compute in bfloat16: if requested, or with `auto` on a GPU that supports it.

        `auto` never selects it on a CPU: one without bfloat16 instructions is 40 times slower.
        """
        if self.precision == "bfloat16":
            return True
        return self.precision == "auto" and device.type == "cuda" and torch.cuda.is_bf16_supported()
