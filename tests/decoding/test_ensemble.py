"""Ensembles and forced decoding: equal to the definition, and to what searches report."""

import pytest
import torch

from seqloom.decoding import (
    Ensemble,
    RandomSampler,
    beam_search,
    exact_search,
    forced_log_probs,
    generate_batch,
)

PROMPTS = torch.tensor([[1, 5, 7], [1, 4, 9], [1, 6, 0]])
REAL = torch.tensor([[True, True, True], [True, True, True], [True, True, False]])


def test_an_ensemble_of_one_is_the_model(network):
    alone = beam_search(network, PROMPTS, mask=REAL, width=3, max_tokens=6, nbest=3)
    assert [
        [one.ids for one in found]
        for found in beam_search(Ensemble([network]), PROMPTS, mask=REAL, width=3, max_tokens=6, nbest=3)
    ] == [[one.ids for one in found] for found in alone]
    pick = RandomSampler(temperature=0.8)
    sampled = generate_batch(Ensemble([network]), PROMPTS, mask=REAL, sampler=pick, max_tokens=6)
    expected = generate_batch(network, PROMPTS, mask=REAL, sampler=pick, max_tokens=6)
    assert [one.ids for one in sampled] == [one.ids for one in expected]
    for one, other in zip(sampled, expected, strict=True):
        assert one.log_probabilities == pytest.approx(other.log_probabilities, rel=1e-12)


def test_an_ensemble_averages_probabilities_of_unlike_models(toys):
    one, two = toys.lstm(seed=1), toys.attention(seed=2)
    both = Ensemble([one, two])
    h, state = both.features(PROMPTS, None, None)
    h2, _ = both.features(torch.tensor([[3], [8], [2]]), state, None)
    text = torch.cat([PROMPTS, torch.tensor([[3], [8], [2]])], 1)
    expected = sum(m.output(m.features(text, None, None)[0]).softmax(-1) for m in (one, two)) / 2
    torch.testing.assert_close(both.output(torch.cat([h, h2], 1)).exp(), expected)
    assert both.context == two.context


def test_an_ensemble_of_tables_finds_the_best_text_of_the_mixture(toys):
    """The mixture of two tables is a model again only step by step: enumerate it."""
    tables = [toys.random_table(3, 3, seed) for seed in (0, 1)]
    mixed = {c: [(a + b) / 2 for a, b in zip(tables[0][c], tables[1][c], strict=True)] for c in tables[0]}
    outcomes = toys.enumerate_all(mixed, 3, [1], 3, stop=(2,))
    both = Ensemble([toys.table(table, 3) for table in tables])
    found = exact_search(both, torch.tensor([[1]]), max_tokens=3, stop_ids=(2,), banned=())
    assert found.log_probability == pytest.approx(outcomes[0][1])
    [[best]] = beam_search(
        both, torch.tensor([[1]]), width=50, max_tokens=3, stop_ids=(2,), banned=(), length_penalty=0.0
    )
    assert (best.ids, best.finished) == tuple(outcomes[0][2:])


def test_members_must_fit_one_another(toys):
    with pytest.raises(ValueError, match="one tokenizer"):
        generate_batch(Ensemble([toys.lstm(vocabulary=11), toys.lstm(vocabulary=12)]), PROMPTS)
    with pytest.raises(ValueError, match="at least one"):
        Ensemble([])


def test_forced_log_probabilities_are_what_searches_report(network):
    greedy = [[text] for text in generate_batch(network, PROMPTS, mask=REAL, max_tokens=5)]
    for found in (greedy, beam_search(network, PROMPTS, mask=REAL, width=4, max_tokens=5, nbest=4)):
        for place in range(len(found[0])):
            chosen = [one[place] for one in found]
            for done in (True, False):
                rows = [row for row, one in enumerate(chosen) if one.finished is done]
                if rows:
                    scored = forced_log_probs(
                        network,
                        PROMPTS[rows],
                        [chosen[row].ids for row in rows],
                        mask=REAL[rows],
                        eos_id=3 if done else None,
                    )
                    for row, tokens in zip(rows, scored, strict=True):
                        assert sum(tokens) == pytest.approx(chosen[row].log_probability)


def test_forcing_a_batch_is_forcing_each_alone(network):
    texts = [[4, 5, 6, 7], [8], []]
    together = forced_log_probs(network, PROMPTS, texts, mask=REAL)
    for row, text in enumerate(texts):
        [alone] = forced_log_probs(network, PROMPTS[row : row + 1, : int(REAL[row].sum())], [text])
        assert together[row] == pytest.approx(alone) and len(alone) == len(text) + 1


def test_a_text_that_does_not_fit_is_named(toys):
    with pytest.raises(ValueError, match="only 14 fit into the model"):
        forced_log_probs(toys.attention(context=16), PROMPTS, [[4] * 20, [4], [4]])
    with pytest.raises(ValueError, match="one each"):
        forced_log_probs(toys.lstm(), PROMPTS, [[4]])
