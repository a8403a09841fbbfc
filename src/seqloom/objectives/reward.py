"""Refinement by reward: raise the expected score of what the model itself would write, beside the likelihood  [L3]."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from seqloom.batches.batch import PairBatch
from seqloom.decoding import RandomSampler, generate_batch
from seqloom.measure.gleu import gleu
from seqloom.nn.state import State, select
from seqloom.objectives.likelihood import Result, token_loss


def mixed(
    model: nn.Module,
    batch: PairBatch,
    state: State = None,
    weight: float = 0.25,
    samples: int = 4,
    temperature: float = 1.0,
) -> Result:
    """ℓ = weight · ℓ_ML - Σ_x |y*| E_y[r(y, y*)],   r = GLEU: GNMT's mixed objective, in which each sentence counts with its length

    By REINFORCE: of `samples` texts drawn for each sentence, ∇E[r] ≈ mean (r - r̄) ∇ ln P(y | x), r̄ the mean of the others' rewards.
    Evaluation is the likelihood alone.
    """
    start = model.start(batch.source, batch.source_mask)
    h, _ = model.features(batch.ids, start, batch.mask)
    loss, numbers = token_loss(model, h, batch.targets, batch.mask, 0.0)
    if not model.training or samples < 2:
        return loss, numbers, None
    rows = torch.arange(len(batch.ids), device=batch.ids.device).repeat_interleave(samples)
    drawn, rewards = sample_texts(model, batch, rows, temperature)
    ids, targets, mask = pad_decoder_batch(drawn, batch.ids)
    h, _ = model.features(ids, select(start, rows), mask)
    log_p = -model.output.nats(h, targets)  # (B · samples, T)
    sums = (log_p * mask).sum(1).view(-1, samples)
    rewards = torch.tensor(rewards, device=ids.device).view(-1, samples)
    others = (rewards.sum(1, keepdim=True) - rewards) / (samples - 1)
    gain = ((rewards - others) * sums / samples * batch.mask.sum(1, keepdim=True)).sum()
    return weight * loss - gain, {**numbers, "reward": float(rewards.mean())}, None


@torch.no_grad()
def sample_texts(
    model: nn.Module, batch: PairBatch, rows: Tensor, temperature: float
) -> tuple[list[list[int]], list[float]]:
    """A text for each of the rows, its end included, and its reward against the row's own target."""
    model.eval()
    first, start, _ = model.prompt(batch.source[rows], batch.source_mask[rows], int(batch.ids[0, 0]))
    seed = int(torch.randint(2**62, ()))  # from the run's own generator, so that a resumed run draws the same
    length = int(batch.mask.sum(1).max()) * 3 // 2 + 4
    end = int(batch.targets[0, batch.mask[0].sum() - 1])  # every target ends
    texts = generate_batch(
        model, first, start, pick=RandomSampler(temperature), length=length, stop=(end,), ban=(), seed=seed
    )
    model.train()
    wanted = [target[real].tolist() for target, real in zip(batch.targets, batch.mask, strict=True)]
    drawn = [text.ids + [end] * text.finished for text in texts]
    return drawn, [gleu(text, wanted[row]) for text, row in zip(drawn, rows.tolist(), strict=True)]


def pad_decoder_batch(texts: list[list[int]], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Texts as a decoder reads and predicts them: inputs, targets and which are real, padded on the right."""
    longest = max(len(text) for text in texts)
    targets = torch.tensor([text + [0] * (longest - len(text)) for text in texts], device=like.device)
    mask = torch.arange(longest, device=like.device) < torch.tensor(
        [[len(text)] for text in texts], device=like.device
    )
    return torch.cat([like[:1, :1].expand(len(texts), 1), targets[:, :-1]], 1), targets, mask
