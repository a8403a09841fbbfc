"""Masked language modelling: restore what is hidden, from both sides  [I1]; and say whether two segments follow each other."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from seqloom.batches.masked import MaskedBatch
from seqloom.nn.layer import require
from seqloom.nn.state import State
from seqloom.objectives.likelihood import Result, add_aux_losses, collecting_aux_losses, token_loss


def masked(model: nn.Module, batch: MaskedBatch, state: State = None, follows: float = 1.0) -> Result:
    """ℓ = Σ over picked t of -ln P(wₜ | the text with gaps)   [I1, X17],   and where rows are pairs  + follows · n · mean -ln P(B goes on from A),
    n the number of picked tokens: the sum of the two means that BERT learns.

    In use it also counts the picked tokens that the model guesses `right`, and of the `pairs` those it has `told` apart.
    """
    with collecting_aux_losses(model) as losses:
        h, _ = model.features(batch.ids)
    loss, numbers = add_aux_losses(*token_loss(model, h, batch.targets, batch.mask, 0.0), losses, batch)
    if not model.training:
        numbers["right"] = int((model.output(h[batch.mask]).argmax(-1) == batch.targets[batch.mask]).sum())
    if batch.follows is not None:
        require(
            getattr(model, "pooler", None) is not None,
            "pairs of segments need a model that tells them apart: say model.pooler=Pooler",
        )
        told = model.follows(model.pooler(h))  # (B, 2)
        loss = loss + follows * batch.weight * F.cross_entropy(told.float(), batch.follows)
        numbers["told"], numbers["pairs"] = int((told.argmax(-1) == batch.follows).sum()), len(told)
    return loss, numbers, None
