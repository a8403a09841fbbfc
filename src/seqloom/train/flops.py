"""FLOPs of products. torch counts those of matrices; what it leaves out stands here."""

from __future__ import annotations

import math

import torch
from torch.utils.flop_counter import FlopCounterMode


def matvec_flops(matrix: torch.Size, vector: torch.Size, out_shape: torch.Size | None = None) -> int:
    return 2 * math.prod(matrix)


def addmv_flops(
    start: torch.Size, matrix: torch.Size, vector: torch.Size, out_shape: torch.Size | None = None
) -> int:
    return 2 * math.prod(matrix)


EXTRA_FLOPS = {
    torch.ops.aten.mv: matvec_flops,
    torch.ops.aten.dot: matvec_flops,
    torch.ops.aten.addmv: addmv_flops,
}


def flop_counter() -> FlopCounterMode:
    """Inside, every product is counted; `flop_registry` says how."""
    return FlopCounterMode(display=False, custom_mapping=EXTRA_FLOPS)
