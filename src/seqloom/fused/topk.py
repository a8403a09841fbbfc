"""The k most likely tokens of each row of logits with their log-probabilities, for `decoding/`: compiled and
plain form in one function.

The kernel (`kernels/topk.py`) is used for float32 on the CPU without gradients and k up to `MAX_K`; otherwise
torch sorts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from seqloom.fused.dispatch import is_f32_inference, load_kernels, num_threads

MAX_K = 64  # up to this k the compiled search is faster than sorting


class TopK(NamedTuple):
    """ln p of the k most likely tokens of each row, most likely first, their ids, and the row's logsumexp."""

    log_probs: Tensor  # (B, k)
    tokens: Tensor  # (B, k)
    logsumexp: Tensor  # (B,) ln Σ exp logits


def topk_log_probs(logits: Tensor, count: int, banned: Sequence[int] = ()) -> TopK:
    """ln pᵢ = xᵢ - ln Σⱼ exp xⱼ for the `count` largest allowed tokens; the banned ones stay in the sum. (B,
    V) → (B, min(count, V))

    Where fewer than `count` tokens are allowed, the rest have -inf. NaN in a row makes its logsumexp NaN.
    """
    rows, vocabulary = logits.shape
    count = min(count, vocabulary)
    if not (is_f32_inference(logits) and rows and count <= MAX_K and logits.is_contiguous()):
        return _plain_topk(logits, count, banned)
    log_probs = logits.new_empty(rows, count)
    tokens = torch.empty(rows, count, dtype=torch.int64)
    logsumexp = logits.new_empty(rows)
    banned_ids = torch.tensor([*banned, -1])
    kernels = load_kernels("topk")
    arguments = (
        logits.data_ptr(),
        vocabulary,
        count,
        banned_ids.data_ptr(),
        len(banned_ids),
        log_probs.data_ptr(),
        tokens.data_ptr(),
        logsumexp.data_ptr(),
    )
    kernels.topk(kernels.topk_worker, rows, arguments, num_threads())
    return TopK(log_probs, tokens, logsumexp)


def _plain_topk(logits: Tensor, count: int, banned: Sequence[int]) -> TopK:
    logsumexp = logits.logsumexp(-1)
    allowed = logits - logsumexp[:, None]
    if len(banned):
        allowed[:, list(banned)] = -torch.inf
    if count == 1:  # argmax takes the first of equal logits
        tokens = allowed.argmax(-1, keepdim=True)
        return TopK(allowed.gather(-1, tokens), tokens, logsumexp)
    return TopK(*allowed.topk(count, -1), logsumexp)
