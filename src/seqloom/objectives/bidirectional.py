"""Both directions at once: the objective of ELMo's language models  [I10]."""

from __future__ import annotations

from torch import nn

from seqloom.batches.batch import TokenBatch
from seqloom.nn.state import State
from seqloom.objectives.likelihood import Result, token_loss


def two_way(model: nn.Module, batch: TokenBatch, state: State = None) -> Result:
    """ℓ = ½ Σₜ [-ln P→(wₜ₊₁ | w₁ … wₜ) - ln P←(wₜ | wₜ₊₁ … w_T)]   [I10]: ahead each token from those before it, back each from those after it.

    The state is that of the direction ahead; the other begins anew at the end of each stretch of text.
    """
    h, state = model.features(batch.ids, state)
    ahead, first = token_loss(model, h, batch.targets, batch.mask, 0.0)
    back, second = token_loss(model, model.before(batch.targets), batch.ids, batch.mask, 0.0)
    return (ahead + back) / 2, {"nats": (first["nats"] + second["nats"]) / 2}, state
