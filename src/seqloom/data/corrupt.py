"""Masked training: some tokens are picked, most of them hidden, and only they count  [I1]."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.text.tokenizer import MASK


class Corrupted(NamedTuple):
    """What the model reads, and which positions it must restore; the targets are the ids as they were."""

    ids: Tensor  # (B, T)
    picked: Tensor  # (B, T)


def corrupt(
    ids: Tensor,
    real: Tensor,
    vocabulary: int,
    generator: torch.Generator,
    rate: float = 0.15,
    masked: float = 0.8,
    replaced: float = 0.1,
    first: int = MASK + 1,
) -> Corrupted:
    """Pick each real token with probability `rate`; of the picked a share `masked` becomes the mask token, a share `replaced` a random word
    (ids from `first` on), the rest stays as it is   [I1, X17]"""
    if not 0 < rate <= 1 or masked < 0 or replaced < 0 or masked + replaced > 1:
        raise ValueError(f"rate {rate}, masked {masked} and replaced {replaced} must be shares, the last two together at most 1")
    chance, kind = torch.rand(2, *ids.shape, generator=generator)
    picked = real & (chance < rate)
    words = torch.randint(first, vocabulary, ids.shape, generator=generator)
    hidden = picked & (kind < masked)
    changed = picked & (kind >= masked) & (kind < masked + replaced)
    return Corrupted(torch.where(hidden, MASK, torch.where(changed, words, ids)), picked)
