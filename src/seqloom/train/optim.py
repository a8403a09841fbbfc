"""Optimizers, gradient clipping and learning-rate schedules, with our defaults; torch does the arithmetic."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

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
            raise ValueError(f"train.clip.limit must be above 0, not {limit}")
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
            raise ValueError(f"train.schedule.warmup must be at least 0, not {warmup}")
        self.warmup = warmup

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

    def decay(self, step: int, progress: float) -> float:
        return math.sqrt(max(self.warmup, 1) / max(step, 1))
