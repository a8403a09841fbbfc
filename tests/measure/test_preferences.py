"""Win rates, rankings and diversity by hand."""

import numpy as np
import pytest

from seqloom.measure.preferences import distinct, ranking_accuracy, ranking_interval, win_rate


def test_win_rate_by_hand() -> None:
    rate = win_rate([1, 2, 3, 0], [0, 2, 1, 5])
    assert (rate.value, rate.wins, rate.ties, rate.losses) == (62.5, 2, 1, 1)
    assert rate.low is not None and rate.high is not None and rate.low < 50 < rate.high
    assert win_rate([1] * 400, [0] * 400).low == pytest.approx(99.05, abs=0.05)


def test_diversity_by_hand() -> None:
    assert distinct(["a b a b", "a b"], 2) == 2 / 4  # ab, ba, ab, ab
    assert distinct(["a", ""], 2) == 0


def test_ranking_is_over_all_pairs() -> None:
    good, bad = [3.0, 1.0, 2.0], [1.0, 0.0]
    expected = sum((a > b) + 0.5 * (a == b) for a in good for b in bad) / 6
    assert ranking_accuracy(good, bad) == expected == 5.5 / 6
    assert ranking_accuracy([], bad) == 0.5


def test_the_interval_of_a_ranking_covers_the_truth() -> None:
    """95 of 100 intervals hold P(a > b) = Φ(1/√2) of two normals one apart."""
    chance = np.random.default_rng(0)
    truth, hits = 0.76025, 0
    for _ in range(400):
        low, high = ranking_interval(chance.normal(1, 1, 60).tolist(), chance.normal(0, 1, 25).tolist())
        assert low is not None and high is not None
        hits += low < truth < high
    assert 0.92 <= hits / 400 <= 0.98
    assert ranking_interval([1.0] * 10, [0.0] * 10) == (None, None)  # nothing varies
    assert ranking_interval([1.0] * 10, [0.0, 2.0]) == (None, None)  # too few
