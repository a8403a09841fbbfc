"""What a model must offer to be decoded, and the functions that call it.

Left out: `model.eval()`, which is the caller's task, because a loop that streams must not change a model that others
may use meanwhile. The number of positions that a given state already holds is not known here: `context` is checked
against the prompt alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from seqloom.decoding.workers import check_cancelled
from seqloom.errors import UserError
from seqloom.fused.topk import TopK, topk_log_probs

State = Any


class AutoregressiveModel(Protocol):
    """Ids in, features and state out; logits from features. `context` is the largest number of positions, None = any."""

    @property
    def context(self) -> int | None: ...

    def features(self, ids: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State]: ...

    def output(self, h: Tensor) -> Tensor: ...


class GenerativeModel(AutoregressiveModel, Protocol):
    """A model that turns a prompt into the start of a generation.

    `generates` is True for a model that can do so. `continues` is True if the generated text continues the prompt, False
    if it answers it, as a translation does.
    """

    @property
    def generates(self) -> bool: ...

    @property
    def continues(self) -> bool: ...

    def memory_mask(self, source: Tensor, mask: Tensor | None) -> Tensor | None:
        """Which of the encoder's outputs are real, (B, S)."""
        ...

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first_id: int
    ) -> tuple[Tensor, State, Tensor | None]:
        """The ids to feed first, the state before them, and their mask; `first_id` is the id of <bos>."""
        ...


@runtime_checkable
class AttendingModel(Protocol):
    """A model that can return the attention weights over its source."""

    def features_with_attention(
        self, ids: Tensor, state: State, mask: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, State]:
        """Features, weights over the source (B, heads, T, S) or None, and the state."""
        ...


class Prompt(NamedTuple):
    """Checked prompts, trimmed to the longest."""

    ids: Tensor  # (B, T)
    mask: Tensor | None  # (B, T); None if no row is padded
    lengths: Tensor  # (B,)
    limits: Tensor  # (B,) how many new tokens fit


def check_prompts(model: AutoregressiveModel, ids: Tensor, mask: Tensor | None, max_tokens: int) -> Prompt:
    """Checks the prompts before any work. `max_tokens` is clipped row by row to the model's context, so that the
    result of a row does not depend on its batch."""
    if ids.dim() != 2 or ids.dtype != torch.int64:
        raise UserError(
            f"prompt ids are {ids.dtype} of shape {tuple(ids.shape)}: give int64 ids of shape (batch, time)"
        )
    if max_tokens < 1:
        raise UserError(f"max_tokens is {max_tokens}: give at least 1")
    if mask is not None and (mask.shape != ids.shape or mask.dtype != torch.bool):
        raise UserError(
            f"the mask is {mask.dtype} of shape {tuple(mask.shape)}: give bool of the ids' shape {tuple(ids.shape)}"
        )
    if mask is None:
        lengths = torch.full((len(ids),), ids.shape[1], device=ids.device)
    else:
        lengths = mask.sum(1)
        if (mask[:, 1:] & ~mask[:, :-1]).any():
            raise UserError("a prompt has padding before its last token: pad prompts on the right")
    if (lengths == 0).any():
        raise UserError(f"prompt {int((lengths == 0).nonzero()[0])} is empty: begin it with <bos>")
    max_length = int(lengths.max()) if len(ids) else 0
    limits = torch.full_like(lengths, max_tokens)
    if model.context is not None:
        if max_length > model.context:
            row = int(lengths.argmax())
            raise UserError(
                f"prompt {row} has {max_length} tokens but the model takes {model.context} at most: shorten the prompt"
            )
        # The last new token is not fed back, hence + 1.
        limits = limits.minimum(model.context - lengths + 1)
    if mask is not None:
        mask = mask[:, :max_length] if (lengths < max_length).any() else None
    return Prompt(ids[:, :max_length], mask, lengths, limits)


@torch.inference_mode()
def next_logits(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, State]:
    """The logits (B, V) of the next token, float16 and bfloat16 cast to float32, and the state after `ids`.

    Only the last real position goes through the output layer. Raises `Cancelled` in a cancelled worker.
    """
    check_cancelled()
    h, state = model.features(ids, state, mask)
    last = h[:, -1] if lengths is None else h[torch.arange(len(h), device=h.device), lengths - 1]  # (B, D)
    logits = model.output(last[:, None])[:, 0]  # (B, V)
    return to_float32(logits), state


def to_float32(logits: Tensor) -> Tensor:
    """Casts float16 and bfloat16 to float32."""
    return logits.float() if logits.dtype in (torch.float16, torch.bfloat16) else logits


@torch.inference_mode()
def next_log_probs(
    model: AutoregressiveModel,
    ids: Tensor,
    state: State = None,
    mask: Tensor | None = None,
    lengths: Tensor | None = None,
    banned: Sequence[int] = (),
) -> tuple[Tensor, State]:
    """log p(next token | everything before) as (B, V), −inf for banned tokens, and the state after `ids`.

    The probability of banned tokens is not given to the others: the rest are the probabilities that teacher forcing
    would measure.
    """
    logits, state = next_logits(model, ids, state, mask, lengths)
    return log_probs(logits, banned), state


def log_probs(logits: Tensor, banned: Sequence[int] = ()) -> Tensor:
    """log p of every token, −inf for banned tokens."""
    log_p = logits.log_softmax(-1)
    require_finite(log_p[:, 0])  # one NaN or +inf makes its entire row NaN
    if len(banned):
        check_banned(banned, log_p.shape[1])
        log_p[:, list(banned)] = -torch.inf
    return log_p


def require_finite(values: Tensor) -> None:
    """Raises if a value is NaN."""
    if values.isnan().any():
        raise UserError(
            "the model's logits contain NaN or infinity: its weights have diverged or are damaged, load another checkpoint"
        )


def check_banned(banned: Sequence[int], vocabulary: int) -> None:
    """Raises if a banned id is not in the vocabulary."""
    if not all(0 <= token < vocabulary for token in banned):
        raise UserError(
            f"banned tokens {tuple(banned)} are outside the vocabulary of {vocabulary}: ban ids inside it"
        )


@torch.no_grad()
def top_log_probs(logits: Tensor, count: int, banned: Sequence[int] = ()) -> TopK:
    """log p of the `count` most probable tokens that are not banned, as `log_probs` computes it, in one pass: (B, count
    or V), most probable first."""
    check_banned(banned, logits.shape[1])
    top = topk_log_probs(logits, count, banned)
    require_finite(top.logsumexp - top.logsumexp)  # NaN for infinity too
    return top
