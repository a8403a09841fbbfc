"""Workers: results in order, the caller's context inside each of them, nothing changed for other threads."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from seqloom.decoding import parallel_map
from seqloom.decoding.workers import Cancelled, _cancelled, check_cancelled
from seqloom.fused.dispatch import fused_enabled, plain
from seqloom.nn.capture import capture
from seqloom.nn.layer import HasPoints, add_aux_loss, collect_aux_losses, record

PART = HasPoints()


def test_results_come_in_the_order_of_the_items() -> None:
    for workers in (1, 2, 5):
        assert parallel_map(lambda item: item * item, range(20), workers) == [
            item * item for item in range(20)
        ]
    with pytest.raises(ValueError, match="workers is 0: give at least 1"):
        parallel_map(str, [1], 0)


def test_the_callers_context_holds_in_the_workers() -> None:
    """A model that is compared with its plain form, captured or balanced gives the same with any number of workers."""
    for workers in (1, 2):
        with plain():
            assert parallel_map(lambda _: fused_enabled(), range(4), workers) == [False] * 4
        assert parallel_map(lambda _: fused_enabled(), range(4), workers) == [True] * 4
        with collect_aux_losses() as losses, capture(PART) as weights:
            parallel_map(lambda item: add_aux_loss(torch.tensor(float(item))), range(4), workers)
            parallel_map(lambda item: record(PART, "x", torch.tensor(float(item))), range(4), workers)
        assert sorted(float(loss) for loss in losses) == [0, 1, 2, 3]
        assert sorted(map(float, weights.all().values())) == [0, 1, 2, 3]


def test_a_context_that_a_worker_opens_ends_with_its_item() -> None:
    both = threading.Barrier(2)

    def work(item: int) -> tuple[bool, bool]:
        both.wait()
        before = fused_enabled()
        with plain():
            both.wait()
            inside = fused_enabled()
            both.wait()
        return before, inside

    assert parallel_map(work, range(6), 2) == [(True, False)] * 6
    assert fused_enabled()


def test_each_thread_has_a_switch_and_collections_of_its_own() -> None:
    """One thread inside `plain()` and one outside, at the same time; likewise for captured weights and collected losses."""
    together = threading.Barrier(2)

    def literal() -> tuple[bool, int, int]:
        with plain(), capture(PART) as weights, collect_aux_losses() as losses:
            together.wait()
            record(PART, "x", torch.zeros(1))
            add_aux_loss(torch.zeros(()))
            enabled = fused_enabled()
            together.wait()
        return enabled, len(weights), len(losses)

    def fused() -> tuple[bool, int, int]:
        with collect_aux_losses() as losses:
            together.wait()
            record(PART, "x", torch.zeros(1))
            add_aux_loss(torch.zeros(()))
            add_aux_loss(torch.zeros(()))
            enabled = fused_enabled()
            together.wait()
        return enabled, 0, len(losses)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.submit(literal), pool.submit(fused)
    assert first.result() == (False, 1, 1)
    assert second.result() == (True, 0, 2)


def test_workers_use_one_torch_thread_and_change_no_other_thread() -> None:
    before = torch.get_num_threads()
    working, checked = threading.Barrier(3), threading.Event()

    def work(_: int) -> int:
        working.wait(60)
        checked.wait(60)
        return torch.get_num_threads()

    with ThreadPoolExecutor(1) as fresh:
        default = fresh.submit(torch.get_num_threads).result()
    torch.set_num_threads(before + 2)
    try:
        with ThreadPoolExecutor(1) as caller:
            counts = caller.submit(parallel_map, work, range(2), 2)
            working.wait(60)
            with ThreadPoolExecutor(1) as fresh:
                assert fresh.submit(torch.get_num_threads).result() == before + 2
            assert torch.get_num_threads() == before + 2
            checked.set()
            assert counts.result() == [1, 1]
    finally:
        torch.set_num_threads(default)
        torch.set_num_threads(before)


def test_a_worker_ends_at_its_next_step_once_another_has_failed() -> None:
    started, finished = threading.Barrier(2), list[int]()

    def work(item: int) -> None:
        started.wait()
        if item:
            raise KeyboardInterrupt
        event = _cancelled.get()
        assert event is not None and event.wait(60)
        with pytest.raises(Cancelled):
            check_cancelled()
        check_cancelled()
        finished.append(item)

    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, [1, 0], 2)
    assert not finished
    check_cancelled()
