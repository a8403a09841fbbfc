"""Picks: how the next token is chosen. A pick is `ids = pick(logits, uniform)`: (B, V) and one number in [0, 1) per row → (B,).

Picks only choose; the loop reads the log-probability of what was chosen. Chance comes in from outside as one number per row and step,
made from the row's own seed by hashing, so a text does not depend on which other prompts shared its batch. That is why
`torch.multinomial`, whose draws depend on the whole batch, is left out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor


class Sampler(Protocol):
    """`few` is how many of the most probable tokens it chooses among, None for all: it is then given no others, in the order of their ids."""

    few: int | None

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Greedy:
    """y_t = argmax_i p_i (J1); the lowest id wins a tie."""

    few = 1

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor:
        return logits.argmax(-1)


@dataclass(frozen=True)
class RandomSampler:
    """y_t ~ p (J6), after temperature, then top-k (J3), then nucleus (J4). None leaves a step out."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise ValueError(
                f"temperature is {self.temperature}: give a finite number above 0, or use Greedy"
            )
        if self.top_k is not None and not (self.top_k >= 1 and self.top_k == int(self.top_k)):
            raise ValueError(f"top_k is {self.top_k}: give a whole number of at least 1, or leave it out")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}: give a number above 0 and at most 1, or leave it out")

    @property
    def few(self) -> int | None:
        return None if self.top_k is None else int(self.top_k)

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """p_i = exp(x_i / τ) / Σ_j exp(x_j / τ);  y = the first i with Σ_{j≤i} p_j > u Σ_j p_j."""
        x = logits.double()
        x = (
            x - x.amax(-1, keepdim=True)
        ) / self.temperature  # the largest first becomes 0, so a tiny τ cannot overflow
        if self.top_k is not None:
            x = top_k_filter(x, int(self.top_k))
        p = x.softmax(-1)
        if self.top_p is not None:
            p = top_p_filter(p, self.top_p)
        total = p.cumsum(-1)  # (B, V)
        return torch.searchsorted(total, uniform.double()[:, None] * total[:, -1:], right=True)[:, 0]


def top_k_filter(x: Tensor, k: int) -> Tensor:
    """x_i = −inf unless i is among the k largest (J3)."""
    edge = x.topk(min(k, x.shape[-1]), -1).values[:, -1:]  # (B, 1)
    return x.masked_fill(~_top_mask(x, edge, torch.full_like(edge, k)), -torch.inf)


def top_p_filter(p: Tensor, mass: float) -> Tensor:
    """p_i = 0 outside the smallest set of most probable tokens with Σ p_i ≥ mass (J4): the token that crosses the threshold stays."""
    falling = p.topk(
        min(512, p.shape[-1]), -1
    ).values  # nearly always enough, and sorting a large vocabulary is slow
    if (falling.sum(-1) < mass).any():
        falling = p.sort(-1, descending=True).values
    count = (falling.cumsum(-1) - falling < mass).sum(
        -1, keepdim=True
    )  # (B, 1), at least 1: nothing stands before the first
    return p.masked_fill(~_top_mask(p, falling.gather(-1, count - 1), count), 0)


def _top_mask(x: Tensor, edge: Tensor, count: Tensor) -> Tensor:
    """Which are the `count` largest, `edge` being the smallest of those; among equals the lower id."""
    kept = x >= edge
    if (kept.sum(-1, keepdim=True) > count).any():
        above = x > edge
        level = kept & ~above
        kept = above | (level & (level.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
    return kept


def apply_repetition_penalty(logits: Tensor, seen: Tensor, penalty: float) -> Tensor:
    """x_i ← x_i / θ where x_i > 0, else θ x_i, for every i in `seen` (B, t): what was said is less likely to be said again (Keskar et al. 2019)."""
    x = logits.gather(1, seen)
    return logits.scatter(1, seen, torch.where(x > 0, x / penalty, x * penalty))


def row_seeds(seed: int, rows: int) -> list[int]:
    """The seed of each row that the one number `seed` stands for; pass a slice of it to generate those rows alone."""
    return [splitmix64(splitmix64(seed) + row) for row in range(rows)]


def uniforms(row_seeds: Iterable[int], step: int) -> list[float]:
    """One number in [0, 1) per row, a pure function of the row's seed and the step: the 53 high bits of a hash."""
    return [(splitmix64(splitmix64(seed) + step) >> 11) * 2.0**-53 for seed in row_seeds]


def splitmix64(number: int) -> int:
    """Steele, Lea and Flood's 64-bit mixing function: neighbours come out unrelated."""
    number = (number + 0x9E3779B97F4A7C15) % 2**64
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    number = (number ^ number >> 27) * 0x94D049BB133111EB % 2**64
    return number ^ number >> 31
