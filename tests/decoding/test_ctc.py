"""Texts of CTC against the enumeration of every alignment."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pytest

from seqloom.decoding.ctc import CTCSearch, align_text, greedy_text
from seqloom.errors import UserError

Text = tuple[int, ...]


def collapse(alignment: Sequence[int]) -> Text:
    """The text of an alignment, by the definition."""
    return tuple(token for token, _ in itertools.groupby(alignment) if token)


def random_frames(random: np.random.Generator, frames: int = 5, vocabulary: int = 4) -> np.ndarray:
    return np.log(random.dirichlet(np.full(vocabulary, 0.5), frames) + 1e-3)


def enumerate_texts(log_probs: np.ndarray) -> tuple[dict[Text, float], dict[Text, float]]:
    """ln Σ P and max ln P over the alignments of every text."""
    totals: dict[Text, float] = {}
    best: dict[Text, float] = {}
    for alignment in itertools.product(range(log_probs.shape[1]), repeat=len(log_probs)):
        score = float(sum(log_probs[t, token] for t, token in enumerate(alignment)))
        text = collapse(alignment)
        totals[text] = float(np.logaddexp(totals.get(text, -np.inf), score))
        best[text] = max(best.get(text, -np.inf), score)
    return totals, best


class Bigrams:
    """A language model with a table of ln P(next | last); 0 is the beginning and the end."""

    def __init__(self, random: np.random.Generator, vocabulary: int = 4):
        self.table = np.log(random.dirichlet(np.ones(vocabulary), vocabulary))

    def __call__(self, prefixes: Sequence[Text]) -> tuple[np.ndarray, np.ndarray]:
        rows = np.stack([self.table[prefix[-1] if prefix else 0] for prefix in prefixes])
        return rows, rows[:, 0]

    def log_prob(self, text: Text) -> float:
        return float(sum(self.table[a, b] for a, b in itertools.pairwise((0, *text, 0))))


@pytest.mark.parametrize("seed", range(12))
def test_a_beam_that_holds_everything_finds_the_best_texts(seed: int) -> None:
    random = np.random.default_rng(seed)
    log_probs = random_frames(random)
    totals, _ = enumerate_texts(log_probs)
    expected = sorted(totals.items(), key=lambda item: -item[1])[:6]
    found = CTCSearch(beam=4096)(log_probs, 6)
    assert [text.ids for text in found] == [text for text, _ in expected]
    assert np.allclose([text.logprob for text in found], [score for _, score in expected])


@pytest.mark.parametrize("seed", range(12))
def test_shallow_fusion_ranks_by_the_sum_of_both(seed: int) -> None:
    random = np.random.default_rng(100 + seed)
    log_probs, lm = random_frames(random), Bigrams(random)
    totals, _ = enumerate_texts(log_probs)
    scores = {text: score + 0.7 * lm.log_prob(text) + 0.3 * len(text) for text, score in totals.items()}
    expected = sorted(scores.items(), key=lambda item: -item[1])[:6]
    found = CTCSearch(4096, lm, 0.7, 0.3)(log_probs, 6)
    assert [text.ids for text in found] == [text for text, _ in expected]
    assert np.allclose([text.score for text in found], [score for _, score in expected])
    assert np.allclose([text.lm_logprob for text in found], [lm.log_prob(text) for text, _ in expected])


def test_a_narrow_beam_never_claims_more_than_the_truth() -> None:
    random = np.random.default_rng(7)
    for _ in range(10):
        log_probs = random_frames(random, 6)
        totals, _ = enumerate_texts(log_probs)
        for text in CTCSearch(beam=3)(log_probs, 3):
            assert text.logprob <= totals[text.ids] + 1e-9


def test_greedy_is_the_best_alignment() -> None:
    random = np.random.default_rng(3)
    for _ in range(20):
        log_probs = random_frames(random)
        best = max(
            itertools.product(range(4), repeat=5), key=lambda a: sum(log_probs[t, x] for t, x in enumerate(a))
        )
        assert greedy_text(log_probs) == collapse(best) == CTCSearch()(log_probs)[0].ids


def test_a_text_is_aligned_by_its_best_alignment() -> None:
    random = np.random.default_rng(4)
    for _ in range(10):
        log_probs = random_frames(random)
        _, best = enumerate_texts(log_probs)
        for text, score in best.items():
            spans, found = align_text(log_probs, text)
            assert np.isclose(found, score)
            alignment = [0] * len(log_probs)
            for token, (first, last) in zip(text, spans, strict=True):
                alignment[first:last] = [token] * (last - first)
            assert collapse(alignment) == text
            assert np.isclose(sum(log_probs[t, token] for t, token in enumerate(alignment)), score)


def test_what_cannot_be_is_refused() -> None:
    log_probs = random_frames(np.random.default_rng(0), 2)
    with pytest.raises(UserError, match="2 frames are too few"):
        align_text(log_probs, (1, 1))
    never = log_probs.copy()
    never[:, 2] = -np.inf
    with pytest.raises(UserError, match="characters that the recognizer never writes"):
        align_text(never, (2,))
    with pytest.raises(UserError, match="a beam of 0"):
        CTCSearch(beam=0)
    assert CTCSearch(beam=4)(log_probs[:0])[0].ids == ()
