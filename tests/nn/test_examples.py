"""The lectures' worked examples that these parts can show, one test for each, in our own words."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from seqloom.fused.dispatch import plain
from seqloom.nn import (
    LSTM,
    RNN,
    AttentiveRNN,
    Embedding,
    LayerNorm,
    Memory,
    NoPosition,
    ScaledDot,
    SelfAttention,
    Sinusoidal,
    Transformer,
    attend,
)
from seqloom.nn.cells import LSTMState
from seqloom.nn.layer import causal_mask, masked_softmax


def ids(sentence: str, words: dict[str, int]) -> Tensor:
    return torch.tensor([[words.setdefault(word, len(words)) for word in sentence.split()]])


def big(part: torch.nn.Module, scale: float = 0.5) -> torch.nn.Module:
    """Weights large enough that a difference shows."""
    with torch.no_grad():
        for weight in part.parameters():
            weight.copy_(torch.randn(weight.shape) * scale)
    return part


def test_x2():
    """Scores of 112 and 96 with keys of size 64 are divided by 8 to 14 and 12, and the softmax gives .88 and .12."""
    q = torch.ones(1, 1, 1, 64)
    k = torch.stack([torch.full((64,), 112 / 64), torch.full((64,), 96 / 64)])[None, None]
    score = ScaledDot(64)
    assert score(q, k).flatten().tolist() == [14.0, 12.0]
    with plain():
        _, weights = attend(q, k, k, score)
    assert weights.flatten().tolist() == pytest.approx([0.8808, 0.1192], abs=5e-5)


@pytest.mark.parametrize(
    "causal, layers, alike", [(False, 1, True), (False, 2, True), (True, 1, True), (True, 2, False)]
)
def test_x5(causal: bool, layers: int, alike: bool):
    """Without positions two questions of the same words end in the same vector. The slides say so of any such model; with a causal mask
    it holds for one layer alone, since the second layer reads vectors that already know what stood before them."""
    words: dict[str, int] = {}
    one, two = ids("it is good , is n't it ?", words), ids("it is n't good , is it ?", words)
    assert sorted(one[0].tolist()) == sorted(two[0].tolist()) and one.tolist() != two.tolist()
    embedding = big(Embedding(len(words), 8))
    stack = big(Transformer(8, layers, 2, position=NoPosition, causal=causal))
    first, second = (stack(embedding(sentence))[0][0, -1] for sentence in (one, two))
    assert ((first - second).abs().max() < 1e-12) == alike


def test_x5_positions_tell_the_questions_apart():
    """The same two questions with positions."""
    words: dict[str, int] = {}
    one, two = ids("it is good , is n't it ?", words), ids("it is n't good , is it ?", words)
    embedding, stack = (
        big(Embedding(len(words), 8)),
        big(Transformer(8, 1, 2, position=Sinusoidal, causal=False)),
    )
    first, second = (stack(embedding(sentence))[0][0, -1] for sentence in (one, two))
    assert (first - second).abs().max() > 1e-3


def test_x6():
    """The product of two sinusoidal codes is a sum of cosines of their distance, and of one with itself half its size."""
    position = Sinusoidal(16)
    codes = position.encoding(torch.arange(20))
    assert float(codes[7] @ codes[3]) == pytest.approx(5.559676804, abs=1e-9)
    for i in range(20):
        for j in range(20):
            expected = sum(torch.cos(position.frequency * (i - j)))
            assert float(codes[i] @ codes[j]) == pytest.approx(float(expected), abs=1e-12)
    assert codes.square().sum(-1).tolist() == pytest.approx([8.0] * 20)


def test_x11():
    """The causal mask over five words: row i keeps its first i scores; the rest become 0 after the softmax."""
    scores = torch.randn(5, 5)
    kept = causal_mask(5, 5)
    assert kept.tolist() == [[j <= i for j in range(5)] for i in range(5)]
    weights = masked_softmax(scores, kept)
    for i in range(5):
        exact = scores[i, : i + 1].exp() / scores[i, : i + 1].exp().sum()
        assert weights[i].tolist() == pytest.approx([*exact.tolist(), *[0.0] * (4 - i)])


def gated(i: float, f: float, g: float, o: float) -> LSTM:
    """An LSTM of three units whose gates read nothing but their biases."""
    cell = LSTM(2, 3)
    with torch.no_grad():
        cell.input.zero_()
        cell.hidden.zero_()
        cell.bias.copy_(torch.tensor([i, f, g, o]).repeat_interleave(3))
    return cell


OPEN, SHUT = 1e4, -1e4


def test_x12():
    """With the forget gate open and the input gate shut the LSTM keeps its cell exactly, for as long as one likes."""
    part = RNN(2, 3, cell=lambda size, dim: gated(SHUT, OPEN, 0.7, 0.3))
    c = torch.randn(1, 3)
    for context in (plain, torch.no_grad):
        with context():
            _, state = part(torch.randn(1, 50, 2), ((LSTMState(torch.randn(1, 3), c),),))
        assert torch.equal(state[0][0].c, c)


def test_x15():
    """With the output gate shut h shows nothing while c goes on counting."""
    part = RNN(2, 3, cell=lambda size, dim: gated(OPEN, OPEN, 0.5, SHUT))
    state = None
    for t in range(1, 6):
        y, state = part(torch.randn(1, 1, 2), state)
        assert not y.any()
        torch.testing.assert_close(state[0][0].c, torch.full((1, 3), t * torch.tensor(0.5).tanh().item()))


def test_x16():
    """The codes count like binary numbers: each pair of waves turns more slowly than the one before, as each bit flips less often."""
    flips = [sum((n >> bit & 1) != (n + 1 >> bit & 1) for n in range(7)) for bit in range(3)]
    assert flips == [7, 3, 1]
    sines = Sinusoidal(12).encoding(torch.arange(2000))[:, 0::2]
    crossings = (sines[1:].sign() != sines[:-1].sign()).sum(0).tolist()
    assert crossings == sorted(crossings, reverse=True) and len(set(crossings)) == 6


def test_x19():
    """LayerNorm gives each position mean 0 and variance 1 (over d, not d - 1), alone or in a batch, in training as in use."""
    norm, x = LayerNorm(16, epsilon=0.0), torch.randn(5, 7, 16) * 4 + 3
    y = norm(x)
    torch.testing.assert_close(y.mean(-1), torch.zeros(5, 7))
    torch.testing.assert_close(y.var(-1, unbiased=False), torch.ones(5, 7))
    torch.testing.assert_close(norm(x[2:3, 4:5]), y[2:3, 4:5])
    assert torch.equal(norm.eval()(x), y)


def test_x24():
    """A recurrent network keeps a long sentence and a short one in a state of the same size; attention keeps every position."""
    short, long = torch.randn(1, 9, 4), torch.randn(1, 60, 4)
    rnn, attention = RNN(4, 6), SelfAttention(4, 1)
    assert [rnn(x)[1][0][0].h.shape for x in (short, long)] == [(1, 6), (1, 6)]
    assert [attention(x)[1].keys.shape[2] for x in (short, long)] == [9, 60]


@pytest.mark.parametrize(
    "stack", [lambda: RNN(8, direction="both"), lambda: Transformer(8, 1, 2, causal=False)]
)
def test_x25(stack):
    """The table gives "bank" one vector; a stack gives it one for the street and one for the river."""
    words: dict[str, int] = {}
    one, two = ids("the bank of the street", words), ids("the bank of the river", words)
    embedding, part = big(Embedding(len(words), 8)), big(stack())
    first, second = embedding(one), embedding(two)
    assert torch.equal(first[0, 1], second[0, 1])
    assert (part(first)[0][0, 1] - part(second)[0][0, 1]).abs().max() > 1e-3


def test_x26():
    """Over the letters h, e, l, o one-hot vectors are the rows of the 4 × 4 identity, and "hello" picks h e l l o."""
    embedding = Embedding(4, 4)
    with torch.no_grad():
        embedding.table.copy_(torch.eye(4))
    with plain():
        x = embedding(torch.tensor([["helo".index(letter) for letter in "hello"]]))[0]
    assert x.argmax(-1).tolist() == [0, 1, 2, 2, 3] and x.sum(-1).tolist() == [1.0] * 5


def test_x27():
    """Six words give six queries, keys and values, a 6 × 6 table of weights that sum to 1, and six outputs; positions change no shape."""
    words: dict[str, int] = {}
    sentence = ids("I saw cat on mat <eos>", words)
    embedding, attention = Embedding(len(words), 8), SelfAttention(8, 2, causal=False)
    with plain():
        y, weights, state = attention.forward_with_weights(embedding(sentence))
    assert state.keys.shape == state.values.shape == (1, 2, 6, 4)
    assert weights.shape == (1, 2, 6, 6) and y.shape == (1, 6, 8)
    torch.testing.assert_close(weights.sum(-1), torch.ones(1, 2, 6))
    trees = torch.randn(1, 3, 8)  # I like trees
    placed = Sinusoidal(8).embed(trees, torch.arange(3))
    assert placed.shape == trees.shape
    torch.testing.assert_close(placed - trees, Sinusoidal(8).encoding(torch.arange(3))[None])


def test_x28():
    """A residual path adds the identity to a layer's derivative, so the gradient always has a way through."""
    plain_layer, residual = RNN(3), RNN(3, residual=True)
    residual.load_state_dict(plain_layer.state_dict())
    x = torch.randn(1, 4, 3)
    without, with_path = (
        torch.autograd.functional.jacobian(lambda x, part=part: part(x)[0].flatten(), x).view(12, 12)
        for part in (plain_layer, residual)
    )
    torch.testing.assert_close(with_path, without + torch.eye(12))


