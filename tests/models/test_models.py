"""Models: how they are put together, and the sentence each wrong assembly gets."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from seqloom import config_tree, nn
from seqloom.models import LanguageModel, Seq2Seq
from seqloom.nn import (
    RNN,
    ALiBi,
    AttentiveRNN,
    Concatenated,
    CrossAttention,
    Dropout,
    Embedding,
    Learned,
    Rotary,
    SelfAttention,
    Sinusoidal,
    Transformer,
)

small = partial(Transformer, layers=1, heads=2)
encoder = partial(Transformer, layers=1, heads=2, causal=False)

WRONG = {
    "size not divisible by heads": (
        lambda: LanguageModel(9, 6, partial(small, heads=4)),
        "size 6 cannot be divided into 4 heads",
    ),
    "no heads": (
        lambda: LanguageModel(9, 6, partial(small, heads=0)),
        "size 6 cannot be divided into 0 heads",
    ),
    "concatenated size not divisible": (
        lambda: LanguageModel(
            9, 6, partial(small, position=partial(Concatenated, width=3, encoding=Learned))
        ),
        "size 9 cannot be divided into 2 heads",
    ),
    "attention alone": (lambda: SelfAttention(5, 2), "size 5 cannot be divided into 2 heads"),
    "cross-attention alone": (lambda: CrossAttention(5, 3, 2), "size 5 cannot be divided into 2 heads"),
    "an encoder for a language model": (
        lambda: LanguageModel(9, 6, encoder),
        "a language model needs a causal stack",
    ),
    "both directions for a language model": (
        lambda: LanguageModel(9, 6, partial(RNN, direction="both")),
        "a language model needs a causal stack",
    ),
    "backward language model": (
        lambda: LanguageModel(9, 6, partial(RNN, direction="backward")),
        "a language model needs a causal stack",
    ),
    "decoder that looks ahead": (
        lambda: Seq2Seq(9, 9, 6, encoder, encoder),
        "a decoder needs a causal layer",
    ),
    "one table for two vocabularies": (
        lambda: Seq2Seq(9, 8, 6, encoder, small),
        "a shared embedding needs one vocabulary",
    ),
    "no words": (lambda: LanguageModel(0, 6, small), "an embedding needs a vocabulary and a size, not 0 × 6"),
    "no width": (lambda: Embedding(5, 0), "an embedding needs a vocabulary and a size, not 5 × 0"),
    "no layers": (
        lambda: LanguageModel(9, 6, partial(small, layers=0)),
        "a Transformer needs at least one layer, not 0",
    ),
    "no recurrent layers": (
        lambda: RNN(6, layers=0),
        "an RNN needs at least one layer and one unit, not 0 layers of 6",
    ),
    "no attentive layers": (
        lambda: AttentiveRNN(6, 3, layers=0),
        "an RNN needs at least one layer and one unit",
    ),
    "no units": (lambda: RNN(6, dim=-1), "an RNN needs at least one layer and one unit, not 1 layers of -1"),
    "no such direction": (
        lambda: RNN(6, direction="up"),
        "direction must be forward, backward or both, not 'up'",
    ),
    "odd rotary heads": (
        lambda: LanguageModel(9, 6, partial(small, position=Rotary)),
        "rotary positions need an even head size, not 3",
    ),
    "odd sinusoids": (lambda: Sinusoidal(5), "sinusoidal positions need an even size, not 5"),
    "no learned positions": (
        lambda: Learned(4, length=0),
        "learned positions need a length of at least 1, not 0",
    ),
    "nothing to concatenate": (
        lambda: Concatenated(4, encoding=ALiBi),
        "ALiBi has no vector to concatenate: use Sinusoidal or Learned",
    ),
    "dropout of everything": (
        lambda: LanguageModel(9, 6, small, dropout=1.0),
        "dropout must be at least 0 and below 1, not 1.0",
    ),
    "negative dropout": (lambda: Dropout(-0.5), "dropout must be at least 0 and below 1, not -0.5"),
    "decoder without memory": (
        lambda: small(6, memory=3)(torch.randn(1, 2, 6)),
        "cross-attention needs a memory",
    ),
    "attentive decoder without memory": (
        lambda: AttentiveRNN(6, 3).start(1),
        "an attentive decoder needs a memory",
    ),
}


@pytest.mark.parametrize("make, sentence", WRONG.values(), ids=WRONG)
def test_a_wrong_assembly_is_one_sentence(make, sentence):
    with pytest.raises(ValueError) as caught:
        make()
    assert sentence in str(caught.value) and "\n" not in str(caught.value)


NAMES = {
    part.__name__: part
    for part in (Seq2Seq, LanguageModel, RNN, nn.LSTM, AttentiveRNN, Transformer, Learned, nn.LayerNorm)
}


@pytest.mark.parametrize(
    "tree, sentence",
    [
        (
            {"type": "Seq2Seq", "encoder": "RNN", "decoder": "RNN"},
            "model.decoder: RNN cannot be used here: it has no parameter memory",
        ),
        (
            {"type": "Seq2Seq", "encoder": "AttentiveRNN", "decoder": "AttentiveRNN"},
            "model.encoder: AttentiveRNN needs memory",
        ),
        ({"type": "LanguageModel"}, "model: LanguageModel needs stack; add it"),
        (
            {"type": "LanguageModel", "stack": {"type": "RNN", "cell": {"type": "LSTM", "dim": 3}}},
            "dim is set by the part around LSTM; remove it",
        ),
        (
            {"type": "LanguageModel", "stack": {"type": "Transformer", "position": {"type": "LSTM"}}},
            "LSTM cannot be used here; choose from Learned",
        ),
    ],
)
def test_a_config_that_does_not_fit_together_is_one_sentence(tree, sentence):
    with pytest.raises(ValueError) as caught:
        vocabulary = {"vocabulary": 9} | ({"source_vocabulary": 9} if tree["type"] == "Seq2Seq" else {})
        config_tree.build({**tree, "dim": 8}, NAMES, "model")(**vocabulary)
    assert sentence in str(caught.value)


def test_a_sequence_beyond_the_learned_positions_is_one_sentence():
    """In one call or in steps; up to the last position all is well."""
    model = LanguageModel(9, 6, partial(small, position=partial(Learned, length=4)))
    assert model.context == 4
    sentence = "a sequence of 5 positions is longer than the 4 learned ones"
    _, state = model(torch.zeros(2, 4, dtype=torch.long))
    with pytest.raises(ValueError, match=sentence):
        model(torch.zeros(2, 1, dtype=torch.long), state)
    with pytest.raises(ValueError, match=sentence):
        model(torch.zeros(2, 5, dtype=torch.long))


ENDLESS = [
    RNN,
    small,
    partial(small, position=Rotary, heads=1),
    partial(small, position=ALiBi),
    partial(small, position=Sinusoidal),
]


@pytest.mark.parametrize("stack", ENDLESS)
def test_other_stacks_have_no_end(stack):
    model = LanguageModel(9, 6, stack)
    assert model.context is None
    assert model(torch.zeros(1, 300, dtype=torch.long))[0].shape == (1, 300, 9)


def test_a_translator_knows_the_limits_of_both_sides():
    model = Seq2Seq(
        9,
        9,
        6,
        partial(encoder, position=partial(Learned, length=5)),
        partial(small, position=partial(Learned, length=4)),
    )
    assert (model.source_context, model.context) == (5, 4)
    with pytest.raises(ValueError, match="a sequence of 6 positions is longer than the 5 learned ones"):
        model.start(torch.zeros(1, 6, dtype=torch.long))


def count(model: torch.nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())


@pytest.mark.parametrize("width", [6, 10])
def test_tied_models_have_one_table(width: int):
    """The output reads the embedding's own table, through a projection where the stack is of another width; untied it has V·W + V of its own."""
    tied = LanguageModel(9, 6, partial(RNN, dim=width))
    free = LanguageModel(9, 6, partial(RNN, dim=width), tied=False)
    back = 6 * width + 6 if width != 6 else 0
    assert tied.output.table is tied.embedding.table and tied.output.bias is None
    assert count(free) - (9 * width + 9) == count(tied) - back


