"""Picks against probabilities worked out one by one in plain Python, and frequencies against them by chi-square."""

import itertools
import math
from typing import get_type_hints

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest

from seqloom.decoding.sampling import Greedy, RandomSampler, row_seeds, splitmix64, top_p_filter, uniforms

LOGITS = [1.0, 0.2, -0.5, 2.0, 0.9, -3.0, 1.4, 0.0]


def truncated(logits, temperature=1.0, top_k=None, top_p=None):
    """The distribution sampled from, token by token."""
    weights = {i: math.exp(x / temperature) for i, x in enumerate(logits) if x > -math.inf}
    order = sorted(weights, key=lambda i: (-weights[i], i))[:top_k]
    total = sum(weights[i] for i in order)
    kept, mass = [], 0.0
    for i in order:
        kept.append(i)
        mass += weights[i] / total
        if top_p is not None and mass >= top_p:
            break
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in range(len(logits))]


def draw(pick, logits, count):
    uniform = torch.tensor(uniforms(row_seeds(5, count), 0), dtype=torch.float64)
    return pick(torch.tensor(logits).expand(count, -1), uniform)


def grid(pick, logits, points=4001):
    """The share of each token over evenly spread numbers: the distribution itself, to 1/points."""
    uniform = torch.arange(points, dtype=torch.float64) / points
    return (
        pick(torch.tensor(logits, dtype=torch.float64).expand(points, -1), uniform).bincount(
            minlength=len(logits)
        )
        / points
    )


