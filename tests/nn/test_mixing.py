"""Which features of which tokens each kind of mixing mixes, and which kinds refuse a new length."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import FFN, FeedForward, MixAll, Mixer, MixFeatures, MixTokens, Transformer

N, P = 3, 4


class Recorder(FFN):
    """Notes the shape of what it is made for and reads."""

    def __init__(self, size: int, shapes: list):
        super().__init__()
        self.size, self.shapes = size, shapes

    def forward(self, x, mask=None):
        self.shapes.append((self.size, *x.shape[1:]))
        return x


def test_x20():
    """Three tokens of p features: joined 3p × 1 (as a row here), stacked 3 × p, transposed p × 3. Nothing is lost on the way back."""
    shapes = []
    x = torch.randn(2, N, P)
    for make in (partial(MixAll, length=N), MixFeatures, partial(MixTokens, length=N)):
        y, _ = make(P, network=partial(Recorder, shapes=shapes))(x)
        assert torch.equal(y, x)
    assert shapes == [(3 * P, 1, 3 * P), (P, 3, P), (3, P, 3)]


def mixed(part) -> torch.Tensor:
    """Which inputs (token, feature) each output (token, feature) depends on."""
    x = torch.randn(1, N, P)
    return (
        torch.autograd.functional.jacobian(lambda v: part(v)[0], x)[0, :, :, 0].abs() > 1e-12
    )  # (N, P, N, P)


def test_c1_to_c3_each_mixes_its_own():
    """Everything; the features of one token; one feature over the tokens."""
    same_token = torch.eye(N, dtype=torch.bool)[:, None, :, None].expand(N, P, N, P)
    same_feature = torch.eye(P, dtype=torch.bool)[None, :, None, :].expand(N, P, N, P)
    assert mixed(MixAll(P, N)).all()
    assert torch.equal(mixed(MixFeatures(P)), same_token)
    assert torch.equal(mixed(MixTokens(P, N)), same_feature)


def test_c4_alternating_mixes_everything_with_fewer_weights():
    mixer, everything = Mixer(P, N, layers=1), MixAll(P, N)
    assert mixed(mixer).all()
    assert sum(w.numel() for w in mixer.parameters()) < sum(w.numel() for w in everything.parameters())


@pytest.mark.parametrize("make", [MixAll, MixTokens, Mixer])
def test_c5_what_mixes_over_tokens_refuses_a_longer_sentence(make):
    part = make(P, N)
    for length in range(N + 1):
        assert part(torch.randn(2, length, P))[0].shape == (2, length, P)
    with pytest.raises(
        ValueError,
        match=rf"{make.__name__} takes sentences of at most 3 tokens, and this one has 4: .*MixFeatures",
    ):
        part(torch.randn(2, 4, P))
    mask = torch.tensor([[True, False, True, True], [False, True, False, False]])
    assert part(torch.randn(2, 4, P), None, mask)[0].shape == (2, 4, P)  # padding is no token
    with pytest.raises(ValueError, match="this one has 4"):
        part(torch.randn(2, 5, P), None, torch.tensor([[True] * 4 + [False], [True] * 2 + [False] * 3]))


def test_c5_what_mixes_features_takes_any_length():
    part = MixFeatures(P)
    assert part.context is None and part.causal
    assert part(torch.randn(2, 50, P))[0].shape == (2, 50, P)


@pytest.mark.parametrize("make", [MixAll, MixTokens, Mixer])
def test_a_shorter_sentence_stands_as_if_zeros_followed(make):
    part, x = make(P, 5), torch.randn(2, 2, P)
    whole = torch.cat([x, torch.zeros(2, 3, P)], 1)
    torch.testing.assert_close(part(x)[0], part(whole)[0][:, :2])


def test_models_know_the_length():
    decoder = partial(Transformer, layers=1, heads=2)
    model = Seq2Seq(9, 9, P, partial(Mixer, length=7), decoder)
    assert model.source_context == 7
    with pytest.raises(ValueError, match="Mixer takes sentences of at most 7 tokens, and this one has 8"):
        model.start(torch.zeros(1, 8, dtype=torch.long))
    with pytest.raises(ValueError, match="a language model needs a causal stack"):
        LanguageModel(9, P, partial(Mixer, length=7))


@pytest.mark.parametrize("make", [MixAll, MixTokens, Mixer])
def test_mistakes_are_one_sentence(make):
    with pytest.raises(ValueError, match="a length of at least 1, not 0"):
        make(P, 0)
    with pytest.raises(ValueError, match="a Mixer needs at least one layer, not 0"):
        Mixer(P, N, layers=0)


def test_dropout_acts_in_training_alone():
    part = Mixer(P, N, layers=2, dropout=0.5, tokens=partial(FeedForward, dim=5))
    x = torch.randn(2, N, P)
    assert not torch.equal(part(x)[0], part(x)[0])
    part.eval()
    assert torch.equal(part(x)[0], part(x)[0])
