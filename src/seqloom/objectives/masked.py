"""Masked language modelling: restore what is hidden, from both sides  [I1]; and say whether two segments follow each other."""

from __future__ import annotations

import torch.nn.functional as F
from torch import nn

from seqloom.data.masked import Cloze
from seqloom.nn.layer import need
from seqloom.nn.state import State
from seqloom.objectives.likelihood import Result, collected, cross_entropy, joined


def masked(model: nn.Module, batch: Cloze, state: State = None, follows: float = 1.0) -> Result:
    """ℓ = Σ over picked t of -ln P(wₜ | the text with gaps)   [I1, X17],   and where rows are pairs  + follows · n · mean -ln P(B goes on from A),
    n the number of picked tokens: the sum of the two means that BERT learns.

    In use it also counts the picked tokens that the model guesses `right`, and of the `pairs` those it has `told` apart.
    """
    with collected(model) as losses:
        h, _ = model.features(batch.ids)
    loss, numbers = joined(*cross_entropy(model, h, batch.targets, batch.mask, 0.0), losses, batch)
    if not model.training:
        numbers["right"] = int((model.output(h[batch.mask]).argmax(-1) == batch.targets[batch.mask]).sum())
    if batch.follows is not None:
        need(
            getattr(model, "pooler", None) is not None,
            "pairs of segments need a model that tells them apart: say model.pooler=Pooler",
        )
        told = model.follows(model.pooler(h))  # (B, 2)
        loss = loss + follows * batch.weight * F.cross_entropy(told.float(), batch.follows)
        numbers["told"], numbers["pairs"] = int((told.argmax(-1) == batch.follows).sum()), len(told)
    return loss, numbers, None
