"""An ensemble: several models, of any types, that generate one text together."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.decoding.protocol import AttendingModel, AutoregressiveModel, GenerativeModel, State, to_float32
from seqloom.errors import UserError


class Ensemble:
    """P(w | …) = 1/M Σₘ Pₘ(w | …): the average of the members' probabilities [L6].

    It is a `GenerativeModel` itself, so the loop, beam search and exact search run over it unchanged: its features are
    the members' features side by side, and its state is the tuple of their states. Members share one vocabulary.
    """

    generates = predicts_tokens = True
    predicts_labels = embeds_text = copies = False

    def __init__(self, members: Sequence[GenerativeModel]):
        if not members:
            raise UserError("an ensemble without members: give at least one model")
        self.members = list(members)
        contexts = [member.context for member in members if member.context is not None]
        self.context = min(contexts, default=None)
        self.continues = members[0].continues
        if any(member.continues != self.continues for member in members):
            raise UserError("an ensemble of language models and translators: give models of one task")
        self.task = "language modelling" if self.continues else "translation"
        self.reads = "text"
        self.widths: list[int] = []

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first_id: int
    ) -> tuple[Tensor, State, Tensor | None]:
        """The start of a generation: each member reads the prompt."""
        prompts = [member.prepare_prompt(ids, mask, first_id) for member in self.members]
        return prompts[0][0], tuple(state for _, state, _ in prompts), prompts[0][2]

    def memory_mask(self, source: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which outputs of the encoders are real; members whose memories differ in length have no common one."""
        return self.members[0].memory_mask(source, mask)

    def features(self, ids: Tensor, state: State = None, mask: Tensor | None = None) -> tuple[Tensor, State]:
        states = state or [None] * len(self.members)
        results = [
            member.features(ids, before, mask) for member, before in zip(self.members, states, strict=True)
        ]
        return self.concat_features([h for h, _ in results]), tuple(after for _, after in results)

    def features_with_attention(
        self, ids: Tensor, state: State, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """As `features`, and the weights over the source of the members that have any, averaged over each member's heads:
        (B, members, T, S)."""
        features: list[Tensor] = []
        weights: list[Tensor] = []
        states: list[State] = []
        for member, before in zip(self.members, state, strict=True):
            if isinstance(member, AttendingModel):
                h, alpha, after = member.features_with_attention(ids, before, mask)
                weights += [] if alpha is None else [alpha.mean(1)]
            else:
                h, after = member.features(ids, before, mask)
            features.append(h)
            states.append(after)
        return (
            self.concat_features(features),
            torch.stack(weights, 1) if weights else None,
            tuple(states),
        )

    def concat_features(self, features: list[Tensor]) -> Tensor:
        """The members' features side by side, in the widest of their dtypes."""
        self.widths = [h.shape[-1] for h in features]
        dtype = max((h.dtype for h in features), key=lambda dtype: torch.finfo(dtype).bits)
        return torch.cat([h.to(dtype) for h in features], -1)

    def output(self, h: Tensor) -> Tensor:
        """ln P, which serves as the logits."""
        parts = h.split(self.widths, -1)
        log_p = [output_log_probs(member, part) for member, part in zip(self.members, parts, strict=True)]
        sizes = [member_log_p.shape[-1] for member_log_p in log_p]
        if len(set(sizes)) > 1:
            raise UserError(f"the members' vocabularies have {sizes} tokens: an ensemble needs one tokenizer")
        return torch.stack(log_p).logsumexp(0) - torch.tensor(float(len(log_p))).log()


def output_log_probs(model: AutoregressiveModel, h: Tensor) -> Tensor:
    """ln P of every token from the features; float16 and bfloat16 logits are cast to float32."""
    return to_float32(model.output(h)).log_softmax(-1)
