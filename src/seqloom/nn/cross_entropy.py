"""-ln P of given words from the logits of all: rows of a vocabulary's length are read once forward and once backward, where a softmax, its logarithm,
a gather and a mean would each pass over all of memory. Left out: other devices and half precision, which take the plain form."""

from __future__ import annotations

from torch import Tensor

from seqloom.fused import cross_entropy as fused


def cross_entropy(logits: Tensor, targets: Tensor, smoothing: float = 0.0) -> tuple[Tensor, Tensor]:
    """ℓ = (1 - ε) (-ln P(w)) + ε mean_v (-ln P(v)) for each target w   [E3], and the part without ε: (…, V), (…) → (…), (…).

    The second takes no gradient where ε is above 0."""
    result = fused.cross_entropy(logits, targets, smoothing)
    if result is not None:
        return result
    log_p = logits.log_softmax(-1)
    nats = -log_p.gather(-1, targets[..., None])[..., 0]
    return (
        (nats, nats)
        if not smoothing
        else ((1 - smoothing) * nats - smoothing * log_p.mean(-1), nats.detach())
    )
