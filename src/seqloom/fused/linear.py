"""The linear map, quick for many rows and for few."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.fused.dispatch import is_f32_inference, load_kernels, zero_bias

SMALL_GEMM_ROWS = 320  # rows up to which the compiled product is quicker than torch's


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = W x + b: (…, D) → (…, D')"""
    columns, size = weight.shape
    rows = x.numel() // size if size else 0
    if not (
        0 < rows <= SMALL_GEMM_ROWS
        and columns
        and is_f32_inference(x)
        and weight.dtype is torch.float32
        and weight.is_contiguous()
    ):
        return F.linear(x, weight, bias)
    host, kernels = load_kernels("host"), load_kernels("small_gemm")
    x, y = x.contiguous(), x.new_empty(*x.shape[:-1], columns)
    more = zero_bias(columns) if bias is None else bias
    work, shape = host.c_address(kernels.f32_worker), (rows, columns, size)
    kernels.gemm_f32(
        work, *shape, x.data_ptr(), weight.data_ptr(), more.data_ptr(), y.data_ptr(), host.num_threads()
    )
    return y
