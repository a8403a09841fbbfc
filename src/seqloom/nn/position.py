"""Position schemes, which tell a model without recurrence the order of its tokens. A scheme is one class that changes
one of three things: the input (`embed`), the queries and keys (`rotate`), or the scores (`bias`).

Tables of sines, cosines and angles are cached and grow by doubling; a call reads its rows from them. `RotaryScaling`
changes rotary angles for texts beyond the trained length.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.fused.rotary import RotaryTable, rotary, rotary_table
from seqloom.nn import mask as masks
from seqloom.nn.layer import Factory, require
from seqloom.nn.state import Memo, next_power_of_two

Positions = slice | Tensor
"""The positions of a call's tokens, counted from 0: a slice if all rows agree, else (T,) or (B, T). Either picks rows of a table."""

Layout = Literal["interleaved", "halves"]


def last_position(positions: Positions) -> int:
    """One more than the last position."""
    if isinstance(positions, slice):
        return positions.stop
    return int(positions.max()) + 1 if positions.numel() else 0


def positions_after(
    seen: Tensor | None, mask: Tensor | None, batch: int, length: int, device: torch.device
) -> Tensor:
    """The position of each token after `seen` real ones (B,): (T,) where all rows agree at their real tokens, else (B, T)."""
    level = seen is None or not batch or bool((seen == seen[0]).all())
    if level and (mask is None or masks.right_padded(mask)):
        positions = torch.arange(length, device=device)
        if mask is not None and mask.numel():
            positions = positions.clamp(
                max=masks.lengths(mask).max() - 1
            )  # padding alone never reaches a new position
        return (positions + (0 if seen is None or not batch else seen[0])).clamp(min=0)
    here = torch.ones(batch, length, dtype=torch.bool, device=device) if mask is None else mask
    return (here.cumsum(1) - 1 + (0 if seen is None else seen[:, None])).clamp(min=0)


class Position(nn.Module):
    """No position at all [H1]: sentences of the same words look alike."""

    context: int | None = None
    rotates = False  # whether `rotate` does anything

    def __init__(self, dim: int, heads: int = 1):
        super().__init__()
        self.dim = dim  # the width of what `embed` gives

    def check_head_dim(self, key: int) -> None:
        """Refuses keys of a size that it cannot work with."""

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """x is (B, T, D)."""
        return x

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        """x is (B, T, H, K): queries and keys alike."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Places (T,) and (S,), or with the batch in front → (1 or B, H, T, S)."""
        return None


class NoPosition(Position):
    __doc__ = Position.__doc__


class Sinusoidal(Position):
    """x + p,   p[2k] = sin(t ωₖ), p[2k+1] = cos(t ωₖ),   ωₖ = base^(-2k/d), k from `first`   [H2, H4, D-14]

    In the layout "halves" all sines stand before all cosines.
    """

    def __init__(
        self, dim: int, heads: int = 1, base: float = 10000.0, layout: Layout = "interleaved", first: int = 0
    ):
        super().__init__(dim, heads)
        require(dim % 2 == 0, f"sinusoidal positions need an even size, not {dim}")
        require(base > 0, f"the base of sinusoidal positions must be above 0, not {base}")
        self.base, self.layout, self.first, self.memo = base, layout, first, Memo()

    @property
    def frequency(self) -> Tensor:
        """ωₖ: (D/2,)."""
        return self.base ** (-(torch.arange(0, self.dim, 2, dtype=torch.float64) + 2 * self.first) / self.dim)

    def sinusoids(self, positions: Tensor) -> Tensor:
        angle = positions[..., None] * self.frequency  # (…, T, D/2)
        sine, cosine = angle.sin(), angle.cos()
        return (
            torch.cat([sine, cosine], -1)
            if self.layout == "halves"
            else torch.stack([sine, cosine], -1).flatten(-2)
        )  # (…, T, D)

    def encoding(self, positions: Positions, like: Tensor | None = None) -> Tensor:
        """The vectors of the positions, in the type of `like`: (…, T, D)."""
        like = torch.empty(0) if like is None else like
        length = next_power_of_two(last_position(positions))
        table = self.memo(
            (length, like.dtype, like.device), lambda: self.sinusoids(torch.arange(length)).to(like)
        )
        return table[positions]

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.encoding(positions, x)


class Learned(Position):
    """x + W one-hot(t),   W: d × length   [H3]: it has no vector for a position beyond `length`."""

    def __init__(self, dim: int, heads: int = 1, length: int = 1024):
        super().__init__(dim, heads)
        require(length > 0, f"learned positions need a length of at least 1, not {length}")
        self.table = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.context = length

    def encoding(self, positions: Positions, like: Tensor | None = None) -> Tensor:
        if (longest := last_position(positions)) > self.context:
            raise ValueError(
                f"a sequence of {longest} positions is longer than the {self.context} learned ones: "
                f"shorten it, or train with a larger position.length, or with Sinusoidal, Rotary or ALiBi"
            )
        return (
            self.table[positions]
            if isinstance(positions, slice)
            else nn.functional.embedding(positions, self.table)
        )

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.encoding(positions)


