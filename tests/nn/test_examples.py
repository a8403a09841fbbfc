"""Worked examples of the lectures that the parts can show, each under its number, errata included."""

import math
from functools import partial

import numpy as np
import torch

from seqloom.models import LanguageModel
from seqloom.nn import LSTM, LayerNorm, NoPosition, ScaledDot, SelfAttention, Sinusoidal, Transformer
from seqloom.nn import mask as masks

torch.manual_seed(0)


def test_x2() -> None:
    """q·k = 112 and K = 64 give the score 14; beside a score of 12 its weight is 0.88."""
    q = torch.zeros(1, 1, 1, 64)
    k = torch.zeros(1, 1, 2, 64)
    q[..., 0], k[0, 0, 0, 0], k[0, 0, 1, 0] = 1.0, 112.0, 96.0
    scores = ScaledDot(64)(q, k)
    assert scores.flatten().tolist() == [14.0, 12.0]
    assert torch.allclose(masks.softmax(scores, None).flatten(), torch.tensor([0.8808, 0.1192]), atol=1e-4)


def last_state(layers: int, causal: bool, words: list[str]) -> torch.Tensor:
    torch.manual_seed(1)
    vocabulary = {word: number for number, word in enumerate(sorted({"it", "is", "good", ",", "isn't", "?"}))}
    stack = Transformer(16, layers=layers, heads=2, position=NoPosition, causal=causal).double()
    table = torch.randn(len(vocabulary), 16, dtype=torch.double)
    for parameter in stack.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    y, _ = stack(table[[vocabulary[word] for word in words]][None])
    return y[0, -1]


def test_x5() -> None:
    """Without positions two sentences of the same words end in the same state: unless the mask is causal and there are two layers."""
    one, other = ["it", "is", "good", ",", "isn't", "it", "?"], ["it", "isn't", "good", ",", "is", "it", "?"]
    for layers, causal, same in [(1, False, True), (2, False, True), (1, True, True), (2, True, False)]:
        difference = (last_state(layers, causal, one) - last_state(layers, causal, other)).abs().max().item()
        assert (difference < 1e-12) is same, (layers, causal, difference)


def test_x6() -> None:
    """p_i · p_j = Σ cos ω(i - j), which is d/2 for i = j."""
    code = Sinusoidal(16).double().code(torch.arange(10, dtype=torch.double))
    frequencies = 10000.0 ** (-np.arange(0, 16, 2) / 16)
    assert math.isclose((code[7] @ code[3]).item(), np.cos(frequencies * 4).sum(), rel_tol=1e-6)
    assert math.isclose((code[7] @ code[3]).item(), 5.559676804, rel_tol=1e-6)
    assert math.isclose((code[5] @ code[5]).item(), 8.0, rel_tol=1e-12)


def test_x11() -> None:
    """Row i of the causal mask keeps keys 1 … i; the others weigh nothing."""
    mask = masks.causal(5, 5)
    assert all(mask[i, j].item() == (j <= i) for i in range(5) for j in range(5))
    weights = masks.softmax(torch.randn(1, 1, 5, 5), mask)
    assert (weights[0, 0][~mask] == 0).all() and torch.allclose(weights.sum(-1), torch.ones(1, 1, 5))


def saturated(i: float, f: float, o: float) -> LSTM:
    """An LSTM whose gates stand at 0 or 1 whatever it reads."""
    cell = LSTM(3, 4).double()
    with torch.no_grad():
        for number, gate in enumerate([i, f, None, o]):
            if gate is not None:
                cell.input[number * 4 : number * 4 + 4], cell.hidden[number * 4 : number * 4 + 4] = 0, 0
                cell.bias[number * 4 : number * 4 + 4] = 1e4 if gate else -1e4
    return cell


def run(cell: LSTM, steps: int = 5) -> list:
    state = type(cell.start(2))(torch.randn(2, 4, dtype=torch.double), torch.randn(2, 4, dtype=torch.double))
    states = [state]
    for share in cell.inputs(torch.randn(2, steps, 3, dtype=torch.double)).unbind(1):
        states.append(cell.step(share, states[-1]))
    return states


def test_x12() -> None:
    """f = 1 and i = 0: the cell keeps its content for ever."""
    states = run(saturated(i=0, f=1, o=1))
    assert all(state.c.equal(states[0].c) for state in states)


def test_x15() -> None:
    """o = 0: nothing is read out while the content goes on gathering."""
    states = run(saturated(i=1, f=1, o=0))
    assert all((state.h == 0).all() for state in states[1:])
    assert all(not after.c.equal(before.c) for before, after in zip(states, states[1:], strict=False))  # noqa: RUF007


def test_x19() -> None:
    """LayerNorm gives mean 0 and variance 1 (over d, not d - 1), alone as in company, in training as in evaluation."""
    norm, x = LayerNorm(32, affine=False, epsilon=0.0).double(), torch.randn(3, 5, 32, dtype=torch.double) * 7 + 2
    y = norm(x)
    assert torch.allclose(y.mean(-1), torch.zeros(3, 5, dtype=torch.double), atol=1e-12)
    assert torch.allclose(y.var(-1, correction=0), torch.ones(3, 5, dtype=torch.double), atol=1e-12)
    assert norm(x[1:2, 2:3]).equal(y[1:2, 2:3]) and norm.eval()(x).equal(y)


def test_x27() -> None:
    """q, k and v of "I saw cat on mat <eos>" are six vectors each; "I like trees" with positions keeps its shape."""
    attention = SelfAttention(8, heads=2)
    _, state = attention(torch.randn(1, 6, 8))
    assert state.keys.shape == state.values.shape == (1, 2, 6, 4)
    assert Sinusoidal(8).embed(torch.randn(1, 3, 8), torch.arange(3)).shape == (1, 3, 8)
    logits, _ = LanguageModel(11, 8, partial(Transformer, layers=1, heads=2))(torch.tensor([[1, 2, 3]]))
    assert logits.shape == (1, 3, 11)


def test_x28() -> None:
    """y = A x + x has the derivative (A + I) ∂x/∂θ."""
    matrix, theta = torch.randn(4, 4, dtype=torch.double), torch.randn(4, dtype=torch.double)
    x = lambda t: (t**2).sin()  # noqa: E731
    whole = torch.autograd.functional.jacobian(lambda t: matrix @ x(t) + x(t), theta)
    inner = torch.autograd.functional.jacobian(x, theta)
    assert torch.allclose(whole, (matrix + torch.eye(4, dtype=torch.double)) @ inner)
