"""The CTC objective against the enumeration of alignments, and its gradient by differences."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from seqloom.batches.batch import SourceBatch
from seqloom.models.recognizer import JointRecognizer, Recognizer
from seqloom.nn import RNN, AttentiveRNN, SoundEncoder, StackFrames
from seqloom.objectives import ctc, ctc_attention


class FixedFrames:
    """A model whose distributions are given."""

    training = True

    def __init__(self, logits: Tensor, mask: Tensor):
        self.logits = logits
        self.mask = mask

    def frame_log_probs(self, source: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        return self.logits.log_softmax(-1), self.mask


def make_batch(targets: list[list[int]], counted: bool = True) -> SourceBatch:
    width = max(map(len, targets)) + 1
    ids = torch.tensor([[*row, 3, *[0] * (width - len(row) - 1)] for row in targets])
    return SourceBatch(torch.zeros(len(ids), 4, 2), None, ids, ids, (ids > 0) & counted)


def enumerated_nll(log_probs: Tensor, text: tuple[int, ...]) -> Tensor:
    scores = [
        sum(log_probs[t, token] for t, token in enumerate(alignment))
        for alignment in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs))
        if tuple(token for token, _ in itertools.groupby(alignment) if token) == text
    ]
    return -torch.stack(scores).logsumexp(0)


def test_the_loss_is_the_sum_over_all_alignments() -> None:
    torch.manual_seed(0)
    logits = torch.randn(3, 5, 6)
    lengths = [5, 3, 4]
    mask = torch.arange(5) < torch.tensor(lengths)[:, None]
    texts = [[4, 5], [4], [5, 5]]
    loss, numbers, _ = ctc(FixedFrames(logits, mask), make_batch(texts))
    expected = sum(
        enumerated_nll(row[:length].log_softmax(-1), tuple(text))
        for row, length, text in zip(logits, lengths, texts, strict=True)
    )
    assert torch.allclose(loss, expected, atol=1e-4)
    assert abs(numbers["nats"] - float(expected)) < 1e-3


def test_a_text_without_an_alignment_and_an_uncounted_batch_give_0() -> None:
    logits = torch.randn(1, 2, 6, requires_grad=True)
    mask = torch.ones(1, 2, dtype=torch.bool)
    assert ctc(FixedFrames(logits, mask), make_batch([[4, 4]]))[0].item() == 0.0
    loss, _, _ = ctc(FixedFrames(logits, mask), make_batch([[4]], counted=False))
    assert loss.item() == 0.0
    loss.backward()
    assert logits.grad is not None and not logits.grad.any()


def sound_encoder(shape: tuple[int, ...]) -> SoundEncoder:
    return SoundEncoder(shape, lambda size: RNN(size, 6, direction="both"), lambda size: StackFrames(size, 2))


def test_padding_changes_no_loss() -> None:
    torch.manual_seed(0)
    model = Recognizer((3,), 8, sound_encoder).eval()
    frames = torch.randn(1, 7, 3)
    batch = make_batch([[4, 6]])._replace(source=frames, source_mask=torch.ones(1, 7, dtype=torch.bool))
    padded = batch._replace(
        source=torch.cat([frames, torch.randn(1, 4, 3)], 1), source_mask=torch.arange(11)[None] < 7
    )
    assert torch.allclose(ctc(model, batch)[0], ctc(model, padded)[0], atol=1e-5)


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_both_losses_are_weighted(weight: float) -> None:
    torch.manual_seed(0)
    model = JointRecognizer(
        (3,), 8, 6, sound_encoder, lambda size, memory: AttentiveRNN(size, memory=memory, dim=6)
    )
    batch = make_batch([[4, 6], [5]])
    batch = batch._replace(source=torch.randn(2, 8, 3), source_mask=torch.ones(2, 8, dtype=torch.bool))
    loss, numbers, _ = ctc_attention(model, batch, weight=weight, smoothing=0.0)
    assert float(loss.detach()) == pytest.approx(
        (1 - weight) * numbers["nats"] + weight * numbers["ctc_nats"], rel=1e-5
    )
    model.eval()
    assert float(ctc_attention(model, batch)[0].detach()) == pytest.approx(numbers["nats"], rel=1e-5)
    assert float(ctc(model, batch)[0].detach()) == pytest.approx(numbers["ctc_nats"], rel=1e-5)
