"""REINFORCE (Williams 1992) for parts that draw at random, such as hard attention: ∇ E[L] = E[∇L + Σₜ (Gₜ - bₜ) ∇ ln P(jₜ)]

Gₜ is the loss of position t and of all later ones of its row, which alone depend on the draw jₜ. bₜ is the baseline.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from seqloom.errors import ConfigError
from seqloom.nn.layer import Choice


def policy_loss(choices: Sequence[Choice], costs: Tensor, mask: Tensor) -> Tensor:
    """Σₜ (Gₜ - bₜ) ln P(jₜ) - Σₜ bonusₜ, whose gradient with the given losses (N,) of the counted positions is REINFORCE's."""
    log_probs = torch.cat([choice.log_probs for choice in choices], -1)
    bonus = torch.cat([choice.bonus for choice in choices], -1)
    if log_probs.shape[-1] != mask.shape[1]:
        raise ConfigError(
            "weights Hard draw one position for each word: use them where a decoder attends once for a word, such as in RegionRNN"
        )
    table = torch.zeros(mask.shape, dtype=costs.dtype, device=costs.device).masked_scatter(mask, costs)
    later = table.flip(1).cumsum(1).flip(1)
    advantage = (later - baseline(later, mask)) * mask
    return ((advantage[:, None] * log_probs) - bonus * mask[:, None]).sum()


def baseline(later: Tensor, mask: Tensor) -> Tensor:
    """bₜ of each row: the mean loss of a word from t on in the other rows, times the words of the row from t on; (B, T).

    It depends on no draw of its own row, so that the estimate of the gradient stays unbiased. A batch of one row has none: 0.
    """
    words = mask.to(later.dtype).flip(1).cumsum(1).flip(1)
    others = words.sum(0) - words
    return torch.where(others > 0, (later.sum(0) - later) / others.clamp(min=1), 0.0) * words
