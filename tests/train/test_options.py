"""Schedules equal their closed forms; clipping and optimisers equal torch's."""

import copy
import math

import pytest
import torch
from torch import nn

from seqloom.train.options import (
    SGD,
    AdamW,
    ByValue,
    Constant,
    Cosine,
    GlobalNorm,
    InverseSquareRoot,
    LinearDecay,
    NoClip,
    PerTensor,
)


@pytest.mark.parametrize(
    ("schedule", "form"),
    [
        (Constant(10), lambda s: 1.0),
        (LinearDecay(10, 0.2), lambda s: 1 - 0.8 * (s - 10) / 90),
        (Cosine(10, 0.1), lambda s: 0.1 + 0.9 * (1 + math.cos(math.pi * (s - 10) / 90)) / 2),
        (InverseSquareRoot(10), lambda s: math.sqrt(10 / s)),
    ],
)
def test_a_schedule_warms_up_and_follows_its_form(schedule, form) -> None:
    for step in range(10):
        assert schedule(step, 100) == pytest.approx((step + 1) / 11)
    for step in range(10, 101):
        assert schedule(step, 100) == pytest.approx(form(step))


def test_a_schedule_without_warmup_begins_at_one() -> None:
    assert all(
        kind(0)(0, 10) == pytest.approx(1.0) for kind in (Constant, LinearDecay, Cosine, InverseSquareRoot)
    )


def gradients(scale: float = 1.0) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(3, 4) * scale, torch.randn(5) * scale]


@pytest.mark.parametrize("limit", [0.5, 100.0])
def test_x18_global_norm_is_torchs(limit: float) -> None:
    ours = gradients()
    parameters = [nn.Parameter(torch.zeros_like(g)) for g in ours]
    for parameter, gradient in zip(parameters, gradients(), strict=True):
        parameter.grad = gradient
    norm = GlobalNorm(limit)(ours)
    assert norm == pytest.approx(float(nn.utils.clip_grad_norm_(parameters, limit)))
    for own, parameter in zip(ours, parameters, strict=True):
        assert torch.allclose(own, parameter.grad, atol=1e-6)
    if limit == 100.0:
        assert all(
            a.equal(b) for a, b in zip(ours, gradients(), strict=True)
        )  # below the limit nothing changes


def test_per_tensor_clips_each_alone() -> None:
    ours = [torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])]
    PerTensor(1.0)(ours)
    assert torch.allclose(ours[0], torch.tensor([0.6, 0.8])) and ours[1].equal(torch.tensor([0.3, 0.4]))


def test_by_value_clips_each_number() -> None:
    ours = [torch.tensor([-3.0, 0.5, 2.0])]
    assert ByValue(1.0)(ours) == pytest.approx(math.sqrt(9 + 0.25 + 4))
    assert ours[0].tolist() == [-1.0, 0.5, 1.0]


@pytest.mark.parametrize("clip", [GlobalNorm(1.0), PerTensor(1.0), ByValue(1.0), NoClip()])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_norm_that_is_not_finite_is_said_and_nothing_changes(clip, bad: float) -> None:
    ours = [torch.tensor([3.0, 4.0]), torch.tensor([bad, 1.0])]
    assert not math.isfinite(clip(ours))
    assert ours[0].tolist() == [3.0, 4.0]


def test_adamw_is_torchs_and_decays_matrices_only() -> None:
    torch.manual_seed(1)
    ours = nn.Linear(4, 3)
    theirs = copy.deepcopy(ours)
    optimizer = AdamW(ours.parameters(), lr=0.01, weight_decay=0.5)
    reference = torch.optim.AdamW(
        [{"params": [theirs.weight], "weight_decay": 0.5}, {"params": [theirs.bias], "weight_decay": 0.0}],
        lr=0.01,
        betas=(0.9, 0.99),
    )
    for _ in range(5):
        x = torch.randn(8, 4)
        for model, optim in ((ours, optimizer), (theirs, reference)):
            optim.zero_grad()
            model(x).square().sum().backward()
            optim.step()
    assert torch.allclose(ours.weight, theirs.weight, atol=1e-6) and torch.allclose(
        ours.bias, theirs.bias, atol=1e-6
    )


def test_sgd_is_its_formula() -> None:
    parameter = nn.Parameter(torch.tensor([1.0, 2.0]))
    parameter.grad = torch.tensor([0.5, -1.0])
    SGD([parameter], lr=0.1).step()
    assert torch.allclose(parameter.data, torch.tensor([0.95, 2.1]))


@pytest.mark.parametrize("limit", [0.0, -1.0, math.nan])
def test_a_limit_must_be_above_zero(limit: float) -> None:
    with pytest.raises(ValueError, match=r"clip\.limit"):
        GlobalNorm(limit)
