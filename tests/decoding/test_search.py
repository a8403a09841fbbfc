"""Beam and exact search against the enumeration of every outcome."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.decoding import beam_search, exact_search, generate_batch

YES, OK, END, BOS = range(4)


def same(found, outcomes):
    """The same list, where outcomes of equal score may stand in any order."""
    assert len(found) == len({(*one.ids, one.finished) for one in found}) <= len(outcomes)
    for one, (score, *_) in zip(found, outcomes, strict=False):
        assert one.score == pytest.approx(score)
        [own] = [other for other in outcomes if other[2:] == (one.ids, one.finished)]
        assert (one.score, one.log_probability) == pytest.approx(own[:2])


def test_figure_10_8_greedy_says_yes_yes_and_searches_say_ok_ok(toys):
    model, ids = toys.dialogue(), torch.tensor([[BOS]])
    [greedy] = generate_batch(model, ids, stop_ids=(END,), banned=(BOS,))
    [[best]] = beam_search(model, ids, width=2, length_penalty=0.0, stop_ids=(END,), banned=(BOS,))
    proven = exact_search(model, ids, stop_ids=(END,), banned=(BOS,))
    assert greedy.ids == [YES, YES] and math.exp(greedy.log_probability) == pytest.approx(0.20)
    for found in (best, proven):
        assert (
            found.ids == [OK, OK]
            and found.finished
            and math.exp(found.log_probability) == pytest.approx(0.28)
        )


@pytest.mark.parametrize("penalty", [0.0, 0.6, 1.0, 2.5])
@pytest.mark.parametrize("seed", range(6))
def test_a_wide_beam_lists_every_outcome_in_order(toys, penalty, seed):
    table = toys.random_table(4, 2, seed)
    outcomes = toys.enumerate_all(table, 2, [1, 2], 4, stop=(3,), ban=(0,), penalty=penalty)
    [found] = beam_search(
        toys.table(table, 2),
        torch.tensor([[1, 2]]),
        width=200,
        max_tokens=4,
        stop_ids=(3,),
        banned=(0,),
        length_penalty=penalty,
        nbest=len(outcomes),
    )
    assert len(found) == len(outcomes) == 31
    same(found, outcomes)


@pytest.mark.parametrize("penalty", [0.0, 0.6, 2.5])
@pytest.mark.parametrize("nbest", [1, 3])
def test_leaving_early_never_loses_the_best(toys, penalty, nbest):
    """With room for every prefix, only the bound can drop one; were it too tight, a better outcome would go missing."""
    for seed in range(20):
        table = toys.random_table(3, 1, seed)
        model = toys.table(table, 1)
        outcomes = toys.enumerate_all(table, 1, [1], 7, stop=(2,), penalty=penalty)
        [found] = beam_search(
            model,
            torch.tensor([[1]]),
            width=200,
            max_tokens=7,
            stop_ids=(2,),
            banned=(),
            length_penalty=penalty,
            nbest=nbest,
        )
        assert len(found) == nbest
        same(found, outcomes)


def test_a_length_penalty_can_prefer_the_longer_text(toys):
    table = {(0,): [0, 0.55, 0.45], (1,): [0, 0.8, 0.2], (2,): [1, 0, 0]}  # token 2 ends
    texts = {}
    for penalty in (0.0, 3.0):
        [[best]] = beam_search(
            toys.table(table, 1),
            torch.tensor([[0]]),
            width=4,
            max_tokens=4,
            stop_ids=(2,),
            banned=(),
            length_penalty=penalty,
        )
        same([best], toys.enumerate_all(table, 1, [0], 4, stop=(2,), penalty=penalty))
        texts[penalty] = best.ids
    assert len(texts[3.0]) > len(texts[0.0]) == 0


@given(
    seed=st.integers(0, 10_000),
    prompt=st.lists(st.integers(0, 3), min_size=1, max_size=3),
    length=st.integers(1, 5),
)
@settings(max_examples=60, deadline=None)
def test_exact_is_the_enumerations_best_and_no_search_beats_it(toys, seed, prompt, length):
    table = toys.random_table(4, 2, seed)
    model, ids = toys.table(table, 2), torch.tensor([prompt])
    proven = exact_search(model, ids, max_tokens=length, stop_ids=(3,), banned=(0,))
    same([proven], toys.enumerate_all(table, 2, prompt, length, stop=(3,), ban=(0,)))
    [greedy] = generate_batch(model, ids, max_tokens=length, stop_ids=(3,), banned=(0,))
    for width in (1, 2, 3):
        [found] = beam_search(
            model,
            ids,
            width=width,
            max_tokens=length,
            stop_ids=(3,),
            banned=(0,),
            length_penalty=0.0,
            nbest=width,
        )
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        assert all(proven.log_probability >= one.log_probability - 1e-9 for one in found)
        if width == 1:  # a wider beam may do worse than greedy; a beam of one is greedy
            assert (found[0].ids, found[0].finished) == (greedy.ids, greedy.finished)
            assert found[0].log_probability == pytest.approx(greedy.log_probability)


PROMPTS, MASK = (
    torch.tensor([[1, 5, 6, 4], [4, 0, 0, 0], [7, 8, 0, 0]]),
    torch.tensor([[1, 1, 1, 1], [1, 0, 0, 0], [1, 1, 0, 0]]).bool(),
)


@pytest.mark.parametrize("penalty", [0.0, 0.6])
@pytest.mark.parametrize("width", [1, 2, 5])
def test_a_batch_is_each_prompt_alone(network, width, penalty):
    options = {"width": width, "max_tokens": 7, "stop_ids": (3, 9), "length_penalty": penalty, "nbest": width}
    together = beam_search(network, PROMPTS, mask=MASK, **options)
    for row in range(3):
        [alone] = beam_search(network, PROMPTS[row : row + 1, : int(MASK[row].sum())], **options)
        assert [(one.ids, one.finished) for one in alone] == [
            (one.ids, one.finished) for one in together[row]
        ]
        assert [one.score for one in alone] == pytest.approx([one.score for one in together[row]])


def test_every_log_probability_is_the_texts_own(network):
    """Teacher forcing agrees, so the state followed its beam through every reordering."""
    for row, found in enumerate(
        beam_search(network, PROMPTS, mask=MASK, width=6, max_tokens=8, stop_ids=(3, 9), nbest=6)
    ):
        prompt = PROMPTS[row, : int(MASK[row].sum())].tolist()
        for one in found:
            h, _ = network.features(torch.tensor([prompt + one.ids]), None, None)
            log_p = network.output(h).detach()[0, len(prompt) - 1 :].log_softmax(-1)
            total = sum(float(log_p[t, token]) for t, token in enumerate(one.ids))
            ends = [total + float(log_p[-1, stop]) for stop in (3, 9)] if one.finished else [total]
            assert any(one.log_probability == pytest.approx(end) for end in ends)


def test_a_beam_of_one_is_greedy_on_real_networks(network):
    for stop in ((), (3,), (3, 9, 10)):
        greedy = generate_batch(network, PROMPTS, mask=MASK, max_tokens=9, stop_ids=stop)
        found = beam_search(
            network, PROMPTS, mask=MASK, width=1, max_tokens=9, stop_ids=stop, length_penalty=0.0
        )
        assert [(one.ids, one.finished) for one in greedy] == [(one[0].ids, one[0].finished) for one in found]


def test_exact_equals_a_beam_wide_enough_for_everything(network):
    proven = exact_search(network, PROMPTS[:1], max_tokens=3, stop_ids=(3,))
    [[widest]] = beam_search(
        network, PROMPTS[:1], width=1000, max_tokens=3, stop_ids=(3,), length_penalty=0.0
    )
    assert (proven.ids, proven.finished) == (widest.ids, widest.finished)
    assert proven.log_probability == pytest.approx(widest.log_probability)


def test_certain_sentences_and_hopeless_prefixes_leave_the_batch(toys):
    table = {(n,): [0.0] * 6 for n in range(6)}
    table[1,][5] = 1.0  # ends at once, for certain
    table[2,][3], table[3,][4], table[4,][5], table[5,][5] = 1.0, 1.0, 1.0, 1.0
    model = toys.table(table, 1)
    found = beam_search(model, torch.tensor([[1], [2]]), width=3, max_tokens=50, stop_ids=(5,), banned=())
    assert [(one[0].ids, one[0].finished) for one in found] == [([], True), ([3, 4], True)]
    assert model.seen == [(2, 1), (1, 1), (1, 1)]


def test_the_prompt_is_read_once_not_once_per_beam(toys):
    model = toys.table(toys.random_table(6, 1, 0), 1)
    beam_search(model, torch.tensor([[1, 2, 4], [4, 4, 1]]), width=4, max_tokens=2, stop_ids=(), banned=())
    assert model.seen == [(2, 3), (8, 1)] and model.read == [(2, 1), (8, 1)]


def test_length_is_clipped_to_the_context_of_each_row(toys):
    model = toys.attention(context=6)
    found = beam_search(model, PROMPTS, mask=MASK, stop_ids=(), max_tokens=100)
    assert [(len(one[0].ids), one[0].finished) for one in found] == [(3, False), (6, False), (5, False)]
    with pytest.raises(ValueError, match="takes 3 at most"):
        beam_search(toys.attention(context=3), PROMPTS, mask=MASK)
    with pytest.raises(ValueError, match="takes 3 at most"):
        exact_search(toys.attention(context=3), PROMPTS[:1])


def test_room_is_taken_for_what_is_written_not_for_what_may_be(toys):
    options = {"width": 3, "nbest": 2, "stop_ids": (END,), "banned": (BOS,), "length_penalty": 0.0}
    assert beam_search(toys.dialogue(), torch.tensor([[BOS]]), max_tokens=2**40, **options) == beam_search(
        toys.dialogue(), torch.tensor([[BOS]]), max_tokens=9, **options
    )


def test_mistakes_are_named(toys):
    model, ids = toys.table({(1,): [1.0, 0.0], (0,): [1.0, 0.0]}, 1), torch.tensor([[1]])
    for options, message in [
        ({"width": 0}, "width"),
        ({"width": 2, "nbest": 3}, "nbest"),
        ({"length_penalty": -1.0}, "penalty"),
        ({"length_penalty": math.nan}, "penalty"),
    ]:
        with pytest.raises(ValueError, match=message):
            beam_search(model, ids, **options)
    for search in (beam_search, exact_search):
        with pytest.raises(ValueError, match="banned"):
            search(model, ids, banned=(0,))
    with pytest.raises(ValueError, match="2 prompts"):
        exact_search(model, ids.repeat(2, 1))
    with pytest.raises(ValueError, match="no proof after 20 calls"):
        exact_search(
            toys.table({(n,): [0.25] * 4 for n in range(4)}, 1),
            ids,
            max_tokens=30,
            stop_ids=(),
            banned=(),
            max_calls=20,
        )
    assert beam_search(model, ids[:0]) == []
