"""Optimisers and clipping, under our names and defaults; the arithmetic is torch's."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Parameters = Iterable[nn.Parameter]


def param_groups(parameters: Parameters, weight_decay: float) -> list[dict[str, Any]]:
    """Matrices decay; biases and gains do not."""
    trainable = [p for p in parameters if p.requires_grad]
    groups = [
        {"params": [p for p in trainable if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in trainable if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def set_lr_factors(optimizer: torch.optim.Optimizer, factors: Mapping[nn.Parameter, float]) -> None:
    """Give parameters a factor on the rate of their own: groups fall apart by it."""
    parted = []
    for group in optimizer.param_groups:
        members: dict[float, list[nn.Parameter]] = {}
        for parameter in group["params"]:
            members.setdefault(factors.get(parameter, 1.0), []).append(parameter)
        parted += [{**group, "params": own, "factor": factor} for factor, own in members.items()]
    optimizer.param_groups[:] = parted


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
        super().__init__(
            param_groups(parameters, weight_decay), lr=lr, betas=(beta1, beta2), eps=epsilon, fused=True
        )


class SGD(torch.optim.SGD):
    """w ← w - lr · (momentum-averaged gradient)"""

    def __init__(
        self, parameters: Parameters, lr: float = 1.0, momentum: float = 0.0, weight_decay: float = 0.0
    ):
        super().__init__(param_groups(parameters, weight_decay), lr=lr, momentum=momentum)


class Clip:
    """Changes the gradients in place and gives the global norm they had, which is not finite when any of them is not."""

    def __init__(self, limit: float = 1.0):
        if not limit > 0:
            raise ValueError(f"train.clip.limit must be above 0, not {limit}")
        self.limit = limit

    def __call__(self, gradients: list[Tensor]) -> float:
        norm = global_norm(gradients)
        if torch.isfinite(norm):
            self.change(gradients, norm)
        return float(norm)

    def change(self, gradients: list[Tensor], norm: Tensor) -> None:
        raise NotImplementedError


def global_norm(gradients: list[Tensor]) -> Tensor:
    """√Σ g² over every gradient."""
    return torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients)))


class NoClip(Clip):
    """The gradients as they are."""

    def __init__(self) -> None:
        super().__init__()

    def change(self, gradients: list[Tensor], norm: Tensor) -> None:
        pass


class GlobalNorm(Clip):
    """g ← g · min(1, limit / ‖all g‖)   [D16, D-23, X18]: the direction of the whole step stays."""

    def change(self, gradients: list[Tensor], norm: Tensor) -> None:
        if norm > self.limit:
            torch._foreach_mul_(gradients, self.limit / norm)


class PerTensor(Clip):
    """g ← g · min(1, limit / ‖g‖) for each tensor alone   [D16, D-23]"""

    def change(self, gradients: list[Tensor], norm: Tensor) -> None:
        for gradient in gradients:
            own = torch.linalg.vector_norm(gradient)
            if own > self.limit:
                gradient.mul_(self.limit / own)


class ByValue(Clip):
    """g ← max(-limit, min(limit, g)) for each number alone   [D16]"""

    def change(self, gradients: list[Tensor], norm: Tensor) -> None:
        torch._foreach_clamp_min_(gradients, -self.limit)
        torch._foreach_clamp_max_(gradients, self.limit)
