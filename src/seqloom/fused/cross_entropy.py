"""Fast form of `nn/embedding.py`: -ln P of the targets from the logits of the whole vocabulary.

Each row of logits is read once forward and once backward, where a softmax, its logarithm, a gather and a mean
would each pass over all of memory. For float32 and float64 on the CPU; the kernel is
`kernels/cross_entropy.py`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels, supports


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
