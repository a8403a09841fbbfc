"""Every system of Table 2, tiny and with random weights, is searched, scored and joined alike."""

from __future__ import annotations

import copy
import math

import pytest
import torch

from seqloom.config_source import find_config
from seqloom.decoding import (
    Coverage,
    Ensemble,
    beam_search,
    exact_search,
    forced_attention,
    forced_log_probs,
    generate_batch,
)
from seqloom.nn import select
from seqloom.run_config import Config
from seqloom.studies.published import TABLE2

BOS, EOS, VOCABULARY = 2, 3, 17
BLIND = ("seq2seq", "encdec", "bytenet")  # no attention over the source
SEEING = [name for name in TABLE2 if name not in BLIND]


def shrunk(tree):
    """Every width a sixteenth of the preset's."""
    if isinstance(tree, dict):
        return {key: max(2, value // 16) if key == "dim" else shrunk(value) for key, value in tree.items()}
    return [shrunk(one) for one in tree] if isinstance(tree, list) else tree


def tiny(system: str, seed: int = 0) -> torch.nn.Module:
    tree, _ = find_config(system)
    model = (
        Config({**tree, "model": shrunk(copy.deepcopy(tree["model"])), "seed": seed})
        .model(VOCABULARY)
        .double()
        .eval()
    )
    torch.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1:
                weight.copy_(torch.randn(weight.shape) * (1.0 if "table" in name else 0.5))
    return model


@pytest.fixture(params=TABLE2)
def model(request) -> torch.nn.Module:
    return tiny(request.param)


@pytest.fixture(params=SEEING)
def seeing(request) -> torch.nn.Module:
    return tiny(request.param)


SOURCES = torch.tensor([[5, 9, 7, 12, 6, 3], [8, 3, 0, 0, 0, 0], [10, 11, 16, 3, 0, 0], [3, 0, 0, 0, 0, 0]])
REAL = torch.tensor([[True] * 6, [True] * 2 + [False] * 4, [True] * 4 + [False] * 2, [True] + [False] * 5])


def opened(model, rows=slice(None)):
    real = REAL[rows]
    longest = int(real.sum(1).max())
    with torch.inference_mode():
        return model.prepare_prompt(SOURCES[rows, :longest], real[:, :longest], BOS)


def texts(found):
    return [[(one.ids, one.finished) for one in row] for row in found]


def test_the_whole_is_the_steps(model):
    ids = torch.tensor([[2, 5, 9, 7, 7, 4]] * 4)
    _, state, _ = opened(model)
    with torch.inference_mode():
        whole, _ = model.features(ids, state)
        steps = []
        for t in range(6):
            h, state = model.features(ids[:, t : t + 1], state)
            steps.append(h)
    torch.testing.assert_close(torch.cat(steps, 1), whole)


def test_a_beam_of_one_is_greedy(model):
    for stop in ((EOS,), ()):
        greedy = generate_batch(model, *opened(model), max_tokens=9, stop_ids=stop)
        assert texts(
            beam_search(model, *opened(model), width=1, max_tokens=9, stop_ids=stop, length_penalty=0.0)
        ) == texts([[one] for one in greedy])
    assert len({tuple(one.ids) for one in greedy}) > 1


def test_company_changes_nothing(model):
    together = beam_search(model, *opened(model), width=3, max_tokens=8, nbest=3)
    for row in range(len(SOURCES)):
        [alone] = beam_search(model, *opened(model, [row]), width=3, max_tokens=8, nbest=3)
        assert texts([alone]) == texts([together[row]])
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]])


def test_an_ensemble_of_one_is_the_model(model):
    alone, one = (
        beam_search(either, *opened(either), width=3, max_tokens=8, nbest=3)
        for either in (model, Ensemble([model]))
    )
    assert texts(one) == texts(alone)
    for row, same in zip(one, alone, strict=True):
        assert [found.log_probability for found in row] == pytest.approx(
            [found.log_probability for found in same]
        )


def test_the_forced_score_of_an_output_is_its_own(model):
    for row, found in enumerate(beam_search(model, *opened(model), width=4, max_tokens=8, nbest=4)):
        for one in found:
            first, state, _ = opened(model, [row])
            [tokens] = forced_log_probs(model, first, [one.ids], state, eos_id=EOS if one.finished else None)
            assert sum(tokens) == pytest.approx(one.log_probability)
            assert sum(tokens) / ((5 + len(tokens)) / 6) ** 0.6 == pytest.approx(one.score)


def test_no_search_beats_the_exact_one(model):
    for row in range(2):
        proven = exact_search(model, *opened(model, [row]), max_tokens=3)
        for width in (1, 2, 5):
            [[found]] = beam_search(
                model, *opened(model, [row]), width=width, max_tokens=3, length_penalty=0.0
            )
            assert found.log_probability <= proven.log_probability + 1e-9