def test_x21():
    """ "Time flies like an arrow": one head scores words by what their grammar asks for, another by what they mean; "like" looks at flies and
    arrow in the first and at time and arrow in the second, in one layer."""
    words = ["time", "flies", "like", "an", "arrow"]
    verb, noun, motion = torch.eye(
        3
    )  # features: is the verb, is its complement, belongs to the picture of time as an arrow
    asks = torch.zeros(5, 6)
    asks[2, :3], asks[2, 3:] = verb + noun, motion  # what "like" asks for: by grammar, by meaning
    offers = torch.zeros(5, 6)
    offers[1, :3], offers[4, :3] = verb, noun
    offers[0, 3:], offers[4, 3:] = motion, motion
    part = SelfAttention(12, heads=2, causal=False, bias=False, position=NoPosition(12, 2))
    with (
        torch.no_grad()
    ):  # x = [asks; offers] laid out by head: each head's query reads its asks, its key its offers
        part.qkv_proj.weight.zero_()
        for head in range(2):
            for unit in range(3):
                part.qkv_proj.weight[head * 6 + unit, head * 3 + unit] = 6.0
                part.qkv_proj.weight[12 + head * 6 + unit, 6 + head * 3 + unit] = 6.0
    with plain():
        _, weights, _ = part.forward_with_weights(torch.cat([asks, offers], -1)[None])
    for head, two in ((0, {"flies", "arrow"}), (1, {"time", "arrow"})):
        row = weights[0, head, 2]
        assert {words[i] for i in row.topk(2).indices} == two
        assert row.topk(2).values.sum() > 0.99


def test_x23():
    """A caption's words each have a distribution over the positions of a picture: a grid of 3 × 4 places read as a memory of 12 [G8]."""
    decoder = big(AttentiveRNN(6, memory=5, dim=7))
    picture, caption = torch.randn(2, 3, 4, 5), torch.randn(2, 6, 6)
    with plain():
        _, weights, _ = decoder.forward_with_weights(
            caption, decoder.start(2, Memory(picture.flatten(1, 2), None))
        )
    grid = weights[:, 0].unflatten(-1, (3, 4))
    assert grid.shape == (2, 6, 3, 4) and (grid > 0).all()
    torch.testing.assert_close(grid.sum((-1, -2)), torch.ones(2, 6))
    assert (grid[0, 0] - grid[0, 5]).abs().max() > 1e-3
