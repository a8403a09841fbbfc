"""The search tree and its reasons, against a beam written out in plain Python and the enumeration of every outcome."""

import math

import pytest
import torch

from seqloom.decoding import SearchTree, beam_search, exact_search, explain_search

YES, OK, END, BOS = range(4)


def plain_beam(table, order, prompt, width, length, stop):
    """For each step: all continuations best first, and which live on. No bound, no penalty: for searches that run to the end."""
    live, steps = [((), 0.0)], []
    for t in range(1, length + 1):
        every = sorted(
            (
                (log_p + math.log(p), (*text, token))
                for text, log_p in live
                for token, p in enumerate(table[(tuple(prompt) + text)[-order:]])
                if p
            ),
            reverse=True,
        )
        going = [one for one in every if one[1][-1] != stop][:width] if t < length else []
        steps.append((every, going))
        live = [(text, log_p) for log_p, text in going]
    return steps


@pytest.mark.parametrize("seed", range(8))
def test_the_tree_is_a_plain_beams_tree(toys, seed):
    """Every continuation in order, with its place; what lives is the plain beam's choice, as long as the bound has not acted."""
    table, tree = toys.random_table(4, 2, seed), SearchTree(max_branches=6)
    beam_search(
        toys.table(table, 2),
        torch.tensor([[1, 2]]),
        width=3,
        max_tokens=4,
        stop_ids=(3,),
        banned=(),
        length_penalty=0.0,
        nbest=3,
        on_step=tree.on_step,
    )
    expected = plain_beam(table, 2, [1, 2], 3, 4, 3)
    for branches, (every, going) in zip(
        tree.steps[:2], expected[:2], strict=True
    ):  # afterwards the bound may have dropped some
        assert len(branches) >= min(6, len(every))
        for branch, (log_p, text) in zip(branches, every, strict=False):
            assert tuple(branch.ids) == text and branch.log_probability == pytest.approx(log_p)
            if branch.status == "lives":
                assert any(text == other for _, other in going)
        assert [branch.rank for branch in branches] == list(range(1, len(branches) + 1))
    assert [b.ids for b in tree.steps[0] if b.status == "lives"] == [list(text) for _, text in expected[0][1]]
    assert any(branch.status == "pruned" for branch in tree.steps[1])


def test_figure_10_8_why_not_ok_ok(toys):
    """Greedy drops "ok" at the first step, where it stands second, ln(.5 / .4) below: a search error, since the model prefers it."""
    reason = explain_search(
        toys.dialogue(),
        torch.tensor([[BOS]]),
        [OK, OK],
        width=1,
        eos_id=END,
        banned=(BOS,),
        length_penalty=0.0,
    )
    assert reason.verdict == "search error" and reason.answer.ids == [YES, YES]
    assert (reason.pruned_at, reason.rank) == (1, 2) and reason.gap == pytest.approx(math.log(0.5 / 0.4))
    assert reason.log_probability == pytest.approx(math.log(0.28))
    assert [math.exp(token) for token in reason.tokens] == pytest.approx([0.4, 0.7, 1.0])
    wider = explain_search(
        toys.dialogue(),
        torch.tensor([[BOS]]),
        [OK, OK],
        width=2,
        eos_id=END,
        banned=(BOS,),
        length_penalty=0.0,
    )
    assert wider.verdict == "found" and wider.pruned_at is None
    worse = explain_search(
        toys.dialogue(),
        torch.tensor([[BOS]]),
        [YES, OK],
        width=2,
        eos_id=END,
        banned=(BOS,),
        length_penalty=0.0,
    )
    assert worse.verdict == "model error" and worse.pruned_at is not None


@pytest.mark.parametrize("penalty", [0.0, 0.8])
@pytest.mark.parametrize("seed", range(10))
def test_verdicts_agree_with_the_enumeration(toys, seed, penalty):
    table = toys.random_table(4, 2, seed)
    outcomes = toys.enumerate_all(table, 2, [1, 2], 4, stop=(3,), penalty=penalty)
    ranks = {}
    for score, log_p, text, done in outcomes:
        if not done:
            continue
        reason = explain_search(
            toys.table(table, 2),
            torch.tensor([[1, 2]]),
            text,
            width=2,
            max_tokens=4,
            eos_id=3,
            banned=(),
            length_penalty=penalty,
        )
        assert (reason.score, reason.log_probability) == pytest.approx((score, log_p))
        right = (
            "found"
            if reason.answer.ids == text and reason.answer.finished
            else "search error"
            if score > reason.answer.score
            else "model error"
        )
        assert reason.verdict == right
        if reason.verdict == "search error":
            assert reason.pruned_at is not None and reason.gap is not None and reason.rank > 2
        ranks[reason.verdict] = ranks.get(reason.verdict, 0) + 1
    assert ranks["model error"] > 0


def test_why_of_a_network_and_of_the_proven_best(network):
    """The model prefers no text to its best one, so a search that misses it is to blame."""
    told = 0
    for first in range(4, 11):
        prompt = torch.tensor([[1, first]])
        best = exact_search(network, prompt, max_tokens=6)
        if best.finished:
            told += 1
            reason = explain_search(network, prompt, best.ids, width=1, max_tokens=6, length_penalty=0.0)
            assert reason.verdict in ("found", "search error")
            assert reason.log_probability == pytest.approx(best.log_probability)
    assert told


def test_mistakes_are_named(toys):
    with pytest.raises(ValueError, match="cannot produce this text"):
        explain_search(toys.lstm(), torch.tensor([[1]]), [2])
    with pytest.raises(ValueError, match="give one"):
        explain_search(toys.lstm(), torch.tensor([[1], [2]]), [5])
