"""The best few tokens of each row, with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.nn.linear import compiled, single

FEW = 64  # up to which the compiled search is quicker than sorting


class Best(NamedTuple):
    """ln p of the best `count` tokens of each row, best first, their ids, and what ln p is short of the logits."""

    log_p: Tensor  # (B, C)
    tokens: Tensor  # (B, C)
    total: Tensor  # (B,) ln Σ exp logits


@cache
def ranks() -> ModuleType:
    """Loaded when first used: the compiler takes half a second to import."""
    from seqloom.nn import ranks

    return ranks


def best(logits: Tensor, count: int, ban: Sequence[int] = ()) -> Best:
    """ln pᵢ = xᵢ - ln Σⱼ exp xⱼ for the `count` largest, without the banned, whose mass stays in the sum. (B, V) → (B, count or V)

    Where fewer than `count` may come out, the rest have -inf. NaN in a row makes its total NaN.
    """
    rows, vocabulary = logits.shape
    count = min(count, vocabulary)
    if not (single(logits) and rows and count <= FEW and logits.is_contiguous()):
        total = logits.logsumexp(-1)
        free = logits - total[:, None]
        if len(ban):
            free[:, list(ban)] = -torch.inf
        if count == 1:  # the first of equals
            tokens = free.argmax(-1, keepdim=True)
            return Best(free.gather(-1, tokens), tokens, total)
        return Best(*free.topk(count, -1), total)
    log_p, tokens, total = (
        logits.new_empty(rows, count),
        torch.empty(rows, count, dtype=torch.int64),
        logits.new_empty(rows),
    )
    banned = torch.tensor([*ban, -1])
    _, threads = compiled()
    ranks().ranks(
        threads.work(ranks().rank_work), rows,
        (
            logits.data_ptr(), vocabulary, count, banned.data_ptr(), len(banned), log_p.data_ptr(), tokens.data_ptr(), total.data_ptr(),
        ),
        threads.threads(),
    )  # fmt: skip
    return Best(log_p, tokens, total)
