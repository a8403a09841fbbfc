"""FLOPs of matrix products. torch counts most of them; the formulas of the products that it leaves out are here."""

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
    """A context that counts the FLOPs of every matrix product inside it; its `flop_registry` holds the formulas."""
    return FlopCounterMode(display=False, custom_mapping=EXTRA_FLOPS)
