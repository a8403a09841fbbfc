"""Dropout: its rate, its exact mean, and that one decision says nothing of another."""

from __future__ import annotations

import math

import pytest
import torch

from seqloom.nn import Dropout

COUNT = 400_000
RATES = [0.01, 0.1, 0.25, 0.5, 0.9, 0.999]


def kept(rate: float, *shape: int) -> torch.Tensor:
    """1 where dropout keeps."""
    return (Dropout(rate)(torch.ones(shape)) != 0).double()


@pytest.mark.parametrize("rate", RATES)
def test_as_many_are_dropped_as_the_rate_says(rate: float):
    """Within five standard deviations of the rate in 256ths, which is within 1/512 of the rate itself, or the last below 1."""
    exact = Dropout(rate).dropped / 256
    assert abs(exact - rate) <= 1 / 512 or exact == 255 / 256
    dropped = 1 - kept(rate, COUNT).mean().item()
    assert abs(dropped - exact) < 5 * math.sqrt(exact * (1 - exact) / COUNT)


@pytest.mark.parametrize("rate", RATES)
def test_the_mean_stays_exact(rate: float):
    """What is kept is scaled by 1 / (share kept), with the rate that is really used."""
    part = Dropout(rate)
    values = part(torch.ones(COUNT, dtype=torch.float64)).unique()
    scale = 256 / (256 - part.dropped)
    assert values.tolist() == [0.0, scale] and scale * (256 - part.dropped) / 256 == pytest.approx(
        1, abs=1e-15
    )


@pytest.mark.parametrize("lane", range(8))
def test_every_byte_of_a_draw_is_uniform(lane: int):
    """Eight decisions share one draw: each of the eight has the same rate, the one with the sign bit too."""
    share = kept(0.5, COUNT)[lane::8].mean().item()
    assert abs(share - 0.5) < 5 * 0.5 / math.sqrt(COUNT / 8)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 7, 8, 9, 64, 512])
def test_neighbours_are_independent(lag: int):
    """Along a row, across draws, and from row to row (rows of 512)."""
    keep = kept(0.3, COUNT)
    pairs = torch.corrcoef(torch.stack([keep[:-lag], keep[lag:]]))[0, 1].item()
    assert abs(pairs) < 5 / math.sqrt(COUNT)


def test_two_calls_are_independent():
    pairs = torch.corrcoef(torch.stack([kept(0.3, COUNT), kept(0.3, COUNT)]))[0, 1].item()
    assert abs(pairs) < 5 / math.sqrt(COUNT)


def test_off_in_evaluation_and_at_rate_zero():
    x = torch.randn(5, 7)
    assert Dropout(0.5).eval()(x) is x
    assert Dropout(0.0)(x) is x


def test_the_seed_decides():
    part, x = Dropout(0.5), torch.randn(33, 7)
    torch.manual_seed(3)
    first, second = part(x), part(x)
    torch.manual_seed(3)
    assert torch.equal(part(x), first) and not torch.equal(second, first)


def test_the_gradient_is_the_mask():
    x = torch.ones(9, 5, requires_grad=True)
    y = Dropout(0.4)(x)
    upstream = torch.randn(9, 5)
    (gradient,) = torch.autograd.grad((y * upstream).sum(), x)
    assert torch.equal(gradient, y.detach() * upstream)


@pytest.mark.parametrize("shape", [(0,), (1,), (3,), (2, 0, 4), (3, 5, 7)])
def test_any_shape_and_any_layout(shape: tuple[int, ...]):
    x = torch.randn(shape)
    y = Dropout(0.5)(x.T if x.dim() == 2 else x)
    assert y.shape == shape
    z = torch.randn(6, 8).T
    assert set((Dropout(0.5)(z) / z).flatten().round(decimals=9).tolist()) <= {0.0, 2.0}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_type_stays(dtype: torch.dtype):
    assert Dropout(0.5)(torch.ones(8, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("rate", [-0.1, 1.0, 1.5, float("nan")])
def test_a_wrong_rate_is_one_sentence(rate: float):
    with pytest.raises(ValueError, match="dropout must be at least 0 and below 1"):
        Dropout(rate)
