"""An ensemble: several models, of any kinds, that write one text together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from seqloom.decoding.protocol import Model, State


class Ensemble:
    """P(w | …) = 1/M Σₘ Pₘ(w | …): the average of the members' probabilities [L6].

    It keeps the protocol of a model, so the loop, the beam and the exact search run over it unchanged: what the output layer reads is
    what all members' output layers read, side by side, and the state is the tuple of theirs. Members share one vocabulary.
    """

    generates = predicts_tokens = True

    def __init__(self, members: Sequence[Any]):
        if not members:
            raise ValueError("an ensemble without members: give at least one model")
        self.members = list(members)
        self.context = min((one.context for one in members if one.context is not None), default=None)
        self.continues = members[0].continues
        if any(one.continues != self.continues for one in members):
            raise ValueError("an ensemble of language models and translators: give models of one task")
        self.widths: list[int] = []

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first: int
    ) -> tuple[Tensor, State, Tensor | None]:
        """What generation begins with: each member reads the prompt."""
        begun = [one.prepare_prompt(ids, mask, first) for one in self.members]
        return begun[0][0], tuple(state for _, state, _ in begun), begun[0][2]

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        states = state or [None] * len(self.members)
        results = [one.features(ids, before, mask) for one, before in zip(self.members, states, strict=True)]
        return self.joined([h for h, _ in results]), tuple(after for _, after in results)

    def features_with_attention(
        self, ids: Tensor, state: State, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """As `features`, and the weights over the source of the members that have any, each the mean of its heads: (B, members, T, S)."""
        results = [
            one.features_with_attention(ids, before, mask)
            for one, before in zip(self.members, state, strict=True)
        ]
        weights = [alpha.mean(1) for _, alpha, _ in results if alpha is not None]
        return (
            self.joined([h for h, _, _ in results]),
            torch.stack(weights, 1) if weights else None,
            tuple(after for _, _, after in results),
        )

    def joined(self, features: list[Tensor]) -> Tensor:
        """Side by side, in the widest of their types."""
        self.widths = [h.shape[-1] for h in features]
        dtype = max((h.dtype for h in features), key=lambda kind: torch.finfo(kind).bits)
        return torch.cat([h.to(dtype) for h in features], -1)

    def output(self, h: Tensor) -> Tensor:
        """ln P, which is as good a logit as any."""
        parts = h.split(self.widths, -1)
        log_p = [log_probabilities(one, part) for one, part in zip(self.members, parts, strict=True)]
        if len({one.shape[-1] for one in log_p}) > 1:
            raise ValueError(
                f"the members' vocabularies have {[one.shape[-1] for one in log_p]} tokens: an ensemble needs one tokenizer"
            )
        return torch.stack(log_p).logsumexp(0) - torch.tensor(float(len(log_p))).log()


def log_probabilities(model: Model, h: Tensor) -> Tensor:
    """ln P of every token from what the output layer reads; half precision is read in single."""
    logits = model.output(h)
    return (logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits).log_softmax(-1)
