"""A case of the five promises: how a part is built in small sizes, what it reads, and its memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from seqloom.nn import Memory, State

SIZE, MEMORY, WORDS, HEADS = 4, 3, 7, 2


@dataclass(frozen=True)
class Case:
    """How the part is built, whether it reads ids or vectors, and whether it reads a memory."""

    name: str
    make: Callable[[], nn.Module]
    ids: bool = False
    memory: bool = False

    def build(self) -> nn.Module:
        """The part with weights large enough for every term to matter."""
        torch.manual_seed(1)
        part = self.make()
        with torch.no_grad():
            for weight in part.parameters():
                weight.copy_(torch.randn(weight.shape) * 0.5)
        return part

    def sequence(self, batch: int, length: int, size: int = SIZE) -> Tensor:
        return torch.randint(WORDS, (batch, length)) if self.ids else torch.randn(batch, length, size)

    def source(self, batch: int, length: int = 3) -> Tensor | None:
        return self.sequence(batch, length, MEMORY) if self.memory else None

    def start(
        self, part: nn.Module, batch: int, source: Tensor | None = None, mask: Tensor | None = None
    ) -> State:
        if self.memory and self.ids:
            return part.start(source, mask)
        return part.start(batch, Memory(source, mask)) if self.memory else part.start(batch)

    def causal(self) -> bool:
        return getattr(self.build(), "causal", True)


def named(make: Callable) -> str:
    if not isinstance(make, partial):
        return make.__name__
    options = ", ".join(f"{key}={shown(value)}" for key, value in make.keywords.items())
    return f"{make.func.__name__}({options})"


def shown(value: object) -> str:
    if isinstance(value, list):
        return " + ".join(shown(one) for one in value)
    return named(value) if callable(value) else str(value)


def layer(make: Callable, memory: bool = False) -> Case:
    return Case(
        named(make) + (" with memory" if memory else ""),
        lambda: make(SIZE, memory=MEMORY) if memory else make(SIZE),
        memory=memory,
    )
