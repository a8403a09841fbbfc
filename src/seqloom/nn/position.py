"""Positions: how a model without recurrence knows the order. A scheme is one class that changes one of three things:
the input (`embed`), the queries and keys (`rotate`), or the scores (`bias`)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from seqloom.nn.layer import Make, need


class Position(nn.Module):
    """No position at all [H1]: sentences of the same words look alike. `places` is (T,) or (B, T), counted from 0."""

    context: int | None = None

    def __init__(self, dim: int, heads: int = 1):
        super().__init__()
        self.dim = dim  # the width of what `embed` gives

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        return x

    def rotate(self, x: Tensor, places: Tensor) -> Tensor:
        return x

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        return None


class NoPosition(Position):
    __doc__ = Position.__doc__


class Sinusoidal(Position):
    """x + p,   p[2k] = sin(t ωₖ), p[2k+1] = cos(t ωₖ),   ωₖ = base^(-2k/d), k from 0   [H2, H4, D-14]"""

    def __init__(self, dim: int, heads: int = 1, base: float = 10000.0):
        super().__init__(dim, heads)
        need(dim % 2 == 0, f"sinusoidal positions need an even size, not {dim}")
        self.register_buffer("frequency", base ** (-torch.arange(0, dim, 2) / dim), persistent=False)

    def code(self, places: Tensor) -> Tensor:
        angle = places[..., None] * self.frequency  # (…, T, D/2)
        return torch.stack([angle.sin(), angle.cos()], -1).flatten(-2)  # (…, T, D)

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        return x + self.code(places).to(x.dtype)


class Learned(Position):
    """x + W one-hot(t),   W: d × length   [H3]: it has no vector for a position beyond `length`."""

    def __init__(self, dim: int, heads: int = 1, length: int = 1024):
        super().__init__(dim, heads)
        need(length > 0, f"learned positions need a length of at least 1, not {length}")
        self.table = nn.Parameter(torch.randn(length, dim) * 0.02)
        self.context = length

    def code(self, places: Tensor) -> Tensor:
        if places.numel() and (longest := int(places.max()) + 1) > self.context:
            raise ValueError(
                f"a sequence of {longest} positions is longer than the {self.context} learned ones: "
                f"shorten it, or train with a larger position.length, or with Sinusoidal, Rotary or ALiBi"
            )
        return nn.functional.embedding(places, self.table)

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        return x + self.code(places)


class Concatenated(Position):
    """[x; p]   [H5, D-13]: the code of another scheme beside the features instead of on top of them; the model is `width` wider."""

    def __init__(self, dim: int, heads: int = 1, width: int = 32, code: Make[Position] = Sinusoidal):
        super().__init__(dim + width, heads)
        self.inner = code(width, heads)
        need(hasattr(self.inner, "code"), f"{type(self.inner).__name__} has no vector to concatenate: use Sinusoidal or Learned")
        self.context = self.inner.context

    def embed(self, x: Tensor, places: Tensor) -> Tensor:
        code = self.inner.code(places).to(x.dtype)
        return torch.cat([x, code.expand(*x.shape[:2], -1)], -1)  # (B, T, D + width)


class Rotary(Position):
    """q' = R(t) q, k' = R(j) k,   R(t) turns the pair (x[2i], x[2i+1]) by t θᵢ,   θᵢ = base^(-2i/K)   [H7, D-16]

    So q'·k' depends on t - j alone.
    """

    def __init__(self, dim: int, heads: int = 1, base: float = 10000.0):
        super().__init__(dim, heads)
        size = dim // heads
        need(size % 2 == 0, f"rotary positions need an even head size, not {size} ({dim} / {heads} heads)")
        self.register_buffer("theta", base ** (-torch.arange(0, size, 2) / size), persistent=False)

    def rotate(self, x: Tensor, places: Tensor) -> Tensor:
        angle = places[..., None] * self.theta  # (T, K/2) or (B, T, K/2)
        if angle.dim() == 3:
            angle = angle[:, None]  # over heads
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        even, odd = x[..., 0::2], x[..., 1::2]  # (B, H, T, K/2)
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2)


class ALiBi(Position):
    """s(t, j) = q·k/√K - c_h |t - j|,   c_h = 2^(-8h/H), h = 1…H   [H6, D-15]"""

    def __init__(self, dim: int, heads: int = 1):
        super().__init__(dim, heads)
        self.register_buffer("slope", torch.tensor(slopes(heads)), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        distance = (queries[..., :, None] - keys[..., None, :]).abs()  # (T, S) or (B, T, S)
        if distance.dim() == 3:
            distance = distance[:, None]
        return -self.slope[:, None, None] * distance  # (H, T, S) or (B, H, T, S)


def slopes(heads: int) -> list[float]:
    """2^(-8h/H) where H is a power of two; else those of the next lower power, then every second one of the next higher (Press et al.)."""
    power = 2 ** math.floor(math.log2(heads))
    first = [2 ** (-8 * h / power) for h in range(1, power + 1)]
    return first + [2 ** (-4 * h / power) for h in range(1, 2 * (heads - power), 2)]
