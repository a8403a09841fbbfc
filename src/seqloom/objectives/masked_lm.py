"""Masked language modelling: restore hidden tokens from both
sides  [I1]; with pairs, also next-sentence prediction."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from seqloom.batches.masked import MaskedBatch
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import (
    FeatureModel,
    Result,
    add_aux_losses,
    collecting_aux_losses,
    token_loss,
)


class NextSentenceModel(FeatureModel, Protocol):
    """A model that may also predict whether the second segment continues the first."""

    def next_segment_logits(self, h: Tensor) -> Tensor: ...


def masked(
    model: NextSentenceModel, batch: MaskedBatch, state: State = None, nsp_weight: float = 1.0
) -> Result:
    """ℓ = Σ over selected t of -ln P(wₜ | the masked text)   [I1, X17],   for pairs  + nsp_weight · n · mean
    -ln P(is_next), where n is the number of selected tokens: the sum of the two means that BERT minimises.

    In evaluation, `numbers` also has how many selected tokens the model predicts correctly (`correct`), and
    for how many of the `pairs` it predicts correctly whether the second segment continues the first
    (`nsp_correct`).
    """
    with collecting_aux_losses(model) as losses:
        h, _ = model.features(batch.ids)
    loss, numbers = add_aux_losses(*token_loss(model, h, batch.targets, batch.mask, 0.0), losses, batch)
    if not model.training:
        predicted = model.output(h[batch.mask]).argmax(-1)
        numbers["correct"] = int((predicted == batch.targets[batch.mask]).sum())
    if batch.is_next is not None:
        logits = model.next_segment_logits(h)  # (B, 2)
        loss = loss + nsp_weight * batch.num_targets * F.cross_entropy(logits.float(), batch.is_next)
        numbers["nsp_correct"] = int((logits.argmax(-1) == batch.is_next).sum())
        numbers["pairs"] = len(logits)
    return loss, numbers, None
