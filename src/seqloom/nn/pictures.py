"""Pictures as sequences of regions: convolutions, a small residual network, patches; and the encoder around them.

A stem maps pixels (B, H, W, 3) to a grid of regions (B, h, w, D); regions are read row by row. Tensors keep their channels
last in memory, which convolutions on a CPU prefer.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from seqloom.nn.grid_position import GridPosition, SinusoidalGrid
from seqloom.nn.layer import Factory, HasPoints, Layer, Memory, Point, Points, record, require
from seqloom.nn.source import SourceEncoder


def normalize(pixels: Tensor, dtype: torch.dtype) -> Tensor:
    """x = pixel / 127.5 - 1: (B, H, W, 3) uint8 → (B, 3, H, W) from -1 to 1, channels last in memory."""
    return (pixels.to(dtype) / 127.5 - 1).permute(0, 3, 1, 2)


class PictureStem(HasPoints):
    """regions = stem(pixels)     (B, H, W, 3) → (B, h, w, dim)

    `grid` is (h, w) for pictures of the given shape."""

    dim: int
    grid: tuple[int, int]
    points: ClassVar[Points] = {"": Point("r", "BHWD")}

    def forward(self, pixels: Tensor) -> Tensor:
        raise NotImplementedError


class ConvNorm(nn.Module):
    """y = norm(W ∗ x),   norm over groups of channels of one picture (Wu and He 2018)

    W is a kernel of `kernel` × `kernel` positions, moved by `stride`. Pictures do not see each other, as they would in batch
    normalisation, so a picture has the same output in every batch.
    """

    def __init__(self, size: int, dim: int, kernel: int = 3, stride: int = 1, groups: int = 8):
        super().__init__()
        self.conv = nn.Conv2d(size, dim, kernel, stride, kernel // 2, bias=False)
        self.norm = nn.GroupNorm(math.gcd(groups, dim), dim)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.conv(x))


class ConvStem(PictureStem):
    """xₗ = ReLU(norm(Wₗ ∗ xₗ₋₁)),   each layer at half the height and width

    `dims` are the channels of the layers; three of them make 64 × 64 pixels 8 × 8 regions.
    """

    def __init__(self, shape: tuple[int, ...], dims: list[int] = [32, 64, 128]):  # noqa: B006  # never changed
        super().__init__()
        require(bool(dims), "a convolution stem needs at least one layer: set dims")
        sizes = [shape[2], *dims]
        self.layers = nn.ModuleList(
            ConvNorm(size, dim, stride=2) for size, dim in zip(sizes, dims, strict=False)
        )
        self.dim = dims[-1]
        self.grid = halved(shape, len(dims))

    def forward(self, pixels: Tensor) -> Tensor:
        x = normalize(pixels, next(self.parameters()).dtype)
        for layer in self.layers:
            x = layer(x).relu()
        return record(self, "", x.permute(0, 2, 3, 1))  # (B, h, w, D)


class ResidualBlock(nn.Module):
    """y = ReLU(x' + norm(W₂ ∗ ReLU(norm(W₁ ∗ x))))   (He et al. 2016)

    x' is x, or norm(W₀ ∗ x) where the size changes.
    """

    def __init__(self, size: int, dim: int, stride: int = 1):
        super().__init__()
        self.first = ConvNorm(size, dim, stride=stride)
        self.second = ConvNorm(dim, dim)
        self.shortcut = ConvNorm(size, dim, 1, stride) if stride > 1 or size != dim else None

    def forward(self, x: Tensor) -> Tensor:
        y = self.second(self.first(x).relu())
        return ((x if self.shortcut is None else self.shortcut(x)) + y).relu()


class ResNet(PictureStem):
    """x₁ = ReLU(norm(W ∗ x));   then stages of residual blocks, each stage at half the height and width

    `dims` are the channels of the first layer and of the stages, `blocks` the number of blocks of each stage. `stride` is
    that of the first layer: 1 keeps small pictures whole.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        dims: list[int] = [32, 64, 128],  # noqa: B006  # never changed
        blocks: int = 1,
        stride: int = 2,
    ):
        super().__init__()
        require(
            len(dims) > 1 and blocks > 0 and stride in (1, 2),
            "a ResNet needs dims of a first layer and of stages",
        )
        self.stem = ConvNorm(shape[2], dims[0], stride=stride)
        self.blocks = nn.ModuleList(
            ResidualBlock(
                dims[stage] if number == 0 else dims[stage + 1], dims[stage + 1], 2 if number == 0 else 1
            )
            for stage in range(len(dims) - 1)
            for number in range(blocks)
        )
        self.dim = dims[-1]
        self.grid = halved(shape, len(dims) - 1 + (stride == 2))

    def forward(self, pixels: Tensor) -> Tensor:
        x = self.stem(normalize(pixels, next(self.parameters()).dtype)).relu()
        for block in self.blocks:
            x = block(x)
        return record(self, "", x.permute(0, 2, 3, 1))  # (B, h, w, D)


