"""Fast forms of `nn/basic.py` and of `nn/int8.py`: y = W x + b for few rows, in float32 and with int8
weights; and of `nn/embedding.py`: -ln P of the targets from the logits of the whole vocabulary.

For few rows the time goes into reading W, and torch's product is tuned for many. The kernels are in
`kernels/small_gemm.py` and `kernels/int8_gemm.py`. Both run without gradients only.

The cross-entropy reads each row of logits once forward and once backward, where a softmax, its logarithm, a
gather and a mean would each pass over all of memory. For float32 and float64 on the CPU; the kernel is
`kernels/cross_entropy.py`.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import (
    fused_enabled,
    is_f32_inference,
    kernels_available,
    load_kernels,
    num_threads,
    supports,
    zero_bias,
)

# Up to this many rows the compiled product is faster than torch's, which has no vectors of 512 bits on every processor.
SMALL_GEMM_ROWS = 8192 if torch.backends.cpu.get_cpu_capability() == "AVX512" else 320
ROW_BLOCK = 2048  # rows at a time, which stay in the cache


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """y = W x + b: (…, D) → (…, D'), by torch's product where the compiled one does not apply."""
    columns, size = weight.shape
    rows = x.numel() // size if size else 0
    if not (
        0 < rows <= SMALL_GEMM_ROWS
        and columns
        and x.shape[-1] == size  # torch's product refuses other widths
        and is_f32_inference(x)
        and weight.dtype is torch.float32
        and weight.is_contiguous()
    ):
        return F.linear(x, weight, bias)
    kernels = load_kernels("small_gemm")
    x = x.contiguous()
    y = x.new_empty(*x.shape[:-1], columns)
    addend = zero_bias(columns) if bias is None else bias
    for row in range(0, rows, ROW_BLOCK):
        kernels.gemm_f32(
            kernels.f32_worker,
            min(ROW_BLOCK, rows - row),
            columns,
            size,
            x.data_ptr() + 4 * row * size,
            weight.data_ptr(),
            addend.data_ptr(),
            y.data_ptr() + 4 * row * columns,
            num_threads(),
        )
    return y


def linear_int8(x: Tensor, columns: int, panels: Tensor, scales: Tensor, bias: Tensor) -> Tensor | None:
    """y = Ŵ x̂ + b for the first `columns` outputs, W in int8 panels (N/16, D/2, 16, 2): (…, D) → (…,
    columns).

    `scales` and `bias` are padded to a multiple of 16. None where a gradient is needed, x is not float32 on
    the CPU, or fast forms are off.
    """
    size = 2 * panels.shape[1]
    rows = x.numel() // size
    needs_gradient = torch.is_grad_enabled() and x.requires_grad
    if (
        needs_gradient
        or rows == 0
        or x.dtype is not torch.float32
        or x.device.type != "cpu"
        or not fused_enabled()
        or not kernels_available()
    ):
        return None
    kernels = load_kernels("int8_gemm")
    x = x.contiguous()
    y = x.new_empty(*x.shape[:-1], columns)
    kernels.gemm_int8(
        kernels.int8_worker,
        rows,
        columns,
        size,
        x.data_ptr(),
        panels.data_ptr(),
        bias.data_ptr(),
        y.data_ptr(),
        scales.data_ptr(),
        num_threads(),
    )
    return y


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor] | None:
    """The smoothed loss and the loss without smoothing of each target: (…, V), (…) → (…), (…).

    The second takes no gradient where `smoothing` is above 0. None where the kernel does not support the
    logits.
    """
    if not supports(logits) or logits.shape[-1] == 0:
        return None
    rows = logits.reshape(-1, logits.shape[-1])
    losses, nll = CrossEntropy.apply(rows, targets.reshape(-1), smoothing)
    return losses.view(targets.shape), (nll if smoothing else losses).view(targets.shape)


class CrossEntropy(torch.autograd.Function):
    """Saves P for the gradient: dℓ/dz = P - (1 - ε) one-hot(w) - ε / V."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, targets: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        save = ctx.needs_input_grad[0]
        logits = logits.contiguous()
        losses = logits.new_empty(len(logits))
        nll = logits.new_empty(len(logits))
        p = torch.empty_like(logits) if save else logits.new_empty(1, logits.shape[1])
        load_kernels("cross_entropy").forward(
            logits.detach().numpy(), targets.numpy(), smoothing, save, p.numpy(), losses.numpy(), nll.numpy()
        )
        ctx.save_for_backward(p, targets)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(nll)
        return losses, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dlosses: Tensor, _: Tensor) -> tuple[Tensor, None, None]:
        p, targets = ctx.saved_tensors
        dlogits = torch.empty_like(p)
        load_kernels("cross_entropy").backward(
            p.numpy(), targets.numpy(), ctx.smoothing, dlosses.contiguous().numpy(), dlogits.numpy()
        )
        return dlogits, None, None
