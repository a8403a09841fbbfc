"""LoRA: fine-tuning that freezes the matrices and trains a low-rank difference for each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.layer import require


class LoRA(nn.Module):
    """y = W x + b + (α/r) B A x,   A: D → r, B: r → D'   [T17]

    (Hu et al.) W and b are frozen; A and B are trained. B starts at 0, so the outputs are unchanged at first. `weight`
    and `bias` are those of the equivalent linear layer, for parts that compute the product themselves.
    """

    def __init__(self, base: nn.Linear, rank: int, alpha: float):
        super().__init__()
        require(rank > 0, f"rank must be at least 1, not {rank}")
        self.base, self.scale = base, alpha / rank
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
        return torch.addmm(self.base.weight, self.lora_b, self.lora_a, alpha=self.scale)

    @property
    def bias(self) -> Tensor | None:
        return self.base.bias

    def forward(self, x: Tensor) -> Tensor:
        return self.base(x) + F.linear(F.linear(x, self.lora_a), self.lora_b) * self.scale

    @torch.no_grad()
    def merged(self) -> nn.Linear:
        """The equivalent linear layer, with the requires_grad flags that it had before."""
        self.base.weight.copy_(self.weight)
        for parameter, learns in zip(self.base.parameters(), self.trainable, strict=True):
            parameter.requires_grad_(learns)
        return self.base


def add_lora(model: nn.Module, rank: int, alpha: float, names: Sequence[str]) -> list[str]:
    """Puts an adapter around every linear layer whose dotted name one of the patterns fits, such as `stack.blocks.*.attention.qkv_proj`; `*` stands
    for anything. Gives the names. What else learns is not changed: `model.requires_grad_(False)` before leaves the adapters alone."""
    known = [name for name, _, _ in iter_linears(model, nn.Linear)]
    for pattern in names:
        some = ", ".join(known[:6]) + (", …" if len(known) > 6 else "")
        require(
            any(fnmatchcase(name, pattern) for name in known),
            f"no linear layer is called {pattern!r}; there are {some or 'none'}",
        )
    made: dict[int, LoRA] = {}
    for name, parent, base in iter_linears(model, nn.Linear):
        if any(fnmatchcase(name, pattern) for pattern in names):
            if id(base) not in made:
                made[id(base)] = LoRA(base, rank, alpha).train(base.training)
            setattr(parent, name.rpartition(".")[2], made[id(base)])
    return [name for name, _, _ in iter_linears(model, LoRA)]


def merge_lora(model: nn.Module) -> list[str]:
    """Folds every adapter into the layer that it stands around: the same outputs, the names and sizes of before. Gives the names."""
    found, done = list(iter_linears(model, LoRA)), {}
    for name, parent, adapter in found:
        if id(adapter) not in done:
            done[id(adapter)] = adapter.merged()
        setattr(parent, name.rpartition(".")[2], done[id(adapter)])
    return [name for name, _, _ in found]


def iter_linears(model: nn.Module, kind: type[nn.Module]) -> Iterator[tuple[str, nn.Module, nn.Module]]:
    """Dotted name, parent and layer of this kind, at every place; not those inside an adapter."""
    parents = [
        (name, part)
        for name, part in model.named_modules(remove_duplicate=False)
        if not isinstance(part, LoRA)
    ]
    for place, parent in parents:
        for own, part in parent._modules.items():
            if isinstance(part, kind):
                yield f"{place}.{own}".removeprefix("."), parent, part
