"""Samplers choose the next token: `ids = sampler(logits, uniform)`, from (B, V) and one number in [0, 1) per row to (B,).

The loop reads the log-probability of the chosen token; a sampler only chooses. Randomness comes from outside, as one
number per row and step that is hashed from the row's seed, so a text does not depend on the other prompts in its
batch. `torch.multinomial` is not used because its draws depend on the entire batch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from seqloom.errors import UserError


class Sampler(Protocol):
    """`num_candidates` is how many of the most probable tokens it chooses from, None for all. With a number it receives
    the logits of those tokens only, in the order of their ids."""

    @property
    def num_candidates(self) -> int | None: ...

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor: ...


@dataclass(frozen=True)
class Greedy:
    """y_t = argmax_i p_i (J1); the lowest id wins a tie."""

    @property
    def num_candidates(self) -> int | None:
        return 1

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor:
        return logits.argmax(-1)


@dataclass(frozen=True)
class RandomSampler:
    """y_t ~ p (J6), after temperature, then top-k (J3), then nucleus (J4), then min-p (Nguyen et al. 2024). None skips a step."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None

    def __post_init__(self) -> None:
        if not (self.temperature > 0 and math.isfinite(self.temperature)):
            raise UserError(
                f"temperature is {self.temperature}: give a finite number above 0, or 0 for greedy"
            )
        if self.top_k is not None and not (self.top_k >= 1 and self.top_k == int(self.top_k)):
            raise UserError(f"top_k is {self.top_k}: give a whole number of at least 1, or leave it out")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise UserError(f"top_p is {self.top_p}: give a number above 0 and at most 1, or leave it out")
        if self.min_p is not None and not 0 <= self.min_p <= 1:
            raise UserError(f"min_p is {self.min_p}: give a number from 0 to 1, or leave it out")

    @property
    def num_candidates(self) -> int | None:
        return None if self.top_k is None else int(self.top_k)

    def __call__(self, logits: Tensor, uniform: Tensor) -> Tensor:
        """p_i = exp(x_i / τ) / Σ_j exp(x_j / τ);  y = the first i with Σ_{j≤i} p_j > u Σ_j p_j."""
        x = logits.double()
        x = x - x.amax(-1, keepdim=True)  # the largest becomes 0, so a tiny τ cannot overflow
        x = x / self.temperature
        if self.top_k is not None:
            x = top_k_filter(x, int(self.top_k))
        p = x.softmax(-1)
        if self.top_p is not None:
            p = top_p_filter(p, self.top_p)
        if self.min_p is not None:
            p = min_p_filter(p, self.min_p)
        cumulative = p.cumsum(-1)  # (B, V)
        threshold = uniform.double()[:, None] * cumulative[:, -1:]
        return torch.searchsorted(cumulative, threshold, right=True)[:, 0]


def top_k_filter(x: Tensor, k: int) -> Tensor:
    """x_i = −inf unless i is among the k largest (J3)."""
    threshold = x.topk(min(k, x.shape[-1]), -1).values[:, -1:]  # (B, 1)
    return x.masked_fill(~_top_mask(x, threshold, torch.full_like(threshold, k)), -torch.inf)


def top_p_filter(p: Tensor, mass: float) -> Tensor:
    """p_i = 0 outside the smallest set of most probable tokens with Σ p_i ≥ mass (J4): the token that crosses the
    threshold stays."""
    # 512 are nearly always enough, and sorting a large vocabulary is slow.
    descending = p.topk(min(512, p.shape[-1]), -1).values
    if (descending.sum(-1) < mass).any():
        descending = p.sort(-1, descending=True).values
    before = descending.cumsum(-1) - descending
    count = (before < mass).sum(-1, keepdim=True)  # (B, 1), at least 1
    return p.masked_fill(~_top_mask(p, descending.gather(-1, count - 1), count), 0)


def min_p_filter(p: Tensor, share: float) -> Tensor:
    """p_i = 0 where p_i < share · max_j p_j."""
    return p.masked_fill(p < share * p.amax(-1, keepdim=True), 0)


def _top_mask(x: Tensor, threshold: Tensor, count: Tensor) -> Tensor:
    """The mask of the `count` largest, of which `threshold` is the smallest; of equal values the lower ids."""
    mask = x >= threshold
    if (mask.sum(-1, keepdim=True) > count).any():
        above = x > threshold
        equal = mask & ~above
        mask = above | (equal & (equal.cumsum(-1) <= count - above.sum(-1, keepdim=True)))
    return mask


def apply_repetition_penalty(logits: Tensor, penalized_ids: Tensor, penalty: float) -> Tensor:
    """x_i ← x_i / θ if x_i > 0, else θ x_i, for every i in `penalized_ids` (B, t), which makes them less probable
    (Keskar et al. 2019)."""
    x = logits.gather(1, penalized_ids)
    return logits.scatter(1, penalized_ids, torch.where(x > 0, x / penalty, x * penalty))


def row_seeds(seed: int, rows: int) -> list[int]:
    """One seed per row, derived from `seed`; pass a slice of the list to generate those rows alone."""
    return [splitmix64(splitmix64(seed) + row) for row in range(rows)]


def uniforms(row_seeds: Iterable[int], step: int) -> list[float]:
    """One number in [0, 1) per row, a pure function of the row's seed and the step: the 53 high bits of a hash."""
    return [(splitmix64(splitmix64(seed) + step) >> 11) * 2.0**-53 for seed in row_seeds]


def splitmix64(value: int) -> int:
    """The 64-bit mixing function of Steele, Lea and Flood: consecutive values give unrelated results."""
    value = (value + 0x9E3779B97F4A7C15) % 2**64
    value = (value ^ value >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31
