"""Attention over the source: the coverage penalty of beam search, and the weights behind a given text.

Both need a model with `features_with_attention`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.protocol import AttendingModel, AutoregressiveModel, State
from seqloom.errors import UserError

MIN_ATTENTION = 1e-9  # a source token without attention costs β ln 10⁻⁹ instead of infinity


class CoverageState(NamedTuple):
    """The model's state, the attention that each source token has received, and the mask of the sources."""

    state: State
    sums: Tensor  # (B, S) Σₜ αₜⱼ
    source_mask: Tensor  # (B, S)


class Coverage:
    """cp(X; Y) = β Σⱼ log min(Σₜ αₜⱼ, 1) over the real source tokens j (Wu et al. 2016).

    It is 0 if the text attends to all of the source and negative if a part is left out. α is the mean over the heads of
    all layers that attend to the source; `source_mask` is (B, S). It is never above 0, so a bound on the score without it
    is also a bound on the score with it.
    """

    def __init__(self, weight: float, source_mask: Tensor):
        if not (weight >= 0 and weight < float("inf")):
            raise UserError(f"the coverage penalty is {weight}: give a finite number of at least 0")
        self.weight = weight
        self.source_mask = source_mask

    def wrap(self, model: AutoregressiveModel, state: State) -> tuple[CoverageModel, CoverageState]:
        """The model and its state with the attention counted."""
        sums = torch.zeros(self.source_mask.shape, device=self.source_mask.device)
        return CoverageModel(model), CoverageState(state, sums, self.source_mask)

    def penalty(self, state: CoverageState) -> Tensor:
        """cp of each row: (B,)"""
        log_coverage = state.sums.clamp(MIN_ATTENTION, 1).log()
        return self.weight * log_coverage.masked_fill(~state.source_mask, 0).sum(1)


class CoverageModel:
    """A model whose state also sums its attention; an `AutoregressiveModel` itself."""

    def __init__(self, model: AutoregressiveModel):
        self.model = model
        self.context = model.context

    def output(self, h: Tensor) -> Tensor:
        return self.model.output(h)

    def features(
        self, ids: Tensor, state: CoverageState, mask: Tensor | None = None
    ) -> tuple[Tensor, CoverageState]:
        h, alpha, after = features_with_mean_attention(self.model, ids, state.state, mask)
        alpha = alpha if mask is None else alpha * mask[..., None]
        return h, CoverageState(after, state.sums + alpha.sum(1), state.source_mask)


def features_with_mean_attention(
    model: AutoregressiveModel, ids: Tensor, state: State, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, State]:
    """Features, α (B, T, S) averaged over heads, and the state."""
    if isinstance(model, AttendingModel):
        h, weights, state = model.features_with_attention(ids, state, mask)
        if weights is not None:
            return h, weights.mean(1), state
    raise UserError(
        "the model has no attention over its source: use a model that attends, such as rnnsearch, gnmt or transformer"
    )


@torch.inference_mode()
def forced_attention(
    model: AutoregressiveModel, first: Tensor, texts: Sequence[Sequence[int]], state: State
) -> list[Tensor]:
    """α over the source for each token of each row's text, (len(text), S), as when the model generates that text.

    `first` (B, 1) and `state` start the generation, as `model.prepare_prompt` returns them. One call for all rows.
    """
    max_length = max((len(text) for text in texts), default=0)
    if not max_length:
        return [torch.zeros(0, 0) for _ in texts]
    padded = [[*text, *[0] * (max_length - len(text))] for text in texts]
    fed = torch.tensor(padded, device=first.device)[:, :-1]
    lengths = torch.tensor([[len(text)] for text in texts], device=first.device)
    mask = torch.arange(max_length, device=first.device) < lengths.clamp(min=1)
    _, alpha, _ = features_with_mean_attention(
        model, torch.cat([first, fed], 1), state, None if mask.all() else mask
    )
    return [row[: len(text)] for row, text in zip(alpha, texts, strict=True)]
