"""What a model must offer to be generated from, and the one way this room calls it.

Left out: `model.eval()`, which is the caller's, because a loop that streams must not change a model others may be using meanwhile;
and the positions a given state already holds, which only the model knows: `context` is checked against the prompt alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from seqloom.decoding.workers import check_cancelled
from seqloom.fused.topk import TopK, topk_log_probs

State = Any


class Model(Protocol):
    """Ids in, features and state out; logits from features. `context` is the largest number of positions, None = any."""

    context: int | None

    def features(self, ids: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]: ...

    def output(self, h: Tensor) -> Tensor: ...


class Prompt(NamedTuple):
    """Checked prompts, trimmed to the longest: ids (B, T), mask (B, T) or None, lengths (B,), limits (B,) = new tokens that fit."""

    ids: Tensor
    mask: Tensor | None
    lengths: Tensor
    limits: Tensor


def check_prompts(model: Model, ids: Tensor, mask: Tensor | None, length: int) -> Prompt:
    """Check the prompts before any work. `length` is clipped row by row to the model's context, so a row does not depend on its batch."""
    if ids.dim() != 2 or ids.dtype != torch.int64:
        raise ValueError(
            f"prompt ids are {ids.dtype} of shape {tuple(ids.shape)}: give int64 ids of shape (batch, time)"
        )
    if length < 1:
        raise ValueError(f"length is {length}: ask for at least one token")
    if mask is not None and (mask.shape != ids.shape or mask.dtype != torch.bool):
        raise ValueError(
            f"the mask is {mask.dtype} of shape {tuple(mask.shape)}: give bool of the ids' shape {tuple(ids.shape)}"
        )
    if mask is None:
        lengths = torch.full((len(ids),), ids.shape[1], device=ids.device)
    else:
        lengths = mask.sum(1)
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise ValueError("a prompt has padding before its last token: pad prompts on the right")
    if (lengths == 0).any():
        raise ValueError(f"prompt {int((lengths == 0).nonzero()[0])} is empty: begin it with <bos>")
    longest = int(lengths.max()) if len(ids) else 0
    limits = torch.full_like(lengths, length)
    if model.context is not None:
        if longest > model.context:
            row = int(lengths.argmax())
            raise ValueError(
                f"prompt {row} has {longest} tokens but the model takes {model.context} at most: shorten the prompt"
            )
        limits = limits.minimum(
            model.context - lengths + 1
        )  # the last new token is never fed back, hence + 1
    padded = mask is not None and bool((lengths < longest).any())
    return Prompt(ids[:, :longest], mask[:, :longest] if padded else None, lengths, limits)


@torch.inference_mode()
def next_logits(
    model: Model, ids: Tensor, state: State = None, mask: Tensor | None = None, lengths: Tensor | None = None
) -> tuple[Tensor, State]:
    """The logits (B, V) of the next token, half precision read in single, and the state after `ids`. Only the last real position goes
    through the output layer. A worker that is called off ends here."""
    check_cancelled()
    h, state = model.features(ids, state, mask)
    last = h[:, -1] if lengths is None else h[torch.arange(len(h), device=h.device), lengths - 1]  # (B, D)
    logits = model.output(last[:, None])[:, 0]  # (B, V)
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits, state


@torch.inference_mode()
def next_log_probs(
    model: Model,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    ban: Sequence[int] = (),
) -> tuple[Tensor, State]:
    """log p(next token | everything before) as (B, V), −inf where banned, and the state after `ids`.

    The banned mass is not handed to the others: these stay the model's own probabilities, as teacher forcing would measure them.
    """
    logits, state = next_logits(model, ids, state, mask, lengths)
    return log_probs(logits, ban), state


def log_probs(logits: Tensor, ban: Sequence[int] = ()) -> Tensor:
    """log p of every token, −inf where banned."""
    log_p = logits.log_softmax(-1)
    require_finite(log_p[:, 0])  # one NaN or +inf makes its whole row NaN
    if len(ban):
        check_banned(ban, log_p.shape[1])
        log_p[:, list(ban)] = -torch.inf
    return log_p


def require_finite(numbers: Tensor) -> None:
    if numbers.isnan().any():
        raise ValueError(
            "the model's logits hold NaN or infinity: its weights have diverged or are damaged, load another checkpoint"
        )


def check_banned(ban: Sequence[int], vocabulary: int) -> None:
    if not all(0 <= token < vocabulary for token in ban):
        raise ValueError(
            f"banned tokens {tuple(ban)} reach outside the vocabulary of {vocabulary}: ban ids inside it"
        )


@torch.no_grad()
def top_log_probs(logits: Tensor, count: int, ban: Sequence[int] = ()) -> TopK:
    """log p of the best tokens that are not banned, as `whole` has it, in one pass: (B, count or V), best first."""
    check_banned(ban, logits.shape[1])
    found = topk_log_probs(logits, count, ban)
    require_finite(found.logsumexp - found.logsumexp)  # infinity too
    return found
