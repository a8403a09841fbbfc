"""FLOPs of products. torch counts those of matrices; what it leaves out stands here."""

from __future__ import annotations

import math

import torch
from torch.utils.flop_counter import FlopCounterMode


def product(matrix: torch.Size, vector: torch.Size, out_shape: torch.Size | None = None) -> int:
    return 2 * math.prod(matrix)


def added(
    start: torch.Size, matrix: torch.Size, vector: torch.Size, out_shape: torch.Size | None = None
) -> int:
    return 2 * math.prod(matrix)


LEFT_OUT = {torch.ops.aten.mv: product, torch.ops.aten.dot: product, torch.ops.aten.addmv: added}


def counter() -> FlopCounterMode:
    """Inside, every product is counted; `flop_registry` says how."""
    return FlopCounterMode(display=False, custom_mapping=LEFT_OUT)
