"""Win rates and diversity by hand."""

import pytest

from seqloom.measure.preferences import distinct, ranking_accuracy, win_rate


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
