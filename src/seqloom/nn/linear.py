"""The linear map, quick for many rows and for few."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.nn.fast import fast

FEW = 320  # rows up to which the compiled product is quicker than torch's


@cache
def compiled() -> tuple[ModuleType, ModuleType]:
    """Products and threads, loaded when first used: the compiler takes half a second to import."""
    from seqloom.nn import few, threads

    return few, threads


_zeros = torch.zeros(0)


def zeros(length: int) -> Tensor:
    """At least so many zeros, to be read only."""
    global _zeros
    if len(_zeros) < length:
        with torch.inference_mode(False):
            _zeros = torch.zeros(length)
    return _zeros


def single(x: Tensor) -> bool:
    """Whether compiled code may compute with x: single precision on a processor, nothing to differentiate."""
    return (
        x.dtype is torch.float32
        and x.device.type == "cpu"
        and not torch.is_grad_enabled()
        and fast()
        and not torch.is_autocast_enabled("cpu")
    )


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = W x + b: (…, D) → (…, D')"""
    columns, size = weight.shape
    rows = x.numel() // size if size else 0
    if not (
        0 < rows <= FEW and columns and single(x) and weight.dtype is torch.float32 and weight.is_contiguous()
    ):
        return F.linear(x, weight, bias)
    (few, threads), x, y = compiled(), x.contiguous(), x.new_empty(*x.shape[:-1], columns)
    more = zeros(columns) if bias is None else bias
    work, shape = threads.work(few.float_work), (rows, columns, size)
    few.multiply(
        work, *shape, x.data_ptr(), weight.data_ptr(), more.data_ptr(), y.data_ptr(), threads.threads()
    )
    return y


class Linear(nn.Linear):
    """y = W x + b"""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)