def halved(shape: tuple[int, ...], times: int) -> tuple[int, int]:
    """The height and width after so many convolutions of stride 2."""
    height, width = shape[:2]
    for _ in range(times):
        height, width = -(-height // 2), -(-width // 2)
    return height, width


class Patches(PictureStem):
    """rᵢ = W vec(patchᵢ) + b   (Dosovitskiy et al. 2021)

    A patch is a square of `patch` × `patch` pixels; patches do not overlap.
    """

    def __init__(self, shape: tuple[int, ...], dim: int = 128, patch: int = 8):
        super().__init__()
        height, width, channels = shape
        require(
            height % patch == 0 and width % patch == 0,
            f"pictures of {height} × {width} pixels cannot be divided into patches of {patch}: choose a patch that divides both",
        )
        self.patch = patch
        self.dim = dim
        self.grid = height // patch, width // patch
        self.linear = nn.Linear(patch * patch * channels, dim)

    def forward(self, pixels: Tensor) -> Tensor:
        batch, _, _, channels = pixels.shape
        height, width = self.grid
        x = pixels.to(self.linear.weight.dtype) / 127.5 - 1
        x = x.view(batch, height, self.patch, width, self.patch, channels).transpose(2, 3)
        return record(self, "", self.linear(x.flatten(3)))  # from (B, h, w, patch · patch · 3)


class PictureEncoder(SourceEncoder):
    """m = stack([c; stem(pixels) + position])   [L10, T8]

    The regions of a picture, row by row, are a sequence (B, R, D); `stack` is any layer that reads in both directions, None
    for the regions of the stem themselves. c is a learnt vector before the regions if `class_token` is set: the stack can
    gather there what `FirstPool` then reads.
    """

    points: ClassVar[Points] = {"": Point("m", "BTD")}

    def __init__(
        self,
        shape: tuple[int, ...],
        stem: Factory[PictureStem] = ResNet,
        position: Factory[GridPosition] = SinusoidalGrid,
        stack: Factory[Layer] | None = None,
        class_token: bool = False,
    ):
        super().__init__()
        require(
            len(shape) == 3,
            f"a picture has height, width and channels, not the shape {shape}: use corpus Pictures",
        )
        self.stem = stem(shape)
        self.grid = self.stem.grid
        self.position = position(self.stem.dim, self.grid)
        require(
            stack is not None or not class_token,
            "a class token knows nothing of the picture without a stack: set stack, or class_token: false",
        )
        self.class_token = nn.Parameter(torch.randn(self.position.dim) * 0.02) if class_token else None
        self.stack = None if stack is None else stack(self.position.dim)
        require(
            self.stack is None or not self.stack.causal,
            "the stack of a picture encoder reads all regions at once: set causal: false",
        )
        self.dim = self.position.dim if self.stack is None else self.stack.dim

    def forward(self, source: Tensor, mask: Tensor | None = None) -> Memory:
        regions = self.position(self.stem(source)).flatten(1, 2)  # (B, R, D)
        if self.class_token is not None:
            token = self.class_token.expand(len(regions), 1, -1)
            regions = torch.cat([token, regions], 1)  # (B, 1 + R, D)
        if self.stack is not None:
            regions, _ = self.stack(regions)
        return Memory(record(self, "", regions), None)

    def position_names(self, count: int) -> list[str]:
        """Regions row by row: row, column, from 1; before them the class token, if there is one."""
        rows, columns = self.stem.grid
        regions = [f"{row},{column}" for row in range(1, rows + 1) for column in range(1, columns + 1)]
        return regions if self.class_token is None else ["class", *regions]

    def memory_mask(self, source: Tensor, mask: Tensor | None = None) -> Tensor:
        positions = math.prod(self.stem.grid) + (self.class_token is not None)
        return torch.ones(len(source), positions, dtype=torch.bool, device=source.device)
