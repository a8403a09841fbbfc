"""Position schemes, which give a model without recurrence the order of its tokens. A scheme is one class that
changes one of three things: the input (`embed`), the queries and keys (`rotate`), or the scores (`bias`).

Tables of sines, cosines and angles are cached and grow by doubling; a call reads its rows from them.
`RotaryScaling` changes rotary angles for texts beyond the trained length.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn

from seqloom.errors import ConfigError
from seqloom.fused.rotary import RotaryTable, rotary, rotary_table
from seqloom.nn.layer import Factory, Memo, next_power_of_two, real_lengths, require, right_padded

Positions = slice | Tensor
"""The positions of a call's tokens, counted from 0: a slice if all rows agree, else (T,) or (B, T). Both
index the rows of a table.
"""

Layout = Literal["interleaved", "halves"]


def last_position(positions: Positions) -> int:
    """One more than the last position."""
    if isinstance(positions, slice):
        return positions.stop
    return int(positions.max()) + 1 if positions.numel() else 0


def positions_after(
    num_seen: Tensor | None, mask: Tensor | None, batch: int, length: int, device: torch.device
) -> Tensor:
    """The position of each token after `num_seen` (B,) real ones: (T,) if all rows agree at their real
    tokens, else (B, T).
    """
    same_start = num_seen is None or not batch or bool((num_seen == num_seen[0]).all())
    if same_start and (mask is None or right_padded(mask)):
        positions = torch.arange(length, device=device)
        if mask is not None and mask.numel():
            # a column of padding in all rows takes no new position
            positions = positions.clamp(max=real_lengths(mask).max() - 1)
        return (positions + (0 if num_seen is None or not batch else num_seen[0])).clamp(min=0)
    real = torch.ones(batch, length, dtype=torch.bool, device=device) if mask is None else mask
    return (real.cumsum(1) - 1 + (0 if num_seen is None else num_seen[:, None])).clamp(min=0)


class Position(nn.Module):
    """No position at all [H1]: two orders of the same words look alike. The base class of all schemes."""

    context: int | None = None
    rotates = False  # whether `rotate` changes its input

    def __init__(self, dim: int, heads: int = 1):
        super().__init__()
        self.dim = dim  # the width of the output of `embed`

    def check_head_dim(self, key_dim: int) -> None:
        """Raises ValueError if heads cannot have keys of this size."""

    def encoding(self, positions: Positions, like: Tensor | None = None) -> Tensor:
        """The vectors of the positions, in the dtype and on the device of `like`: (…, T, D). Only schemes
        that have such vectors override it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no position vectors")

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        """The input of the first layer: (B, T, D) → (B, T, D')."""
        return x

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        """Queries and keys: (B, T, H, K) → (B, T, H, K)."""
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """The bias of the scores from positions (T,) and (S,), or (B, T) and (B, S): (1 or B, H, T, S)."""
        return None


class NoPosition(Position):
    """No position at all [H1]: two orders of the same words look alike."""


class Sinusoidal(Position):
    """x + p,   p[2k] = sin(t ωₖ), p[2k+1] = cos(t ωₖ),   ωₖ = base^(-2k/d), k from `first`   [H2, H4, D-14]

    In the layout "halves" all sines come before all cosines.
    """

    def __init__(
        self, dim: int, heads: int = 1, base: float = 10000.0, layout: Layout = "interleaved", first: int = 0
    ):
        super().__init__(dim, heads)
        require(dim % 2 == 0, f"sinusoidal positions need an even size, not {dim}")
        require(base > 0, f"the base of sinusoidal positions must be above 0, not {base}")
        self.base = base
        self.layout = layout
        self.first = first
        self.memo = Memo()

    @property
    def frequency(self) -> Tensor:
        """ωₖ: (D/2,)."""
        return self.base ** (-(torch.arange(0, self.dim, 2, dtype=torch.float64) + 2 * self.first) / self.dim)

    def sinusoids(self, positions: Tensor) -> Tensor:
        """p in double precision: (…, T) → (…, T, D)."""
        angle = positions[..., None] * self.frequency  # (…, T, D/2)
        waves = [angle.sin(), angle.cos()]
        return torch.cat(waves, -1) if self.layout == "halves" else torch.stack(waves, -1).flatten(-2)

    def encoding(self, positions: Positions, like: Tensor | None = None) -> Tensor:
        target = torch.empty(0) if like is None else like
        length = next_power_of_two(last_position(positions))

        def table() -> Tensor:
            return self.sinusoids(torch.arange(length)).to(target)

        return self.memo((length, target.dtype, target.device), table)[positions]

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.encoding(positions, x)


class Learned(Position):
    """x + W one-hot(t),   W: d × length   [H3]: there is no vector for a position beyond `length`."""

    context: int

    def __init__(self, dim: int, heads: int = 1, length: int = 1024):
        super().__init__(dim, heads)
        require(length > 0, f"learned positions need a length of at least 1, not {length}")
        self.table = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.context = length

    def encoding(self, positions: Positions, like: Tensor | None = None) -> Tensor:
        length = last_position(positions)
        if length > self.context:
            raise ConfigError(
                f"a sequence of {length} positions is longer than the {self.context} learned ones: "
                f"shorten it, or train with a larger position.length, or with Sinusoidal, Rotary or ALiBi"
            )
        if isinstance(positions, slice):
            return self.table[positions]
        return nn.functional.embedding(positions, self.table)

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        return x + self.encoding(positions)