OPTIONS = [
    {},
    {"temperature": 0.5},
    {"temperature": 3.0},
    {"top_k": 3},
    {"top_p": 0.7},
    {"temperature": 2.0, "top_k": 5, "top_p": 0.6},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_frequencies_match_the_truncated_softmax(options):
    expected = truncated(LOGITS, **options)
    counts = draw(RandomSampler(**options), LOGITS, 20_000).bincount(minlength=len(LOGITS)).tolist()
    assert all(count == 0 for count, p in zip(counts, expected, strict=True) if p == 0)
    kept = [(count, 20_000 * p) for count, p in zip(counts, expected, strict=True) if p > 0]
    assert chisquare(*zip(*kept, strict=True)).pvalue > 0.01


@given(
    logits=st.lists(st.sampled_from([-math.inf, -2.0, 0.0, 0.5, 3.0]), min_size=1, max_size=7).filter(
        lambda x: max(x) > -math.inf
    ),
    temperature=st.floats(0.3, 3),
    top_k=st.none() | st.integers(1, 9),
    top_p=st.none() | st.floats(0.01, 0.99),
)
def test_shares_equal_the_definition_with_ties_and_minus_infinity(logits, temperature, top_k, top_p):
    shares = grid(RandomSampler(temperature, top_k, top_p), logits, 401)
    expected = truncated(logits, temperature, top_k, top_p)
    if top_p is not None:  # at a threshold met to the last bit either side is right
        close = [truncated(logits, temperature, top_k, top_p + d) for d in (-1e-9, 1e-9)]
        if close[0] != close[1]:
            return
    assert shares.tolist() == pytest.approx(expected, abs=2 / 401)


def test_the_token_that_crosses_the_threshold_stays():
    logits = [math.log(p) for p in (0.5, 0.3, 0.2)]
    assert grid(RandomSampler(top_p=0.6), logits).tolist() == pytest.approx([0.625, 0.375, 0], abs=1e-3)
    assert grid(RandomSampler(top_p=1e-9), logits).tolist() == [1, 0, 0]
    assert grid(RandomSampler(top_p=1.0), logits).tolist() == pytest.approx([0.5, 0.3, 0.2], abs=1e-3)


@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_the_nucleus_of_a_large_vocabulary(spread):
    """Flat, it holds most of the 2000 tokens; peaked, a handful; rounded, with many ties."""
    logits = (
        spread * torch.randn(2, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    ).round(decimals=1)
    for row, kept in zip(logits.tolist(), top_p_filter(logits.softmax(-1), 0.777), strict=True):
        assert (kept > 0).tolist() == [p > 0 for p in truncated(row, top_p=0.777)]
        assert torch.equal(kept[kept > 0], torch.tensor(row, dtype=torch.float64).softmax(-1)[kept > 0])


@pytest.mark.parametrize(
    "temperature, top_p, min_p", [(1.0, None, 0.1), (0.7, 0.9, 0.3), (2.0, 0.5, 0.02), (1.0, None, 1.0)]
)
def test_min_p_keeps_what_a_loop_and_transformers_keep(temperature, top_p, min_p):
    from transformers import LogitsProcessorList, MinPLogitsWarper, TemperatureLogitsWarper, TopPLogitsWarper

    logits = torch.randn(40, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    p = np.exp(logits.numpy() / temperature)
    p /= p.sum()
    kept = set(range(40))
    if top_p is not None:
        order = np.argsort(-p)
        kept = {int(i) for n, i in enumerate(order) if p[order[:n]].sum() < top_p}
    kept = {i for i in kept if p[i] >= min_p * max(p)}
    expected = [p[i] / sum(p[j] for j in kept) if i in kept else 0 for i in range(40)]
    shares = grid(RandomSampler(temperature, top_p=top_p, min_p=min_p), logits.tolist(), 4001)
    assert shares.tolist() == pytest.approx(expected, abs=2 / 4001)
    warpers = [TemperatureLogitsWarper(temperature), MinPLogitsWarper(min_p)]
    if top_p is not None:
        warpers.insert(1, TopPLogitsWarper(top_p))
    theirs = LogitsProcessorList(warpers)(torch.zeros(1, 0), logits[None])[0].softmax(-1)
    assert theirs.tolist() == pytest.approx(expected, abs=1e-9)


def test_temperature_comes_before_the_nucleus():
    logits = [math.log(p) for p in (0.5, 0.3, 0.2)]
    assert (grid(RandomSampler(top_p=0.75), logits) > 0).tolist() == [True, True, False]
    assert (grid(RandomSampler(temperature=9.0, top_p=0.75), logits) > 0).tolist() == [
        True,
        True,
        True,
    ]  # flat: two hold about .7
    assert (grid(RandomSampler(top_k=2, top_p=0.6), logits) > 0).tolist() == [
        True,
        False,
        False,
    ]  # of two, the first holds .625


def test_a_tiny_temperature_and_one_candidate_are_greedy():
    logits = torch.randn(50, 30, generator=torch.Generator().manual_seed(0)).round(
        decimals=1
    )  # rounded: with ties
    uniform = torch.rand(50, generator=torch.Generator().manual_seed(1))
    best = torch.tensor([max(range(30), key=row.__getitem__) for row in logits.tolist()])
    assert torch.equal(Greedy()(logits, uniform), best)
    assert torch.equal(RandomSampler(top_k=1)(logits, uniform), best)
    sharp = RandomSampler(temperature=1e-320)(logits, uniform)
    assert torch.equal(logits.gather(1, sharp[:, None]), logits.gather(1, best[:, None]))


def test_impossible_tokens_never_come_out_at_either_end():
    logits = torch.tensor([[-math.inf, 0.0, -math.inf, 0.0, -math.inf]]).expand(2, -1)
    uniform = torch.tensor([0.0, 1 - 2**-53], dtype=torch.float64)
    for pick in (
        RandomSampler(),
        RandomSampler(top_k=4),
        RandomSampler(top_p=1.0),
        RandomSampler(top_k=5, top_p=0.99),
    ):
        assert pick(logits, uniform).tolist() == [1, 3]


@pytest.mark.parametrize(
    "options",
    [
        *({"temperature": t} for t in (0.0, -1.0, math.nan, math.inf)),
        *({"top_k": k} for k in (0, -3, 2.5)),
        *({"top_p": p} for p in (0.0, -0.1, 1.1, math.nan)),
    ],
    ids=str,
)
def test_bad_options_are_refused_by_name(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        RandomSampler(**options)


def test_options_are_annotated_for_configs():
    hints = get_type_hints(RandomSampler.__init__)
    assert (hints["temperature"], hints["top_k"], hints["top_p"]) == (float, int | None, float | None)


def test_hash_gives_the_published_numbers():
    step = 0x9E3779B97F4A7C15
    assert [splitmix64(1234567 + i * step) for i in range(3)] == [
        6457827717110365317,
        3203168211198807973,
        9817491932198370423,
    ]
    assert splitmix64(-1) == splitmix64(2**64 - 1)


def test_numbers_are_uniform_over_rows_over_steps_and_over_seeds():
    over_steps = [uniforms([7], step)[0] for step in range(4000)]
    over_seeds = [uniforms(row_seeds(seed, 1), 0)[0] for seed in range(4000)]
    for numbers in (uniforms(row_seeds(0, 4000), 0), over_steps, over_seeds):
        assert min(numbers) >= 0 and max(numbers) < 1
        assert kstest(numbers, "uniform").pvalue > 0.01
        pairs = [0] * 16
        for a, b in itertools.pairwise(numbers):
            pairs[int(4 * a) * 4 + int(4 * b)] += 1
        assert chisquare(pairs).pvalue > 0.01
