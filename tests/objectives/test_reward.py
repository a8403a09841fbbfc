"""Reward: GLEU equals its definition, and the gradient is that of the expected reward, computed by enumeration."""

import itertools
from functools import partial

import pytest
import torch

from seqloom.batches import PairBatch
from seqloom.measure.gleu import gleu
from seqloom.models import Seq2Seq
from seqloom.nn import RNN, AttentiveRNN
from seqloom.objectives import mixed_reward, translation

EOS = 3


def test_gleu_by_hand() -> None:
    """the cat sat / the cat is: 1-grams 2 of 3, 2-grams 1 of 2, 3-grams 0 of 1: 3 of 6 both ways."""
    assert gleu(["the", "cat", "sat"], ["the", "cat", "is"]) == pytest.approx(3 / 6)
    assert gleu(["the", "cat"], ["the", "cat", "is"]) == pytest.approx(3 / 6)  # precision 3/3, recall 3/6
    assert gleu([1, 1, 1], [1]) == pytest.approx(1 / 6)  # a repeated word matches once
    assert gleu([1, 2, 3, 4, 5], [1, 2, 3, 4, 5]) == 1 and gleu([], [1]) == 0 and gleu([], []) == 1


@pytest.fixture
def model() -> Seq2Seq:
    torch.manual_seed(0)
    made = Seq2Seq(5, 5, 6, partial(RNN, direction="both", dim=3), partial(AttentiveRNN, dim=6)).double()
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape) * 0.6)
    return made


def one_pair() -> PairBatch:
    source, ids, targets = torch.tensor([[4, 1, 4]]), torch.tensor([[2, 4]]), torch.tensor([[4, EOS]])
    return PairBatch(
        source,
        torch.ones_like(source, dtype=torch.bool),
        ids,
        targets,
        torch.ones_like(ids, dtype=torch.bool),
    )


def expected_reward(model: Seq2Seq, pair: PairBatch, longest: int) -> torch.Tensor:
    """Σ_y P(y) r(y) over every text that ends or is `longest` tokens long."""
    others = [token for token in range(5) if token != EOS]
    texts = [(*body, EOS) for n in range(longest) for body in itertools.product(others, repeat=n)]
    texts += list(itertools.product(others, repeat=longest))
    total, mass = torch.zeros((), dtype=torch.float64), 0.0
    for length in {len(text) for text in texts}:
        group = torch.tensor([text for text in texts if len(text) == length])
        ids = torch.cat([torch.full((len(group), 1), 2), group[:, :-1]], 1)
        many = pair.source.expand(len(group), -1)
        logits, _ = model(ids, model.start(many))
        p = logits.log_softmax(-1).gather(2, group[..., None]).sum((1, 2)).exp()
        total = total + (p * torch.tensor([gleu(text, [4, EOS]) for text in group.tolist()])).sum()
        mass += p.sum().item()
    assert mass == pytest.approx(1)
    return total


def test_the_gradient_is_that_of_the_expected_reward(model: Seq2Seq) -> None:
    pair, weights = one_pair(), list(model.parameters())
    exact = torch.autograd.grad(2 * expected_reward(model, pair, 7), weights)  # the target has two tokens
    torch.manual_seed(1)
    loss, numbers, _ = mixed_reward(model.train(), pair, weight=0.0, samples=3000)
    drawn = torch.autograd.grad(-loss, weights)
    a, b = (torch.cat([g.flatten() for g in side]) for side in (exact, drawn))
    assert torch.dot(a, b) / (a.norm() * b.norm()) > 0.97 and 0.9 < b.norm() / a.norm() < 1.1
    assert numbers["reward"] / pair.num_targets == pytest.approx(
        float(expected_reward(model, pair, 7)), abs=0.02
    )


def test_without_samples_or_training_it_is_the_likelihood(model: Seq2Seq) -> None:
    pair = one_pair()
    assert mixed_reward(model.eval(), pair)[:2] == translation(model.eval(), pair, smoothing=0.0)[:2]
    likelihood = translation(model.train(), pair, smoothing=0.0)[0]
    torch.manual_seed(3)
    one = mixed_reward(model.train(), pair, weight=0.5, samples=4)[0]
    torch.manual_seed(3)
    two = mixed_reward(model.train(), pair, weight=0.0, samples=4)[0]
    assert (one - two).item() == pytest.approx(0.5 * likelihood.item(), rel=1e-5) and model.training
