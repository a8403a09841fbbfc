"""What a text looks at in its source: the coverage that a beam rewards, and the weights behind a given text. For models with `features_with_attention`:
features, weights over the source (B, heads, T, S) or None, state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.decoding.protocol import State

MIN_ATTENTION = 1e-9  # a source token that was never looked at costs β ln 10⁻⁹, not everything


class CoverageState(NamedTuple):
    """The model's own state, what each source token has got so far, Σₜ αₜⱼ (B, S), and which tokens are real (B, S)."""

    state: State
    sums: Tensor
    real: Tensor


class Coverage:
    """cp(X; Y) = β Σⱼ log min(Σₜ αₜⱼ, 1) over the real source tokens j: 0 where all of the source is looked at, below where a part is left
    out (Wu et al. 2016). α is the mean over the heads of all layers that look.

    `real` (B, S) is the mask of the sources. It is never above 0, so what bounds a score without it bounds a score with it.
    """

    def __init__(self, weight: float, real: Tensor):
        if not (weight >= 0 and weight < float("inf")):
            raise ValueError(f"the coverage penalty is {weight}: give a finite number of at least 0")
        self.weight, self.real = weight, real

    def over(self, model: Any, state: State) -> tuple[CoverageModel, CoverageState]:
        """The model and its state, watched."""
        return CoverageModel(model), CoverageState(
            state, torch.zeros(self.real.shape, device=self.real.device), self.real
        )

    def penalty(self, state: CoverageState) -> Tensor:
        """cp of each row: (B,)"""
        return self.weight * state.sums.clamp(MIN_ATTENTION, 1).log().masked_fill(~state.real, 0).sum(1)


class CoverageModel:
    """A model whose state also counts what it looks at; it keeps the protocol of a model."""

    def __init__(self, model: Any):
        self.model, self.context, self.output = model, model.context, model.output

    def features(
        self, ids: Tensor, state: CoverageState, mask: Tensor | None = None
    ) -> tuple[Tensor, CoverageState]:
        h, alpha, after = features_with_mean_attention(self.model, ids, state.state, mask)
        alpha = alpha if mask is None else alpha * mask[..., None]
        return h, CoverageState(after, state.sums + alpha.sum(1), state.real)


def features_with_mean_attention(
    model: Any, ids: Tensor, state: State, mask: Tensor | None = None
) -> tuple[Tensor, Tensor, State]:
    """Features, α (B, T, S) averaged over heads, and the state."""
    h, weights, state = model.features_with_attention(ids, state, mask)
    if weights is None:
        raise ValueError(
            "the model has no attention over its source to read: use one that attends, such as rnnsearch, gnmt or transformer"
        )
    return h, weights.mean(1), state


@torch.inference_mode()
def forced_attention(model: Any, first: Tensor, texts: Sequence[Sequence[int]], state: State) -> list[Tensor]:
    """α over the source behind each token of each row's text, (len(text), S): what the model looked at when it wrote it.

    `first` (B, 1) and `state` open the generation, as `model.prepare_prompt` gives them. One call for all rows.
    """
    longest = max((len(text) for text in texts), default=0)
    if not longest:
        return [torch.zeros(0, 0) for _ in texts]
    fed = torch.tensor([[*text, *[0] * (longest - len(text))] for text in texts], device=first.device)[:, :-1]
    lengths = torch.tensor([[len(text)] for text in texts], device=first.device)
    mask = torch.arange(longest, device=first.device) < lengths.clamp(min=1)
    _, alpha, _ = features_with_mean_attention(
        model, torch.cat([first, fed], 1), state, None if mask.all() else mask
    )
    return [row[: len(text)] for row, text in zip(alpha, texts, strict=True)]
