"""Connectionist temporal classification: the likelihood of a text over all its alignments with the frames."""

from __future__ import annotations

from typing import Protocol

import torch.nn.functional as F
from torch import Tensor

from seqloom.batches.batch import SourceBatch
from seqloom.nn.layer import State
from seqloom.objectives.likelihood import (
    Result,
    TranslationModel,
    add_aux_losses,
    collecting_aux_losses,
    token_loss,
)

BLANK = 0  # the id of <pad>, which no text contains


class FrameModel(Protocol):
    """A model that gives every frame a distribution over tokens and the blank."""

    training: bool

    def frame_log_probs(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]: ...


class JointModel(TranslationModel, Protocol):
    """A model with a CTC layer on its encoder, beside its decoder."""

    def start_with_log_probs(self, source: Tensor, mask: Tensor | None) -> tuple[State, Tensor, Tensor]: ...


def ctc_nll(log_probs: Tensor, frame_mask: Tensor, batch: SourceBatch) -> Tensor:
    """-ln Σ_a Π_t P(aₜ | x) over the alignments a of each text, which are its tokens, repeated or with blanks between them
    (Graves et al.): (B, T, V) → (B,). A text with more tokens than frames has no alignment and counts 0.
    """
    lengths = (batch.targets != BLANK).sum(1) - 1  # without <eos>
    nats = F.ctc_loss(
        log_probs.transpose(0, 1),
        batch.targets[:, : max(1, int(lengths.max()))],
        frame_mask.sum(1),
        lengths,
        BLANK,
        reduction="none",
        zero_infinity=True,
    )
    return nats * batch.mask.any(1)


def ctc(model: FrameModel, batch: SourceBatch, state: State = None) -> Result:
    """-ln P(y | x) = -ln Σ_a Π_t P(aₜ | x), summed over all alignments a of the text y   [L9, T9]"""
    with collecting_aux_losses(model) as losses:
        log_probs, frame_mask = model.frame_log_probs(batch.source, batch.source_mask)
    nats = ctc_nll(log_probs.float(), frame_mask, batch).sum()
    return *add_aux_losses(nats, {"nats": float(nats.detach())}, losses, batch), None


def ctc_attention(
    model: JointModel, batch: SourceBatch, state: State = None, weight: float = 0.3, smoothing: float = 0.1
) -> Result:
    """λ CTC + (1 - λ) Σₜ -ln P(yₜ | y₍<t₎, x), where λ is `weight` (Watanabe et al.)   [T9]

    The number `nats` is the decoder's, by which runs are compared.
    """
    if not 0 <= weight < 1:
        raise ValueError(f"objective.weight={weight}: the share of CTC is at least 0 and below 1")
    with collecting_aux_losses(model) as losses:
        start, log_probs, frame_mask = model.start_with_log_probs(batch.source, batch.source_mask)
        h, _ = model.features(batch.ids, start, batch.mask)
    loss, numbers = token_loss(model, h, batch.targets, batch.mask, smoothing)
    frames = ctc_nll(log_probs.float(), frame_mask, batch).sum()
    numbers["ctc_nats"] = float(frames.detach())
    loss = (1 - weight) * loss + weight * frames if model.training else loss
    return *add_aux_losses(loss, numbers, losses, batch), None