def test_unlike_systems_write_together():
    """All nine in one beam: each token has the mean of their probabilities."""
    members = [tiny(name, seed) for seed, name in enumerate(TABLE2)]
    both = Ensemble(members)
    for row, [found] in enumerate(beam_search(both, *opened(both), width=3, max_tokens=6)):
        target = [*found.ids, *[EOS] * found.finished]
        probabilities = []
        for one in members:
            first, state, _ = opened(one, [row])
            [tokens] = forced_log_probs(one, first, [target], state, eos_id=None)
            probabilities.append([math.exp(value) for value in tokens])
        mean = [sum(column) / len(members) for column in zip(*probabilities, strict=True)]
        assert sum(map(math.log, mean)) == pytest.approx(found.log_probability)


# What is looked at


def literal(model, row: int, target: list[int], weight: float) -> float:
    """cp of a text, step by step through the model's own look; less than 1e-9 counts as that."""
    _, state, _ = opened(model, [row])
    size = int(REAL[row].sum())
    sums = [0.0] * size
    for token in [BOS, *target[:-1]]:
        with torch.inference_mode():
            _, weights, state = model.features_with_attention(torch.tensor([[token]]), state)
        assert torch.allclose(weights.sum(-1), torch.ones((), dtype=torch.float64))
        for j in range(size):
            sums[j] += (
                sum(float(weights[0, head, 0, j]) for head in range(weights.shape[1])) / weights.shape[1]
            )
    return weight * sum(math.log(min(max(total, 1e-9), 1.0)) for total in sums)


def test_looking_changes_no_feature_and_names_every_source_token(seeing):
    ids = torch.tensor([[2, 5, 9, 7]] * 4)
    _, state, _ = opened(seeing)
    with torch.inference_mode():
        h, weights, _ = seeing.features_with_attention(ids, state)
        torch.testing.assert_close(h, seeing.features(ids, state)[0])
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:3], dtype=torch.float64))
    assert not weights.masked_select(~REAL[:, None, None].expand_as(weights)).any()


@pytest.mark.parametrize("weight", [0.0, 0.2, 3.0])
def test_the_coverage_in_a_score_is_the_sum_over_its_steps(seeing, weight):
    first, state, _ = opened(seeing)
    together = beam_search(
        seeing, first, state, width=4, max_tokens=8, nbest=4, coverage=Coverage(weight, REAL)
    )
    for row, found in enumerate(together):
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            target = [*one.ids, *[EOS] * one.finished]
            plain = one.log_probability / ((5 + len(target)) / 6) ** 0.6
            assert one.score == pytest.approx(plain + literal(seeing, row, target, weight))
    alone = beam_search(
        seeing, *opened(seeing, [2]), width=4, max_tokens=8, nbest=4, coverage=Coverage(weight, REAL[2:3, :4])
    )
    assert texts(alone) == texts([together[2]])


def test_an_exhaustive_beam_with_coverage_finds_the_best_score_of_all(seeing):
    """Every text of up to 2 tokens from a beam that drops none: the bound on prefixes loses nothing."""
    ban = (0, 1, 2, *range(9, VOCABULARY))
    options = {"width": 40, "max_tokens": 3, "banned": ban, "coverage": Coverage(2.0, REAL[:1])}
    [every] = beam_search(seeing, *opened(seeing, [0]), nbest=40, **options)
    [[best]] = beam_search(seeing, *opened(seeing, [0]), nbest=1, **options)
    assert (best.ids, best.finished) == (every[0].ids, every[0].finished) and best.score == pytest.approx(
        every[0].score
    )


def test_weights_of_a_given_text_are_those_of_its_steps(seeing):
    wanted = [[5, 6, 7], [8], [], [4, 4]]
    first, state, _ = opened(seeing)
    for row, (text, weights) in enumerate(
        zip(wanted, forced_attention(seeing, first, wanted, state), strict=True)
    ):
        assert weights.shape[0] == len(text)
        _, after, _ = opened(seeing, [row])
        for t, token in enumerate([BOS, *text[:-1]][: len(text)]):
            with torch.inference_mode():
                _, alpha, after = seeing.features_with_attention(torch.tensor([[token]]), after)
            torch.testing.assert_close(weights[t, : alpha.shape[-1]], alpha.mean(1)[0, 0])


@pytest.mark.parametrize("name", BLIND)
def test_without_attention_there_is_no_coverage(name):
    blind = tiny(name)
    with pytest.raises(ValueError, match="has no attention over its source"):
        beam_search(blind, *opened(blind), coverage=Coverage(0.2, REAL))
    mixed = Ensemble([blind, tiny("rnnsearch")])
    found = beam_search(mixed, *opened(mixed), width=2, max_tokens=5, coverage=Coverage(0.2, REAL))
    alone = tiny("rnnsearch")
    target = [*found[0][0].ids, *[EOS] * found[0][0].finished]
    plain = found[0][0].log_probability / ((5 + len(target)) / 6) ** 0.6
    assert found[0][0].score == pytest.approx(plain + literal(alone, 0, target, 0.2))


def test_wrong_weights_are_named():
    with pytest.raises(ValueError, match="coverage penalty is -1"):
        Coverage(-1, REAL)
    assert (
        select(Coverage(1, REAL).wrap(tiny("rnnsearch"), None)[1], torch.tensor([2])).source_mask.tolist()
        == REAL[2:3].tolist()
    )
