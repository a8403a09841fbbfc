"""The thread count of one call: set for the calling thread, restored afterwards, invisible to all other threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.errors import UserError
from seqloom.threads import set_for_this_thread, thread_count, use_threads


def in_new_thread(work: Callable[[], int]) -> int:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def test_the_count_holds_inside_and_is_restored() -> None:
    before, default = torch.get_num_threads(), in_new_thread(torch.get_num_threads)
    with use_threads(before + 2):
        assert torch.get_num_threads() == before + 2
        assert in_new_thread(torch.get_num_threads) == default
        with use_threads(1):
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == before + 2
        with use_threads(None):
            assert torch.get_num_threads() == before + 2
    assert torch.get_num_threads() == before
    assert in_new_thread(torch.get_num_threads) == default


def test_the_count_is_restored_after_an_error() -> None:
    before = torch.get_num_threads()
    with pytest.raises(RuntimeError, match="stop"), use_threads(before + 1):
        raise RuntimeError("stop")
    assert torch.get_num_threads() == before
    with pytest.raises(ValueError, match="threads is 0: give at least 1"):
        set_for_this_thread(0)


def test_threads_with_different_counts_do_not_change_one_another() -> None:
    default = in_new_thread(torch.get_num_threads)
    together = threading.Barrier(4)

    def counts(count: int) -> tuple[int, int]:
        together.wait()
        with use_threads(count):
            together.wait()
            inside = torch.get_num_threads()
            together.wait()
        return inside, torch.get_num_threads()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(counts, [1, 2, 3, 5])) == [(count, default) for count in (1, 2, 3, 5)]
    assert in_new_thread(torch.get_num_threads) == default


def test_the_environment_sets_the_threads_of_a_training_from_python(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SEQLOOM_THREADS", "3")
    assert thread_count(None) == 3 and thread_count(2) == 2
    changes = ["model.dim=8", "model.stack.dim=8", "batches.width=9"]
    run = seqloom.fit("lstm-lm", *changes, data=text, steps=2, out=tmp_path / "run", progress=False)
    assert run.results.actual.threads == 3
    monkeypatch.setenv("SEQLOOM_THREADS", "all")
    with pytest.raises(UserError, match="SEQLOOM_THREADS is 'all'"):
        thread_count(None)