class Concatenated(Position):
    """[x; p]   [H5, D-13]: the code of another scheme beside the features instead of on top of them; the model is `width` wider."""

    def __init__(self, dim: int, heads: int = 1, width: int = 32, encoding: Factory[Position] = Sinusoidal):
        super().__init__(dim + width, heads)
        self.inner = encoding(width, heads)
        require(
            hasattr(self.inner, "encoding"),
            f"{type(self.inner).__name__} has no vector to concatenate: use Sinusoidal or Learned",
        )
        self.context = self.inner.context

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return torch.cat(
            [x, self.inner.encoding(positions, x).expand(*x.shape[:2], -1)], -1
        )  # (B, T, D + width)


class Rotary(Position):
    """q' = R(t) q, k' = R(j) k,   R(t) turns the pair (x[2i], x[2i+1]) by t θᵢ,   θᵢ = base^(-2i/K)   [H7, D-16]

    So q'·k' depends on t - j alone. `theta` gives all pairs one angle; in the layout "halves" the pairs are (x[i], x[i + K/2]).
    `scaling` changes the angles for texts beyond the trained length.
    """

    rotates = True

    def __init__(
        self,
        dim: int,
        heads: int = 1,
        base: float = 10000.0,
        layout: Layout = "interleaved",
        theta: float | None = None,
        scaling: Factory[RotaryScaling] | None = None,
    ):
        super().__init__(dim, heads)
        require(base > 0, f"the base of rotary positions must be above 0, not {base}")
        self.base, self.layout, self.theta, self.memo = base, layout, theta, Memo()
        self.scaling = None if scaling is None else scaling()

    def check_head_dim(self, key: int) -> None:
        require(
            key % 2 == 0,
            f"rotary positions need an even head size, not {key}, since they turn pairs: choose other heads, or another key",
        )

    def angles(self, positions: Tensor, size: int) -> Tensor:
        """t θᵢ: (…, T, K/2)."""
        theta = self.base ** (-torch.arange(0, size, 2, dtype=torch.float64, device=positions.device) / size)
        theta = theta if self.theta is None else torch.full_like(theta, self.theta)
        return positions[..., None] * (theta if self.scaling is None else self.scaling(theta))

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        size, length, halves = (
            x.shape[-1],
            next_power_of_two(last_position(positions)),
            self.layout == "halves",
        )

        def table() -> RotaryTable:
            return rotary_table(self.angles(torch.arange(length, device=x.device), size), x.dtype, halves)

        def rows() -> RotaryTable:
            return tuple(part[positions] for part in self.memo((length, size, x.dtype, x.device), table))

        y = rotary(x, rows)
        if y is not None:
            return y
        angle = self.angles(torch.arange(length, device=x.device)[positions], size).unsqueeze(
            -2
        )  # (T, 1, K/2) or (B, T, 1, K/2)
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1) if halves else (x[..., 0::2], x[..., 1::2])  # each (B, T, H, K/2)
        turned = a * cos - b * sin, a * sin + b * cos
        return torch.cat(turned, -1) if halves else torch.stack(turned, -1).flatten(-2)


class ALiBi(Position):
    """s(t, j) = q·k/√K - c_h |t - j|,   c_h = 2^(-8h/H), h = 1…H   [H6, D-15]. `slope` gives all heads one c."""

    def __init__(self, dim: int, heads: int = 1, slope: float | None = None):
        super().__init__(dim, heads)
        require(slope is None or slope > 0, f"the slope of ALiBi must be above 0, not {slope}")
        self.slopes = slopes(heads) if slope is None else [slope] * heads

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (T, S) or (B, T, S)
        distance = distance.unsqueeze(-3)  # over heads
        bias = (
            torch.tensor(self.slopes, device=distance.device).neg()[:, None, None] * distance
        )  # (H, T, S) or (B, H, T, S)
        return bias if bias.dim() == 4 else bias[None]


def slopes(heads: int) -> list[float]:
    """2^(-8h/H) where H is a power of two; else those of the next lower power, then every second one of the next higher (Press et al.)."""
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return first + [2 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]


class RotaryScaling(nn.Module):
    """Changes the angles of a step: θ (K/2,) → θ' (K/2,)."""

    def forward(self, theta: Tensor) -> Tensor:
        raise NotImplementedError


class LinearScaling(RotaryScaling):
    """θ' = θ / factor: positions are squeezed into the trained length."""

    def __init__(self, factor: float):
        super().__init__()
        require(factor > 0, f"the factor of a stretch must be above 0, not {factor}")
        self.factor = factor

    def forward(self, theta: Tensor) -> Tensor:
        return theta / self.factor


class Llama3Scaling(RotaryScaling):
    """θ' = s θ + (1 - s) θ / factor,   s = (n - low) / (high - low) within 0 … 1,   n = length θ / 2π, the turns within `length` (Llama 3)

    Turns that come round at least `high` times in the trained length stay; those that come round at most `low` times are slowed.
    """

    def __init__(self, factor: float, low: float, high: float, length: int):
        super().__init__()
        require(
            factor > 0 and length > 0,
            f"a stretch needs a factor and a length above 0, not {factor} and {length}",
        )
        require(0 <= low < high, f"a banded stretch needs low below high, not {low} and {high}")
        self.factor, self.low, self.high, self.length = factor, low, high, length

    def forward(self, theta: Tensor) -> Tensor:
        share = ((self.length * theta / (2 * math.pi) - self.low) / (self.high - self.low)).clamp(0, 1)
        return torch.lerp(theta / self.factor, theta, share)