class Concatenated(Position):
    """[x; p]   [H5, D-13]

    Concatenates the vectors of another scheme to the features instead of adding them; the model is `width`
    wider.
    """

    def __init__(self, dim: int, heads: int = 1, width: int = 32, encoding: Factory[Position] = Sinusoidal):
        super().__init__(dim + width, heads)
        self.inner = encoding(width, heads)
        require(
            type(self.inner).encoding is not Position.encoding,
            f"{type(self.inner).__name__} has no vector to concatenate: use Sinusoidal or Learned",
        )
        self.context = self.inner.context

    def embed(self, x: Tensor, positions: Positions) -> Tensor:
        vectors = self.inner.encoding(positions, x).expand(*x.shape[:2], -1)
        return torch.cat([x, vectors], -1)  # (B, T, D + width)


class Rotary(Position):
    """q' = R(t) q, k' = R(j) k,   R(t) rotates the pair (x[2i], x[2i+1]) by t θᵢ,   θᵢ = base^(-2i/K)   [H7,
    D-16]

    So q'·k' depends on t - j alone. `theta` gives all pairs one angle; in the layout "halves" the pairs are
    (x[i], x[i + K/2]). `scaling` changes the angles for texts beyond the trained length.
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
        self.base = base
        self.layout = layout
        self.theta = theta
        self.memo = Memo()
        self.scaling = None if scaling is None else scaling()

    def check_head_dim(self, key_dim: int) -> None:
        require(
            key_dim % 2 == 0,
            f"rotary positions need an even head size, not {key_dim}, since they rotate pairs of features: "
            f"choose other heads or another key_dim",
        )

    def angles(self, positions: Tensor, key_dim: int) -> Tensor:
        """t θᵢ: (…, T, K/2)."""
        theta = self.base ** (
            -torch.arange(0, key_dim, 2, dtype=torch.float64, device=positions.device) / key_dim
        )
        if self.theta is not None:
            theta = torch.full_like(theta, self.theta)
        if self.scaling is not None:
            theta = self.scaling(theta)
        return positions[..., None] * theta

    def rotate(self, x: Tensor, positions: Positions) -> Tensor:
        key_dim = x.shape[-1]
        length = next_power_of_two(last_position(positions))
        halves = self.layout == "halves"

        def table() -> RotaryTable:
            return rotary_table(self.angles(torch.arange(length, device=x.device), key_dim), x.dtype, halves)

        def rows() -> RotaryTable:
            return tuple(part[positions] for part in self.memo((length, key_dim, x.dtype, x.device), table))

        y = rotary(x, rows)
        if y is not None:
            return y
        angle = self.angles(torch.arange(length, device=x.device)[positions], key_dim)
        angle = angle.unsqueeze(-2)  # (T, 1, K/2) or (B, T, 1, K/2)
        cos = angle.cos().to(x.dtype)
        sin = angle.sin().to(x.dtype)
        a, b = x.chunk(2, -1) if halves else (x[..., 0::2], x[..., 1::2])  # each (B, T, H, K/2)
        rotated = (a * cos - b * sin, a * sin + b * cos)
        return torch.cat(rotated, -1) if halves else torch.stack(rotated, -1).flatten(-2)


class ALiBi(Position):
    """s(t, j) = q·k/√K - c_h |t - j|,   c_h = 2^(-8h/H), h = 1…H   [H6, D-15]

    `slope` gives all heads one c.
    """

    def __init__(self, dim: int, heads: int = 1, slope: float | None = None):
        super().__init__(dim, heads)
        require(slope is None or slope > 0, f"the slope of ALiBi must be above 0, not {slope}")
        self.slopes = slopes(heads) if slope is None else [slope] * heads

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (T, S) or (B, T, S)
        distance = distance.unsqueeze(-3)  # broadcast over heads
        negated_slopes = torch.tensor(self.slopes, device=distance.device).neg()
        bias = negated_slopes[:, None, None] * distance  # (H, T, S) or (B, H, T, S)
        return bias if bias.dim() == 4 else bias[None]


def slopes(heads: int) -> list[float]:
    """2^(-8h/H) if H is a power of two; else those of the next lower power, then every second one of the next
    higher (Press et al.).
    """
    power = 2 ** math.floor(math.log2(heads))
    of_lower_power = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return of_lower_power + [2 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]


class RotaryScaling(nn.Module):
    """Changes the rotary angles of one step: θ (K/2,) → θ' (K/2,)."""

    def forward(self, theta: Tensor) -> Tensor:
        raise NotImplementedError


class LinearScaling(RotaryScaling):
    """θ' = θ / factor: interpolates positions into the trained length."""

    def __init__(self, factor: float):
        super().__init__()
        require(factor > 0, f"the factor of a rotary scaling must be above 0, not {factor}")
        self.factor = factor

    def forward(self, theta: Tensor) -> Tensor:
        return theta / self.factor


class Llama3Scaling(RotaryScaling):
    """θ' = s θ + (1 - s) θ / factor,   s = (n - low) / (high - low) within 0 … 1,   n = length θ / 2π

    (Llama 3) n is the number of full turns within the trained `length`. Pairs with at least `high` turns keep
    their angle; those with at most `low` turns are divided by `factor`.
    """

    def __init__(self, factor: float, low: float, high: float, length: int):
        super().__init__()
        require(
            factor > 0 and length > 0,
            f"Llama3Scaling needs a factor and a length above 0, not {factor} and {length}",
        )
        require(0 <= low < high, f"Llama3Scaling needs 0 ≤ low < high, not low={low} and high={high}")
        self.factor = factor
        self.low = low
        self.high = high
        self.length = length

    def forward(self, theta: Tensor) -> Tensor:
        turns = self.length * theta / (2 * math.pi)
        unscaled = ((turns - self.low) / (self.high - self.low)).clamp(0, 1)
        return torch.lerp(theta / self.factor, theta, unscaled)
