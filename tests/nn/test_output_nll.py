"""-ln P in one pass, against torch's own loss with label smoothing."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from seqloom.fused.dispatch import plain
from seqloom.nn.embedding import cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize(("kind", "close"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
@pytest.mark.parametrize("way", ["fast", "plain"])
def test_it_is_torchs_loss_with_its_gradient(smoothing: float, kind: torch.dtype, close: float, way: str):
    torch.manual_seed(0)
    logits, targets = (5 * torch.randn(2, 9, 37, dtype=kind)).requires_grad_(), torch.randint(37, (2, 9))
    weight = torch.randn(2, 9, dtype=kind)
    losses, nats = (
        cross_entropy(logits, targets, smoothing) if way == "fast" else plainly(logits, targets, smoothing)
    )
    wanted = F.cross_entropy(
        logits.flatten(0, 1), targets.flatten(), reduction="none", label_smoothing=smoothing
    ).view(2, 9)
    torch.testing.assert_close(losses, wanted, rtol=close, atol=close)
    torch.testing.assert_close(
        nats,
        F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="none").view(2, 9),
        rtol=close,
        atol=close,
    )
    ours, theirs = (torch.autograd.grad((found * weight).sum(), logits)[0] for found in (losses, wanted))
    torch.testing.assert_close(ours, theirs, rtol=close, atol=close)


def plainly(logits, targets, smoothing):
    with plain():
        return cross_entropy(logits, targets, smoothing)


def test_the_gradient_can_be_asked_for_twice():
    logits, targets = torch.randn(3, 5).requires_grad_(), torch.tensor([0, 4, 2])
    loss = cross_entropy(logits, targets, 0.1)[0].sum()
    first = torch.autograd.grad(loss, logits, retain_graph=True)[0]
    torch.testing.assert_close(first, torch.autograd.grad(loss, logits)[0], rtol=0, atol=0)


@pytest.mark.parametrize("big", [80.0, 1e4, -1e4])
def test_large_logits_and_impossible_words(big: float):
    logits = torch.tensor([[big, 0.0, -big], [0.0, float("-inf"), 1.0]])
    losses, nats = cross_entropy(logits, torch.tensor([1, 2]))
    wanted = F.cross_entropy(logits, torch.tensor([1, 2]), reduction="none")
    torch.testing.assert_close(losses, wanted, rtol=1e-5, atol=1e-5)
    assert torch.equal(losses, nats)


def test_a_logit_that_is_no_number_is_seen():
    losses, _ = cross_entropy(
        torch.tensor([[0.0, float("nan"), 1.0], [0.0, 1.0, 2.0]]), torch.tensor([0, 0]), 0.1
    )
    assert losses[0].isnan() and not losses[1].isnan()
