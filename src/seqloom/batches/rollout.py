"""Batches of texts that a policy has sampled, and of pairs of which one text is preferred."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class RolloutBatch(NamedTuple):
    """Sampled texts after their prompts, with what is known of them. Tensors of (B, T) are 0 outside the mask."""

    tokens: Tensor  # (B, T + 1): prompt and text, padded on the right
    mask: Tensor  # (B, T): the targets that the policy has sampled
    log_probs: Tensor  # (B, T): ln π of each sampled token when it was sampled
    reference: Tensor  # (B, T): ln π_ref of it
    advantages: Tensor  # (B, T)
    rewards: Tensor  # (B,): of the entire text, without the KL penalty
    kl: Tensor  # (B,): ln π/π_ref of the text
    scores: Tensor  # (B,): reward - β · KL estimate
    returns: Tensor | None = None  # (B, T): what the critic should predict
    values: Tensor | None = None  # (B, T): what it predicted then
    carry_state: bool = False

    @property
    def ids(self) -> Tensor:
        """The tokens that the model reads, (B, T)."""
        return self.tokens[:, :-1]

    @property
    def targets(self) -> Tensor:
        """The token after each, (B, T)."""
        return self.tokens[:, 1:]

    @property
    def num_targets(self) -> int:
        """The number of texts."""
        return len(self.tokens)
