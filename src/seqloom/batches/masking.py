"""Masking of tokens: some are selected, most of these are hidden, and only the selected ones count  [I1]."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.batch import splitmix64
from seqloom.errors import ConfigError
from seqloom.text.tokenizer import MASK


class MaskedTokens(NamedTuple):
    """The ids that the model reads, and the positions that
    it must restore; the targets are the original ids."""

    ids: Tensor  # (B, T)
    selected: Tensor  # (B, T)


def hashed_uniform(key: int, rows: np.ndarray, count: int) -> np.ndarray:
    """Returns `count` numbers in [0, 1) for each row, (B, count):
    a pure function of the key and the row's own number."""
    row_keys = splitmix64(splitmix64(rows) ^ np.uint64(key))  # (B,)
    return (splitmix64(row_keys[:, None] + np.arange(count, dtype=np.uint64)) >> np.uint64(11)) * 2.0**-53


def mask_tokens(
    ids: Tensor,
    maskable: Tensor,
    vocabulary: int,
    uniform: Tensor,
    rate: float = 0.15,
    mask_fraction: float = 0.8,
    random_fraction: float = 0.1,
    first_word: int = MASK + 1,
    mask_id: int = MASK,
) -> MaskedTokens:
    """Selects each maskable token with probability `rate`   [I1, X17].

    Of the selected tokens a fraction `mask_fraction` becomes the mask token, a fraction `random_fraction` a
    random word (an id from `first_word` on), and the rest stays unchanged. A row with maskable tokens has at
    least one selected.

    `uniform` (3, B, T) holds numbers in [0, 1): which tokens
    are selected, what they become, which random word.
    """
    check_fractions(rate, mask_fraction, random_fraction)
    select, action, word = uniform
    select = torch.where(maskable, select, torch.inf)
    selected = (select < rate) | (select == select.amin(1, keepdim=True)) & maskable
    random_words = first_word + (word * (vocabulary - first_word)).long()
    masked = selected & (action < mask_fraction)
    replaced = selected & (action >= mask_fraction) & (action < mask_fraction + random_fraction)
    return MaskedTokens(torch.where(masked, mask_id, torch.where(replaced, random_words, ids)), selected)


def check_fractions(rate: float, mask_fraction: float, random_fraction: float) -> None:
    """Raises unless the three are fractions and the last two sum to at most 1."""
    if not 0 < rate <= 1 or mask_fraction < 0 or random_fraction < 0 or mask_fraction + random_fraction > 1:
        raise ConfigError(
            f"batches.rate={rate} must be above 0 and at most 1; batches.mask_fraction={mask_fraction} and "
            f"batches.random_fraction={random_fraction} must be fractions that sum to at most 1"
        )
