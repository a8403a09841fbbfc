"""The objective of ELMo's language models: the likelihood in both directions  [I10]."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from seqloom.batches.batch import TokenBatch
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import FeatureModel, Result, token_loss


class BackwardModel(FeatureModel, Protocol):
    """A model that also reads a text from right to left."""

    def backward_features(self, ids: Tensor) -> Tensor: ...


def bidirectional(model: BackwardModel, batch: TokenBatch, state: State = None) -> Result:
    """ℓ = ½ Σₜ [-ln P→(wₜ₊₁ | w₁ … wₜ) - ln P←(wₜ | wₜ₊₁ … w_T)]   [I10]

    The forward direction predicts each token from those before it, the backward direction from those after
    it. The state belongs to the forward direction; the backward direction starts anew at the end of each
    piece of text.
    """
    h, state = model.features(batch.ids, state)
    forward_loss, forward_numbers = token_loss(model, h, batch.targets, batch.mask, 0.0)
    backward_loss, backward_numbers = token_loss(
        model, model.backward_features(batch.targets), batch.ids, batch.mask, 0.0
    )
    nats = (forward_numbers["nats"] + backward_numbers["nats"]) / 2
    return (forward_loss + backward_loss) / 2, {"nats": nats}, state
