"""Models with heads: their scores are those of their equation written out, padding and windows change nothing, and any stack fits."""

from functools import partial

import numpy as np
import pytest
import torch

from seqloom.models import BiEncoder, Classifier, CrossEncoder, ExtractiveQA, Regressor, Tagger
from seqloom.models.encoder import WindowedEncoder
from seqloom.nn import (
    CRF,
    GRU,
    RNN,
    AttentionPool,
    CharEmbedding,
    Convolution,
    Learned,
    MeanPool,
    Mixer,
    Rotary,
    SoftmaxHead,
    Transformer,
)

STACKS = {
    "rnn": partial(RNN, dim=6, direction="both"),
    "gru": partial(RNN, dim=6, cell=GRU),
    "transformer": partial(Transformer, layers=1, heads=2, position=Rotary, causal=False),
    "learned": partial(Transformer, layers=1, heads=2, position=partial(Learned, length=64), causal=False),
    "convolution": partial(Convolution, causal=False),
    "mixer": partial(Mixer, length=64),
}


def tagger(stack, head=SoftmaxHead, spelling=True) -> Tagger:
    torch.manual_seed(0)
    return Tagger(
        50, 4, 8, stack, head, partial(CharEmbedding, dim=4, char_dim=3) if spelling else None
    ).eval()


def sentence(words: int, seed: int = 0):
    """Pieces, where words begin, letters and which is which, for one row."""
    chance = np.random.default_rng(seed)
    counts = chance.integers(1, 4, words)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    letters = chance.integers(1, 255, (words, 5))
    return (
        torch.from_numpy(chance.integers(5, 50, (1, counts.sum()))),
        torch.from_numpy(begins)[None],
        torch.from_numpy(letters),
        counts,
    )


