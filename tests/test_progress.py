"""What is shown as left follows the pace that is measured of late."""

from __future__ import annotations

import pytest

from seqloom import results as progress
from seqloom.results import PACE_SAMPLES, Progress, Reporter


class Clock:
    """Time that passes only when it is told to."""

    def __init__(self) -> None:
        self.now = 1000.0

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def work(report: Reporter, clock: Clock, seconds: float, pace: float) -> None:
    """So many seconds of work, a step at a time."""
    for _ in range(round(seconds * pace)):
        clock.now += 1 / pace
        report.advance()


@pytest.mark.parametrize("before, after", [(10.0, 10 / 3), (3.0, 9.0)])
def test_the_time_left_follows_a_machine_that_becomes_slower_or_faster(
    clock: Clock, before: float, after: float
) -> None:
    report = Reporter("training", 10_000, progress=False)
    work(report, clock, 100, before)
    assert report.seconds_left() == pytest.approx((10_000 - report.done) / before, rel=0.01)
    work(report, clock, 45, after)
    assert report.seconds_left() == pytest.approx((10_000 - report.done) / after, rel=0.05)
    assert len(report.samples) <= 2 * PACE_SAMPLES


def test_what_comes_before_the_first_report_is_not_counted(clock: Clock) -> None:
    report = Reporter("translating", 100, progress=False)
    clock.now += 60  # compilation
    report.advance(10)
    assert report.seconds_left() is None and "left" not in report.line()
    clock.now += 5
    report.advance(10)
    assert report.seconds_left() == pytest.approx(80 * 5 / 10)


def test_a_resumed_call_is_judged_by_what_it_did_itself(clock: Clock) -> None:
    shown: list[Progress] = []
    report = Reporter("training", 1000, progress=shown.append, done=900)
    assert report.seconds_left() is None
    work(report, clock, 10, 5.0)
    assert shown[-1].seconds_left == pytest.approx(50 / 5)
    assert Reporter("reading", None, progress=False).seconds_left() is None
