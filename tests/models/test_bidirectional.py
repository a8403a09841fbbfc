"""ELMo's model: two language models that never meet, and their layers as one vector  [I10]."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from seqloom.batches.batch import TokenBatch
from seqloom.models import BiLanguageModel, LanguageModel
from seqloom.nn import RNN, SeparateBiRNN
from seqloom.objectives import bidirectional, next_token

V, D, B, T = 11, 6, 3, 7


@pytest.fixture
def model() -> BiLanguageModel:
    torch.manual_seed(0)
    return BiLanguageModel(V, D, partial(SeparateBiRNN, layers=2)).eval()


def single(model: BiLanguageModel, way: str) -> LanguageModel:
    """A plain language model with the weights of one direction, which it reads left to right."""
    other = LanguageModel(V, D, partial(RNN, layers=2)).eval()
    own = dict(model.named_parameters())
    with torch.no_grad():
        other.embedding.table.copy_(own["embedding.table"])
        for layer in range(2):
            for name, weight in other.stack.layers[layer][0].cell.named_parameters():
                weight.copy_(own[f"stack.{way}.{layer}.layers.0.0.cell.{name}"])
    return other


def test_the_loss_is_that_of_two_language_models(model: BiLanguageModel) -> None:
    """One reads the text, the other reads it backwards; the loss is their mean. Without residual paths, which a plain stack has for all layers."""
    torch.manual_seed(0)
    model = BiLanguageModel(V, D, partial(SeparateBiRNN, layers=2, residual=False)).eval()
    text = torch.randint(V, (B, T + 1))
    mask = torch.ones(B, T, dtype=torch.bool)
    loss, numbers, _ = bidirectional(model, TokenBatch(text[:, :-1], text[:, 1:], mask))
    ahead, _, _ = next_token(single(model, "forward_layers"), TokenBatch(text[:, :-1], text[:, 1:], mask))
    turned = text.flip(1)
    back, _, _ = next_token(single(model, "backward_layers"), TokenBatch(turned[:, :-1], turned[:, 1:], mask))
    assert loss.item() == pytest.approx((ahead + back).item() / 2, rel=1e-5)
    assert numbers["nats"] == pytest.approx(loss.item(), rel=1e-6)


def test_no_direction_sees_what_it_must_say(model: BiLanguageModel) -> None:
    """Changing a token changes what is said of it by neither direction; and of nothing on the side that a direction has not read."""
    text = torch.randint(V, (1, T))
    changed = text.clone()
    changed[0, 3] = (text[0, 3] + 1) % V
    ahead, back = (
        (f(changed) != f(text)).any(-1)[0]
        for f in (lambda ids: model.features(ids)[0], model.backward_features)
    )
    assert ahead.tolist() == [False] * 3 + [True] * 4 and back.tolist() == [True] * 4 + [False] * 3


def test_the_mixture_waits_for_its_reader(model: BiLanguageModel) -> None:
    assert not any(p.requires_grad for p in model.stack.mix.parameters())
    vectors = model.vectors(torch.randint(V, (B, T)))
    assert vectors.shape == (B, T, 2 * D)
    text = torch.randint(V, (B, T + 1))
    bidirectional(model, TokenBatch(text[:, :-1], text[:, 1:], torch.ones(B, T, dtype=torch.bool)))[
        0
    ].backward()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []
