"""The mixture of layers, and what a stack gives of each."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch

from seqloom.nn import RNN, Chain, ScalarMix, Transformer

SIZE = 4
STACKS = [
    partial(RNN, layers=3),
    partial(RNN, dim=2, layers=2, direction="both", residual=True),
    partial(Transformer, layers=3, heads=2),
    partial(Transformer, layers=2, heads=2, order="post", causal=False),
    partial(Chain, layers=[partial(RNN, layers=2), partial(Transformer, layers=2, heads=2)]),
]
MASK = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0], [0, 1, 0, 1, 1]], dtype=torch.bool)


def test_mixture_is_its_formula():
    mix, levels = ScalarMix(3), [torch.randn(2, 5, SIZE) for _ in range(3)]
    torch.testing.assert_close(mix(levels), sum(levels) / 3)  # at first the mean
    with torch.no_grad():
        mix.scalars.copy_(torch.tensor([0.5, -1.0, 2.0]))
        mix.gamma.fill_(1.7)
    powers = [math.exp(a) for a in (0.5, -1.0, 2.0)]
    torch.testing.assert_close(
        mix(levels), 1.7 * sum(p / sum(powers) * h for p, h in zip(powers, levels, strict=True))
    )
    levels = [level.requires_grad_() for level in levels]
    assert torch.autograd.gradcheck(lambda *levels: mix(levels), levels)


def test_layers_that_do_not_fit():
    with pytest.raises(ValueError, match="3 layers, not 2"):
        ScalarMix(3)([torch.zeros(1, 1, 2)] * 2)
    with pytest.raises(ValueError, match=r"widths \[2, 3\]"):
        ScalarMix(2)([torch.zeros(1, 1, 2), torch.zeros(1, 1, 3)])
    with pytest.raises(ValueError, match="at least one"):
        ScalarMix(0)


@pytest.mark.parametrize("make", STACKS, ids=lambda make: make.func.__name__)
def test_the_last_level_is_the_output_and_the_state_is_the_same(make):
    stack, x = make(SIZE), torch.randn(3, 5, SIZE)
    levels, state = stack.hidden_states(x, None, MASK)
    y, expected = stack(x, None, MASK)
    assert len(levels) == stack.depth
    torch.testing.assert_close(levels[-1], y)
    if stack.causal:
        more = torch.randn(3, 1, SIZE)
        torch.testing.assert_close(stack(more, state)[0], stack(more, expected)[0])


@pytest.mark.parametrize("kind", [RNN, partial(Transformer, heads=2)])
def test_a_level_is_the_output_of_a_stack_that_ends_there(kind):
    """The first layers of a stack, alone, with the same weights; a pre-norm Transformer's last norm apart."""
    whole, x = kind(SIZE, layers=3), torch.randn(2, 5, SIZE)
    levels, _ = whole.hidden_states(x)
    for depth in (1, 2):
        part = kind(SIZE, layers=depth)
        part.load_state_dict({k: v for k, v in whole.state_dict().items() if k in part.state_dict()})
        if hasattr(part, "norm"):
            part.norm = None
        torch.testing.assert_close(part(x)[0], levels[depth - 1])


def test_a_chain_gives_the_layers_of_its_layers():
    chain, x = Chain(SIZE, [partial(RNN, dim=3, layers=2), partial(RNN, dim=5)]), torch.randn(2, 4, SIZE)
    levels, _ = chain.hidden_states(x)
    assert [level.shape[-1] for level in levels] == [3, 3, 5] and chain.depth == 3
    torch.testing.assert_close(levels[1], chain.layers[0](x)[0])
