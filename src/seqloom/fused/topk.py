"""The best few tokens of each row, with their log-probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fused.dispatch import is_f32_inference, load_kernels

MAX_K = 64  # up to which the compiled search is quicker than sorting


class TopK(NamedTuple):
    """ln p of the best `count` tokens of each row, best first, their ids, and what ln p is short of the logits."""

    log_p: Tensor  # (B, C)
    tokens: Tensor  # (B, C)
    total: Tensor  # (B,) ln Σ exp logits


def topk_log_probs(logits: Tensor, count: int, ban: Sequence[int] = ()) -> TopK:
    """ln pᵢ = xᵢ - ln Σⱼ exp xⱼ for the `count` largest, without the banned, whose mass stays in the sum. (B, V) → (B, count or V)

    Where fewer than `count` may come out, the rest have -inf. NaN in a row makes its total NaN.
    """
    rows, vocabulary = logits.shape
    count = min(count, vocabulary)
    if not (is_f32_inference(logits) and rows and count <= MAX_K and logits.is_contiguous()):
        total = logits.logsumexp(-1)
        free = logits - total[:, None]
        if len(ban):
            free[:, list(ban)] = -torch.inf
        if count == 1:  # the first of equals
            tokens = free.argmax(-1, keepdim=True)
            return TopK(free.gather(-1, tokens), tokens, total)
        return TopK(*free.topk(count, -1), total)
    log_p, tokens, total = (
        logits.new_empty(rows, count),
        torch.empty(rows, count, dtype=torch.int64),
        logits.new_empty(rows),
    )
    banned = torch.tensor([*ban, -1])
    host, kernels = load_kernels("host"), load_kernels("topk")
    kernels.topk(
        host.c_address(kernels.topk_worker), rows,
        (
            logits.data_ptr(), vocabulary, count, banned.data_ptr(), len(banned), log_p.data_ptr(), tokens.data_ptr(), total.data_ptr(),
        ),
        host.num_threads(),
    )  # fmt: skip
    return TopK(log_p, tokens, total)
