"""Masked training: some tokens are picked, most of them hidden, and only they count  [I1]."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.permutation import splitmix64
from seqloom.text.special_tokens import MASK


class MaskedTokens(NamedTuple):
    """What the model reads, and which positions it must restore; the targets are the ids as they were."""

    ids: Tensor  # (B, T)
    picked: Tensor  # (B, T)


def hashed_uniform(key: int, rows: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each row (B, count): a pure function of the key and the row's own number."""
    begin = splitmix64(splitmix64(rows) ^ np.uint64(key))  # (B,)
    return (splitmix64(begin[:, None] + np.arange(count, dtype=np.uint64)) >> np.uint64(11)) * 2.0**-53


def mask_tokens(
    ids: Tensor,
    real: Tensor,
    vocabulary: int,
    chance: Tensor,
    rate: float = 0.15,
    masked: float = 0.8,
    replaced: float = 0.1,
    first: int = MASK + 1,
    mask: int = MASK,
) -> MaskedTokens:
    """Pick each real token with probability `rate`; of the picked a share `masked` becomes the mask token, a share `replaced` a random word
    (ids from `first` on), the rest stays as it is   [I1, X17]. A row with real tokens has one picked at least.

    `chance` (3, B, T) holds numbers in [0, 1): which are picked, what becomes of them, which word.
    """
    check(rate, masked, replaced)
    pick, kind, word = chance
    pick = torch.where(real, pick, torch.inf)
    picked = (pick < rate) | (pick == pick.amin(1, keepdim=True)) & real
    words = first + (word * (vocabulary - first)).long()
    hidden = picked & (kind < masked)
    changed = picked & (kind >= masked) & (kind < masked + replaced)
    return MaskedTokens(torch.where(hidden, mask, torch.where(changed, words, ids)), picked)


def check(rate: float, masked: float, replaced: float) -> None:
    if not 0 < rate <= 1 or masked < 0 or replaced < 0 or masked + replaced > 1:
        raise ValueError(
            f"rate {rate}, masked {masked} and replaced {replaced} must be shares, the last two together at most 1"
        )
