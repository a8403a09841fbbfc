"""Positions in two dimensions: where in a picture a region is."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.nn.layer import require


class GridPosition(nn.Module):
    """y = position(x)     (B, h, w, D) → (B, h, w, dim)"""

    dim: int

    def __init__(self, size: int, grid: tuple[int, int]):
        super().__init__()
        self.dim = size
        self.grid = grid

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError


class NoGrid(GridPosition):
    """y = x: regions without places."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class LearnedGrid(GridPosition):
    """yᵢⱼ = xᵢⱼ + Rᵢ + Cⱼ,   a vector for each row and one for each column"""

    def __init__(self, size: int, grid: tuple[int, int]):
        super().__init__(size, grid)
        self.rows = nn.Parameter(torch.randn(grid[0], size) * 0.02)
        self.columns = nn.Parameter(torch.randn(grid[1], size) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.rows[:, None] + self.columns


class TableGrid(GridPosition):
    """yᵢⱼ = xᵢⱼ + Pᵢⱼ,   a vector for each region"""

    def __init__(self, size: int, grid: tuple[int, int]):
        super().__init__(size, grid)
        self.table = nn.Parameter(torch.randn(*grid, size) * 0.02)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.table


class SinusoidalGrid(GridPosition):
    """yᵢⱼ = xᵢⱼ + s [p(i); p(j)],   p(t)₂ₖ = sin(t / b^(4k/D)),  p(t)₂ₖ₊₁ = cos(t / b^(4k/D))

    One half of the numbers is of the row i, the other of the column j. `base` b is small because a grid is; the scale s is
    learnt and begins as `scale`.
    """

    def __init__(self, size: int, grid: tuple[int, int], base: float = 100.0, scale: float = 1.0):
        super().__init__(size, grid)
        require(
            size % 4 == 0,
            f"size {size} cannot be divided into sines and cosines of rows and columns: use a multiple of 4",
        )
        self.scale = nn.Parameter(torch.tensor(float(scale)))
        self.base = base

    def forward(self, x: Tensor) -> Tensor:
        height, width = self.grid
        rows = self.waves(torch.arange(height, device=x.device))[:, None].expand(-1, width, -1)
        columns = self.waves(torch.arange(width, device=x.device)).expand(height, -1, -1)
        return x + self.scale * torch.cat([rows, columns], -1).to(x.dtype)

    def waves(self, places: Tensor) -> Tensor:
        """(n,) → (n, D / 2)"""
        quarter = self.dim // 4
        rates = self.base ** (-torch.arange(quarter, device=places.device) / quarter)
        angles = places[:, None] * rates
        return torch.stack([angles.sin(), angles.cos()], -1).flatten(1)
