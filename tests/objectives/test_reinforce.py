"""Hard attention: the gradient of REINFORCE against that of the expected loss, summed over all ways to look."""

from __future__ import annotations

import itertools
from functools import partial

import pytest
import torch
from torch import Tensor, nn

from seqloom.batches.batch import SourceBatch
from seqloom.errors import ConfigError
from seqloom.models import Captioner
from seqloom.nn import (
    Additive,
    ConvStem,
    CrossAttention,
    GatedAttention,
    Hard,
    Memory,
    PictureEncoder,
    RegionRNN,
    Transformer,
)
from seqloom.nn.layer import collect_choices
from seqloom.objectives.likelihood import token_losses, translation

REGIONS, ROWS, WORDS = 4, 2, 2


def captioner(entropy: float = 0.0) -> Captioner:
    torch.manual_seed(0)
    attention = partial(
        GatedAttention, score=Additive, dim=3, weights=partial(Hard, entropy=entropy), project=True
    )
    made = Captioner(
        (4, 4, 3),
        7,
        4,
        partial(PictureEncoder, stem=partial(ConvStem, dims=[4])),
        partial(RegionRNN, dim=4, attention=attention),
    )
    with torch.no_grad():
        for weight in made.parameters():
            weight.copy_(torch.randn(weight.shape))
    return made.double().train()


def batch() -> SourceBatch:
    torch.manual_seed(1)
    pixels = torch.randint(0, 256, (ROWS, 4, 4, 3), dtype=torch.uint8)
    ids = torch.tensor([[1, 5], [1, 6]])
    targets = torch.tensor([[5, 3], [6, 2]])
    mask = torch.tensor([[True, True], [True, False]])
    return SourceBatch(pixels, None, ids, targets, mask)


def gradient(loss: Tensor, model: nn.Module) -> Tensor:
    found = torch.autograd.grad(loss, list(model.parameters()), allow_unused=True)
    pairs = zip(model.parameters(), found, strict=True)
    return torch.cat([(torch.zeros_like(w) if g is None else g).flatten() for w, g in pairs])


def test_the_expected_gradient_of_reinforce_is_that_of_the_expected_loss(monkeypatch: pytest.MonkeyPatch):
    model, data = captioner(), batch()
    exact, estimated, total = torch.zeros(()), torch.zeros(()), 0.0
    for path in itertools.product(range(REGIONS), repeat=ROWS * WORDS):
        draws = iter(torch.tensor(path).view(WORDS, ROWS, 1))
        monkeypatch.setattr(torch, "multinomial", lambda chances, count, draws=draws: next(draws))
        with collect_choices() as choices:
            h, _ = model.features(data.ids, model.start(data.source), data.mask)
        chance = torch.cat([choice.log_probs[:, 0] for choice in choices], 1).sum().exp()
        costs, _ = token_losses(model, h, data.targets, data.mask, 0.1)
        exact = exact + gradient(chance * costs.sum(), model)
        draws = iter(torch.tensor(path).view(WORDS, ROWS, 1))
        monkeypatch.setattr(torch, "multinomial", lambda chances, count, draws=draws: next(draws))
        estimated = estimated + chance.detach() * gradient(translation(model, data, smoothing=0.1)[0], model)
        total += float(chance.detach())
    assert total == pytest.approx(1)
    assert float(exact.norm()) > 0.01
    torch.testing.assert_close(estimated, exact, rtol=1e-9, atol=1e-11)


def test_the_mean_of_many_draws_is_the_exact_gradient_of_one_step():
    torch.manual_seed(3)
    part, scores = Hard(0.0).double(), torch.randn(1, 1, 1, 3, dtype=torch.double, requires_grad=True)
    costs = torch.tensor([1.0, 4.0, 2.0], dtype=torch.double)
    exact = torch.autograd.grad((scores.softmax(-1) * costs).sum(), scores)[0]
    many = scores.expand(40_000, 1, 1, 3)
    with collect_choices() as choices:
        picked = part.train()(many, None)
    torch.testing.assert_close(picked.mean(0)[0, 0], scores.detach().softmax(-1)[0, 0, 0], rtol=0, atol=0.01)
    reward = picked[:, 0, 0] @ costs
    estimate = torch.autograd.grad((reward * choices[0].log_probs[:, 0, 0]).mean(), scores)[0]
    torch.testing.assert_close(estimate, exact, rtol=0, atol=0.03)


def test_in_evaluation_the_most_probable_region_is_looked_at_and_hidden_ones_never():
    part, scores = Hard().eval(), torch.tensor([[[[0.1, 2.0, 5.0]]]])
    visible = torch.tensor([[[[True, True, False]]]])
    assert part(scores, visible).tolist() == [[[[0.0, 1.0, 0.0]]]]
    assert part(scores, torch.zeros_like(visible)).tolist() == [[[[0.0, 0.0, 0.0]]]]
    assert part.train()(scores.expand(50, 1, 1, 3), visible)[..., 2].sum() == 0


def test_entropy_is_rewarded():
    model, data = captioner(0.5), batch()
    with collect_choices() as choices:
        model.features(data.ids, model.start(data.source), data.mask)
    entropies = [choice.bonus for choice in choices]
    assert all(bool((value > 0).all()) for value in entropies) and len(entropies) == WORDS


def test_layers_that_draw_several_times_for_a_word_are_refused():
    with pytest.raises(ConfigError, match="attends once"):
        decoder = partial(Transformer, layers=2, heads=1, cross=partial(CrossAttention, weights=Hard))
        model = Captioner((4, 4, 3), 7, 4, partial(PictureEncoder, stem=partial(ConvStem, dims=[4])), decoder)
        translation(model.train(), batch())


def test_memory_without_choices_is_unchanged():
    part = RegionRNN(4, 3, dim=5, attention=partial(GatedAttention, weights=Hard)).eval()
    x, memory = torch.randn(2, 3, 4), Memory(torch.randn(2, 6, 3), None)
    assert torch.equal(part(x, part.start(2, memory))[0], part(x, part.start(2, memory))[0])
