"""Win rates and diversity by hand."""

import pytest

from seqloom.measure.preferences import distinct, win_rate


def test_win_rate_by_hand() -> None:
    rate = win_rate([1, 2, 3, 0], [0, 2, 1, 5])
    assert (rate.value, rate.wins, rate.ties, rate.losses) == (62.5, 2, 1, 1)
    assert rate.low is not None and rate.high is not None and rate.low < 50 < rate.high
    assert win_rate([1] * 400, [0] * 400).low == pytest.approx(99.05, abs=0.05)


def test_diversity_by_hand() -> None:
    assert distinct(["a b a b", "a b"], 2) == 2 / 4  # ab, ba, ab, ab
    assert distinct(["a", ""], 2) == 0