def test_a_shared_table_is_one_table():
    shared = Seq2Seq(9, 9, 6, encoder, small)
    apart = Seq2Seq(9, 7, 6, encoder, small, shared=False)
    assert shared.source_embedding.table is shared.embedding.table
    assert apart.source_embedding.table.shape == (9, 6) and apart.embedding.table.shape == (7, 6)
    assert count(apart) - count(shared) == 9 * 6 + 7 * 6 - 9 * 6


def test_first_weights_are_a_function_of_the_seed():
    def weights(seed: int) -> list[torch.Tensor]:
        torch.manual_seed(seed)
        return list(Seq2Seq(9, 9, 6, encoder, partial(AttentiveRNN, layers=2)).parameters())

    assert all(torch.equal(a, b) for a, b in zip(weights(1), weights(1), strict=True))
    assert not all(torch.equal(a, b) for a, b in zip(weights(1), weights(2), strict=True))


def test_dropout_reaches_every_model_and_stops_in_evaluation():
    """Two passes differ while training and agree in use."""
    x = torch.randint(9, (2, 5))
    for model in (
        LanguageModel(9, 6, partial(RNN, layers=2), dropout=0.5),
        LanguageModel(9, 6, partial(RNN, layers=2, dropout=0.5)),
        LanguageModel(9, 6, partial(small, dropout=0.5)),
    ):
        assert not torch.equal(model(x)[0], model(x)[0])
        model.eval()
        assert torch.equal(model(x)[0], model(x)[0])


def test_a_translator_begins_with_its_source_read():
    """Generation starts from the first token it is given and a state that holds the memory."""
    for decoder in (small, partial(AttentiveRNN, dim=8)):
        model = Seq2Seq(9, 9, 8, encoder, decoder)
        ids, state, mask = model.prepare_prompt(torch.tensor([[5, 6, 3]]), None, 2)
        assert ids.tolist() == [[2]] and mask is None
        assert model(ids, state)[0].shape == (1, 1, 9)
