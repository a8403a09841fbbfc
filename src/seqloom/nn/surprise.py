"""-ln P of given words from the logits of all: rows of a vocabulary's length are read once forward and once backward, where a softmax, its logarithm,
a gather and a mean would each pass over all of memory. Left out: other devices and half precision, which take the plain form."""

from __future__ import annotations

from functools import cache
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from seqloom.nn.fast import fast
from seqloom.nn.fused import able


@cache
def loops() -> ModuleType:
    """Loaded when first used: the compiler takes half a second to import."""
    from seqloom.nn import surprise_kernels

    return surprise_kernels


def surprise(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w   [E3], and the part without ε: (…, V), (…) → (…), (…).

    The second takes no gradient where ε is above 0."""
    if fast() and able(logits) and logits.shape[-1] > 0:
        losses, nats = Surprise.apply(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), smoothing)
        return losses.view(targets.shape), (nats if smoothing else losses).view(targets.shape)
    log_p = logits.log_softmax(-1)
    nats = -log_p.gather(-1, targets[..., None])[..., 0]
    return (
        (nats, nats)
        if not smoothing
        else ((1 - smoothing) * nats - smoothing * log_p.mean(-1), nats.detach())
    )


class Surprise(torch.autograd.Function):
    """P kept for the gradient: dℓ/dz = P - (1 - ε) one-hot(w) - ε / V."""

    @staticmethod
    def forward(ctx, logits: Tensor, targets: Tensor, smoothing: float):
        keep = ctx.needs_input_grad[0]
        logits = logits.contiguous()
        losses, nats = logits.new_empty(len(logits)), logits.new_empty(len(logits))
        p = torch.empty_like(logits) if keep else logits.new_empty(1, logits.shape[1])
        loops().forward(
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
        loops().backward(
            p.numpy(), targets.numpy(), ctx.smoothing, dlosses.contiguous().numpy(), gradient.numpy()
        )
        return gradient, None, None
