"""Refinement by reward: raise the expected score of the
model's own outputs, together with the likelihood  [L3]."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from seqloom.batches.batch import PairBatch
from seqloom.decoding import RandomSampler, generate_batch
from seqloom.measure.gleu import gleu
from seqloom.nn.layer import State, select
from seqloom.objectives.advantages import leave_one_out
from seqloom.objectives.likelihood import Result, TranslationModel, token_loss


class SamplingModel(TranslationModel, Protocol):
    """A translation model that can generate."""

    context: int | None

    def prepare_prompt(
        self, ids: Tensor, mask: Tensor | None, first: int
    ) -> tuple[Tensor, State, Tensor | None]: ...

    def train(self) -> object: ...

    def eval(self) -> object: ...


def mixed_reward(
    model: SamplingModel,
    batch: PairBatch,
    state: State = None,
    weight: float = 0.25,
    samples: int = 4,
    temperature: float = 1.0,
) -> Result:
    """ℓ = weight · ℓ_ML - Σ_x |y*| E_y[r(y, y*)],   r = GLEU: GNMT's
    mixed objective, in which each sentence counts with its length

    By REINFORCE: with `samples` texts drawn for each sentence, ∇E[r] ≈ mean (r - r̄) ∇ ln P(y |
    x), where r̄ is the mean reward of the other samples. Evaluation uses the likelihood alone.
    """
    start = model.start(batch.source, batch.source_mask)
    h, _ = model.features(batch.ids, start, batch.mask)
    loss, numbers = token_loss(model, h, batch.targets, batch.mask, 0.0)
    if not model.training or samples < 2:
        return loss, numbers, None
    rows = torch.arange(len(batch.ids), device=batch.ids.device).repeat_interleave(samples)
    texts, scores = sample_texts(model, batch, rows, temperature)
    ids, targets, mask = pad_decoder_batch(texts, batch.ids)
    h, _ = model.features(ids, select(start, rows), mask)
    log_probs = -model.output.nll(h, targets)  # (B · samples, T)
    text_log_probs = (log_probs * mask).sum(1).view(-1, samples)
    rewards = torch.tensor(scores, device=ids.device).view(-1, samples)
    lengths = batch.mask.sum(1, keepdim=True)
    # A surrogate: its gradient estimates the gradient of the expected reward.
    surrogate = (leave_one_out(rewards) * text_log_probs / samples * lengths).sum()
    return weight * loss - surrogate, {**numbers, "reward": float(rewards.mean()) * batch.num_targets}, None


@torch.no_grad()
def sample_texts(
    model: SamplingModel, batch: PairBatch, rows: Tensor, temperature: float
) -> tuple[list[list[int]], list[float]]:
    """Samples a text for each of the rows, with its <eos>, and
    returns it with its reward against the row's target."""
    model.eval()
    first, start, _ = model.prepare_prompt(batch.source[rows], batch.source_mask[rows], int(batch.ids[0, 0]))
    # The seed comes from the run's own generator, so that a resumed run samples the same texts.
    seed = int(torch.randint(2**62, ()))
    max_tokens = int(batch.mask.sum(1).max()) * 3 // 2 + 4
    eos = int(batch.targets[0, batch.mask[0].sum() - 1])  # every target ends with <eos>
    sequences = generate_batch(
        model,
        first,
        start,
        sampler=RandomSampler(temperature),
        max_tokens=max_tokens,
        stop_ids=(eos,),
        banned=(),
        seed=seed,
    )
    model.train()
    references = [target[mask].tolist() for target, mask in zip(batch.targets, batch.mask, strict=True)]
    texts = [sequence.ids + [eos] * sequence.finished for sequence in sequences]
    rewards = [gleu(text, references[row]) for text, row in zip(texts, rows.tolist(), strict=True)]
    return texts, rewards


def pad_decoder_batch(texts: list[list[int]], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the decoder's inputs, targets and mask for the texts,
    padded on the right; inputs begin as those of `like`."""
    max_length = max(len(text) for text in texts)
    lengths = torch.tensor([[len(text)] for text in texts], device=like.device)
    targets = torch.tensor([text + [0] * (max_length - len(text)) for text in texts], device=like.device)
    mask = torch.arange(max_length, device=like.device) < lengths
    ids = torch.cat([like[:1, :1].expand(len(texts), 1), targets[:, :-1]], 1)
    return ids, targets, mask
