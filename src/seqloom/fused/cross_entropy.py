"""-ln P of given words from the logits of all: rows of a vocabulary's length are read once forward and once backward, where a softmax, its logarithm,
a gather and a mean would each pass over all of memory. Left out: other devices and half precision, which take the plain form."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.fused.dispatch import load_kernels


class CrossEntropy(torch.autograd.Function):
    """P kept for the gradient: dℓ/dz = P - (1 - ε) one-hot(w) - ε / V."""

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, smoothing: float):
        keep = ctx.needs_input_grad[0]
        logits = logits.contiguous()
        losses, nats = logits.new_empty(len(logits)), logits.new_empty(len(logits))
        p = torch.empty_like(logits) if keep else logits.new_empty(1, logits.shape[1])
        load_kernels("cross_entropy").forward(
            logits.detach().numpy(), targets.numpy(), smoothing, keep, p.numpy(), losses.numpy(), nats.numpy()
        )
        ctx.save_for_backward(p, targets)
        ctx.smoothing = smoothing
        ctx.mark_non_differentiable(nats)
        return losses, nats

    @staticmethod
    @once_differentiable
    def backward(ctx, dlosses: Tensor, _: Tensor):
        p, targets = ctx.saved_tensors
        gradient = torch.empty_like(p)
        load_kernels("cross_entropy").backward(
            p.numpy(), targets.numpy(), ctx.smoothing, dlosses.contiguous().numpy(), gradient.numpy()
        )
        return gradient, None, None
