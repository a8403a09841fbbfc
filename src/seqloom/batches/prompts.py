"""Prompts for which a policy samples texts."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class PromptBatch(NamedTuple):
    """Prompts, padded on the right."""

    ids: Tensor  # (B, T)
    mask: Tensor  # (B, T): the real tokens
    carry_state: bool = False

    @property
    def targets(self) -> Tensor:
        """There is nothing to predict: the ids."""
        return self.ids

    @property
    def num_targets(self) -> int:
        """The number of prompts."""
        return len(self.ids)
