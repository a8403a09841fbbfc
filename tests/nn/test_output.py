"""The adaptive output against torch's own on the same weights, and the one method that all outputs answer an objective with."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch import Tensor, nn

from seqloom.models import LanguageModel
from seqloom.nn import RNN, AdaptiveSoftmax, Embedding, Output
from seqloom.objectives.likelihood import token_loss

SIZE, WORDS = 16, 40
CUTS = [(5,), (5, 20), (4, 9, 30)]


def made(cutoffs: tuple[int, ...], tied: bool) -> AdaptiveSoftmax:
    torch.manual_seed(5)
    part = AdaptiveSoftmax(SIZE, WORDS, Embedding(WORDS, SIZE) if tied else None, cutoffs, shrink=2.0)
    for weight in part.parameters():
        nn.init.normal_(weight)
    return part


def torchs(part: AdaptiveSoftmax) -> nn.AdaptiveLogSoftmaxWithLoss:
    """torch's own, with the same weights; a tied one has identities where torch has projections."""
    tied = part.table is not None
    twin = nn.AdaptiveLogSoftmaxWithLoss(SIZE, WORDS, list(part.cutoffs), div_value=1.0 if tied else 2.0)
    with torch.no_grad():
        twin.head.weight.copy_(
            torch.cat([part.table[: part.cluster_sizes[0]] if tied else part.common, part.groups])
        )
        for number, tail in enumerate(twin.tail):
            first, last = [*part.cutoffs, WORDS][number : number + 2]
            tail[0].weight.copy_(torch.eye(SIZE) if tied else part.tails[number][0].weight)
            tail[1].weight.copy_(part.table[first:last] if tied else part.tails[number][1].weight)
    return twin


@pytest.mark.parametrize("cutoffs", CUTS, ids=str)
@pytest.mark.parametrize("tied", [False, True], ids=["own", "tied"])
def test_equals_torchs_own(cutoffs: tuple[int, ...], tied: bool):
    part, h = made(cutoffs, tied), torch.randn(50, SIZE).requires_grad_()
    twin, targets = torchs(part), torch.randint(WORDS, (50,))
    torch.testing.assert_close(part(h), twin.log_prob(h))
    nats, (minus, loss) = part.nll(h, targets), twin(h, targets)
    torch.testing.assert_close(nats, -minus)
    torch.testing.assert_close(torch.autograd.grad(nats.mean(), h), torch.autograd.grad(loss, h))


@pytest.mark.parametrize("tied", [False, True], ids=["own", "tied"])
def test_nats_are_those_of_the_whole_distribution_and_so_are_their_gradients(tied: bool):
    part, h, targets = made((5, 20), tied), torch.randn(3, 7, SIZE), torch.randint(WORDS, (3, 7))
    log_p = part(h)
    torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(3, 7))
    whole, few = -log_p.gather(2, targets[..., None])[..., 0], part.nll(h, targets)
    torch.testing.assert_close(few, whole)
    for a, b in zip(
        *(torch.autograd.grad(one.sum(), list(part.parameters())) for one in (few, whole)), strict=True
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("targets", [[0, 1, 2], [4, 5], [19, 20], [39]], ids=str)
def test_the_edges_of_groups_and_groups_without_a_word(targets: list[int]):
    part, targets = made((5, 20), False), torch.tensor(targets)
    h = torch.randn(len(targets), SIZE)
    nats = part.nll(h, targets)
    torch.testing.assert_close(nats, -part(h).gather(1, targets[:, None])[:, 0])
    gradients = torch.autograd.grad(nats.sum(), list(part.parameters()), allow_unused=True)
    assert all(
        gradient is not None for gradient in gradients
    )  # several processes must agree on which there are


def test_default_cutoffs_and_sizes():
    part = AdaptiveSoftmax(650, 33_000)
    assert (
        part.cutoffs == (2062, 8250)
        and part.cluster_sizes == [2062, 6188, 24_750]
        and [tail[0].out_features for tail in part.tails] == [162, 40]
    )
    assert AdaptiveSoftmax(4, 3).cluster_sizes == [1, 1, 1]


@pytest.mark.parametrize(
    "options, said",
    [
        ({"cutoffs": ()}, "cutoffs"),
        ({"cutoffs": (0, 4)}, "cutoffs"),
        ({"cutoffs": (4, 4)}, "cutoffs"),
        ({"cutoffs": (WORDS,)}, "cutoffs"),
        ({"shrink": 0.5}, "shrink"),
        ({"tied": Embedding(WORDS, 3)}, "tied"),
    ],
    ids=str,
)
def test_what_does_not_fit(options: dict, said: str):
    with pytest.raises(ValueError, match=said):
        AdaptiveSoftmax(SIZE, WORDS, **options)


# What an objective asks of any output


def literal(part: nn.Module, h: Tensor, targets: Tensor, smoothing: float) -> tuple[float, float]:
    loss = nats = 0.0
    for row, target in zip(h.reshape(-1, h.shape[-1]), targets.reshape(-1), strict=True):
        log_p = part(row).log_softmax(-1)
        nats -= log_p[target].item()
        loss += (1 - smoothing) * -log_p[target].item() + smoothing * -sum(log_p.tolist()) / len(log_p)
    return loss, nats


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("training", [True, False])
def test_cross_entropy_does_not_ask_which_output_it_is(smoothing: float, training: bool):
    ids = torch.randint(WORDS, (3, 6))
    mask = torch.arange(6) < torch.tensor([[6], [3], [0]])
    for output in (Output, partial(AdaptiveSoftmax, cutoffs=(5, 20))):
        model = LanguageModel(WORDS, 4, partial(RNN, dim=4), output=output).train(training)
        h, _ = model.features(ids)
        if smoothing and training and output is not Output:
            with pytest.raises(ValueError, match=r"objective\.smoothing=0"):
                token_loss(model, h, ids, mask, smoothing)
            continue
        loss, numbers = token_loss(model, h, ids, mask, smoothing)
        expected, nats = literal(model.output, h[mask], ids[mask], smoothing if training else 0.0)
        assert loss.item() == pytest.approx(expected) and numbers["nats"] == pytest.approx(nats)


def test_half_precision_is_summed_in_single():
    part = Output(4, 7).to(torch.bfloat16)
    assert part.nll(torch.randn(2, 4, dtype=torch.bfloat16), torch.tensor([1, 2])).dtype == torch.float32