@pytest.mark.parametrize("name", [name for name in STACKS if name != "mixer"])
def test_a_tagger_is_its_equation(name):
    """Word by word: embed each piece beside its word's spelling, read, take the first piece, score."""
    model = tagger(STACKS[name])
    ids, begins, letters, counts = sentence(5)
    found = model.scores(ids, torch.ones_like(ids, dtype=torch.bool), begins, letters, torch.arange(5)[None])
    x = []
    for word, count in enumerate(counts):
        spelt = model.chars(letters[None, word : word + 1], torch.ones(1, 1, 5, dtype=torch.bool))[0, 0]
        x += [
            torch.cat([model.embedding.table[ids[0, begins[0, word] + piece]], spelt])
            for piece in range(count)
        ]
    h, _ = model.stack(torch.stack(x)[None])
    expected = torch.stack([model.score.weight @ h[0, place] + model.score.bias for place in begins[0]])
    torch.testing.assert_close(found[0], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", STACKS)
@pytest.mark.parametrize("head", [SoftmaxHead, CRF])
def test_padding_changes_no_tag_and_no_loss(name, head):
    model = tagger(STACKS[name], head)
    torch.nn.init.normal_(next(model.head.parameters())) if list(model.head.parameters()) else None
    rows = [sentence(words, seed) for seed, words in enumerate((2, 5, 3))]
    wide, most = max(row[0].shape[1] for row in rows), 5
    ids, begins, spelt = (
        torch.zeros(3, wide, dtype=torch.long),
        torch.zeros(3, most, dtype=torch.long),
        torch.zeros(3, most, dtype=torch.long),
    )
    real, words, letters = torch.zeros(3, wide, dtype=torch.bool), torch.zeros(3, most, dtype=torch.bool), []
    for number, (pieces, places, own, counts) in enumerate(rows):
        ids[number, : pieces.shape[1]], real[number, : pieces.shape[1]] = pieces[0], True
        begins[number, : len(counts)], words[number, : len(counts)] = places[0], True
        spelt[number, : len(counts)] = torch.arange(len(counts)) + sum(map(len, letters))
        letters.append(own)
    together = model.scores(ids, real, begins, torch.cat(letters), spelt)
    tags = torch.randint(0, 4, (3, most))
    nats = model.head.nll(together, tags, words)
    for number, (pieces, places, own, counts) in enumerate(rows):
        alone = model.scores(
            pieces, torch.ones_like(pieces, dtype=torch.bool), places, own, torch.arange(len(counts))[None]
        )
        torch.testing.assert_close(together[number, : len(counts)], alone[0], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(
            nats[number],
            model.head.nll(alone, tags[number : number + 1, : len(counts)])[0],
            rtol=1e-4,
            atol=1e-5,
        )


def test_a_text_longer_than_the_context_is_read_in_windows():
    """Each position equals that of the window in whose middle it stands."""
    torch.manual_seed(0)
    model = WindowedEncoder(
        50, 8, partial(Transformer, layers=2, heads=2, position=partial(Learned, length=8), causal=False)
    ).eval()
    x = torch.randn(2, 21, 8)
    found = model.encode(x, None)
    begins = [0, 4, 8, 12, 13]
    for place in range(21):
        inside = [begin for begin in begins if begin <= place < begin + 8]
        expected = [model.stack(x[:, begin : begin + 8])[0][:, place - begin] for begin in inside]
        near = min(abs(place - begin - 3.5) for begin in inside)
        fits = [
            e
            for e, begin in zip(expected, inside, strict=True)
            if abs(place - begin - 3.5) <= near + 0.5 or begin in (0, 13)
        ]
        assert any(torch.allclose(found[:, place], one, atol=1e-5) for one in fits), place
    torch.testing.assert_close(model.encode(x[:, :8], None), model.stack(x[:, :8])[0])


@pytest.mark.parametrize("kind", [Classifier, Tagger])
@pytest.mark.parametrize("width", [8, 7, 1])
def test_windows_are_those_of_each_text_alone(kind, width):
    """Also where others in the batch are longer, and those that fit are read whole; values and gradients."""
    torch.manual_seed(0)
    model = (
        kind(
            50,
            3,
            8,
            partial(Transformer, layers=1, heads=2, position=partial(Learned, length=width), causal=False),
        )
        .double()
        .eval()
    )
    lengths, ids = [21, 5, 8, 13, 1, 9], torch.randint(5, 50, (6, 24))
    mask = torch.arange(24) < torch.tensor(lengths)[:, None]

    def told(ids, mask):
        return model(ids, mask) if kind is Classifier else model(ids, mask) * mask[..., None]

    together = told(ids, mask)
    weight = torch.randn_like(together)
    weights = list(model.parameters())
    gradients = torch.autograd.grad((together * weight).sum(), weights)
    alone = [told(ids[row : row + 1, :n], mask[row : row + 1, :n])[0] for row, n in enumerate(lengths)]
    own = [one if kind is Classifier else one[:n] for one, n in zip(weight, lengths, strict=True)]
    for row, one in enumerate(alone):
        torch.testing.assert_close(together[row, : len(one)], one)
    expected = torch.autograd.grad(sum((one * w).sum() for one, w in zip(alone, own, strict=True)), weights)
    torch.testing.assert_close(gradients, expected)


def side(length: int, real: int, seed: int = 0):
    torch.manual_seed(seed)
    mask = torch.arange(length) < real
    return torch.where(mask, torch.randint(5, 50, (length,)), 0)[None], mask[None]


@pytest.mark.parametrize("kind", [Classifier, Regressor])
@pytest.mark.parametrize("pair", [None, CrossEncoder, BiEncoder])
@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_one_text_or_two_are_the_equation_and_padding_is_nothing(kind, pair, name):
    torch.manual_seed(1)
    sizes = (50, 3, 8) if kind is Classifier else (50, 8)
    model = kind(*sizes, STACKS[name], pool=MeanPool, pair=pair).eval()
    first, second = side(6, 4), side(7, 3, 1)
    found = model.scores(first, None if pair is None else second)
    a, b = (ids[mask] for ids, mask in (first, second))

    def vector(ids, added=0):
        return model.stack((model.embedding.table[ids] + added)[None])[0][0].mean(0)

    if pair is None:
        v = vector(a)
    elif pair is BiEncoder:
        u, w = vector(a), vector(b)
        v = torch.cat([u, w, (u - w).abs(), u * w])
    else:
        rest = b[1:]
        segment = torch.tensor([0] * len(a) + [1] * len(rest))
        same = torch.tensor([int(t in rest) for t in a] + [int(t in a) for t in rest])
        v = vector(torch.cat([a, rest]), model.pair.segments[segment] + model.pair.match[same])
    expected = model.score.weight @ v + model.score.bias
    torch.testing.assert_close(found[0] if kind is Classifier else found, expected, rtol=1e-4, atol=1e-5)
    if kind is Regressor:
        model.mean.fill_(3.0), model.deviation.fill_(2.0)
        torch.testing.assert_close(
            model.scores(first, None if pair is None else second), 3 + 2 * expected, rtol=1e-4, atol=1e-5
        )


def test_one_text_where_two_are_meant_is_said():
    model = Classifier(50, 2, 8, STACKS["rnn"], pair=CrossEncoder)
    with pytest.raises(ValueError, match="the model takes pairs"):
        model.scores(side(4, 4))
    with pytest.raises(ValueError, match=r"set model\.pair"):
        Classifier(50, 2, 8, STACKS["rnn"]).scores(side(4, 4), side(4, 4))


@pytest.mark.parametrize("name", ["rnn", "transformer", "convolution"])
def test_spans_score_the_passage_and_no_answer(name):
    """Scores at the question's last token and at each token of the passage, whatever the padding."""
    torch.manual_seed(0)
    model = ExtractiveQA(50, 8, STACKS[name]).eval()
    question, passage = side(6, 4), side(9, 5, 1)
    found, real = model.scores(question, passage)
    q, p = question[0][question[1]], passage[0][passage[1]]
    segment, same = (
        torch.tensor([0] * 4 + [1] * 5),
        torch.tensor([int(t in p) for t in q] + [int(t in q) for t in p]),
    )
    x = model.embedding.table[torch.cat([q, p])] + model.pair.segments[segment] + model.pair.match[same]
    h = model.stack(x[None])[0][0]
    expected = (h[3:] @ model.score.weight.T + model.score.bias).T
    torch.testing.assert_close(found[0, :, :6], expected, rtol=1e-4, atol=1e-5)
    assert real[0].tolist() == [True] * 6 + [False] * 4 and (found[0, :, 6:] == -torch.inf).all()


def test_unknown_words_come_only_while_training():
    torch.manual_seed(0)
    model = Classifier(50, 2, 8, STACKS["rnn"], pool=AttentionPool, word_dropout=0.5)
    ids = torch.full((1, 2000), 7)
    share = (model.train().embed(ids, None) == model.embedding.table[1]).all(-1).float().mean()
    assert 0.45 < share < 0.55 and (model.eval().embed(ids, None) == model.embedding.table[7]).all()


def test_encoder_weights_have_one_name_across_models():
    """So that a head can be put on any encoder."""
    from seqloom.models import LanguageModel, MaskedLM

    stack = partial(Transformer, layers=1, heads=2)
    own = {
        name
        for name, _ in LanguageModel(50, 8, stack).named_parameters()
        if name.startswith(("embedding.", "stack."))
    }
    for model in (
        Tagger(50, 3, 8, stack),
        Classifier(50, 3, 8, stack),
        Regressor(50, 8, stack),
        ExtractiveQA(50, 8, stack),
        MaskedLM(50, 8, stack),
    ):
        assert own <= {name for name, _ in model.named_parameters()}
