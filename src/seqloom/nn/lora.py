"""LoRA: fine-tuning that freezes the matrices and trains a low-rank difference for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from fnmatch import fnmatchcase
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.layer import require

Module = TypeVar("Module", bound=nn.Module)


class LoRA(nn.Module):
    """y = W x + b + (α/r) B A x,   A: D → r, B: r → D'   [T17]

    (Hu et al.) W and b are frozen; A and B are trained. B starts at 0, so the outputs are unchanged at first.
    `weight` and `bias` are those of the equivalent linear layer, for parts that compute the product
    themselves.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        require(rank > 0, f"rank must be at least 1, not {rank}")
        self.base = base
        self.scale = alpha / rank
        self.enabled = True  # see `without_adapters`
        self.trainable = [parameter.requires_grad for parameter in base.parameters()]
        base.requires_grad_(False)
        self.lora_a = nn.Parameter(
            torch.randn(rank, base.in_features).to(base.weight) / base.in_features**0.5
        )
        self.lora_b = nn.Parameter(base.weight.new_zeros(base.out_features, rank))

    @property
    def in_features(self) -> int:
        return self.base.in_features

    @property
    def out_features(self) -> int:
        return self.base.out_features

    @property
    def weight(self) -> Tensor:
        if not self.enabled:
            return self.base.weight
        return torch.addmm(self.base.weight, self.lora_b, self.lora_a, alpha=self.scale)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        if not self.enabled:
            return self.base(x)
        return self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The equivalent linear layer, with the requires_grad flags that it had before."""
        self.base.weight.copy_(self.weight)
        for parameter, trainable in zip(self.base.parameters(), self.trainable, strict=True):
            parameter.requires_grad_(trainable)
        return self.base


def add_lora(model: nn.Module, rank: int, alpha: float, names: Sequence[str]) -> list[str]:
    """Wraps every linear layer whose dotted name matches one of the patterns in an adapter; returns the
    names.

    A pattern is a name such as `stack.blocks.*.attention.qkv_proj`, in which `*` matches anything. Other
    parameters stay as they are: call `model.requires_grad_(False)` first to train the adapters alone.
    """
    linear_names = [name for name, _, _ in iter_linears(model, nn.Linear)]
    for pattern in names:
        examples = ", ".join(linear_names[:6]) + (", …" if len(linear_names) > 6 else "")
        require(
            any(fnmatchcase(name, pattern) for name in linear_names),
            f"no linear layer is called {pattern!r}; the model has {examples or 'none'}",
        )
    adapters: dict[int, LoRA] = {}
    for name, parent, base in iter_linears(model, nn.Linear):
        if any(fnmatchcase(name, pattern) for pattern in names):
            if id(base) not in adapters:
                adapters[id(base)] = LoRA(base, rank, alpha).train(base.training)
            setattr(parent, name.rpartition(".")[2], adapters[id(base)])
    return [name for name, _, _ in iter_linears(model, LoRA)]


@contextmanager
def without_adapters(model: nn.Module | None) -> Iterator[None]:
    """The model as it was before its adapters were trained; None changes nothing."""
    adapters = [] if model is None else [part for part in model.modules() if isinstance(part, LoRA)]
    for adapter in adapters:
        adapter.enabled = False
    try:
        yield
    finally:
        for adapter in adapters:
            adapter.enabled = True


def merge_lora(model: nn.Module) -> list[str]:
    """Replaces every adapter by its merged linear layer and returns the names: same outputs, original weight
    names.
    """
    adapters = list(iter_linears(model, LoRA))
    merged: dict[int, nn.Linear] = {}
    for name, parent, adapter in adapters:
        if id(adapter) not in merged:
            merged[id(adapter)] = adapter.merged()
        setattr(parent, name.rpartition(".")[2], merged[id(adapter)])
    return [name for name, _, _ in adapters]


def iter_linears(model: nn.Module, cls: type[Module]) -> Iterator[tuple[str, nn.Module, Module]]:
    """Dotted name, parent and layer for each layer of this class; a shared layer once for each of its names.
    Layers inside an adapter are left out.
    """
    parents = [
        (name, part)
        for name, part in model.named_modules(remove_duplicate=False)
        if not isinstance(part, LoRA)
    ]
    for parent_name, parent in parents:
        for name, part in parent._modules.items():
            if isinstance(part, cls):
                yield f"{parent_name}.{name}".removeprefix("."), parent, part
