"""Several texts at a time: workers of one thread each beat one worker of several where products are small, and they share the model's memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")
_worker = threading.local()


class Cancelled(Exception):
    """The others' work is wanted no more."""


def check_cancelled() -> None:
    """End the work of a worker that is called off. Every call of a model passes here."""
    if (off := getattr(_worker, "off", None)) and off.is_set():
        raise Cancelled


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> list[Result]:
    """`work` of every item, in order, by so many workers; what one item gives does not depend on the others. Products, which take nearly all the
    time, run outside Python's lock. Where one fails or the user interrupts, all end at their next step."""
    if workers < 1:
        raise ValueError(f"{workers} workers can do nothing: give at least 1")
    if workers == 1 or len(items) < 2:
        return [work(item) for item in items]
    threads, off = torch.get_num_threads(), threading.Event()

    def begin() -> None:
        torch.set_num_threads(1)
        _worker.off = off

    try:
        with ThreadPoolExecutor(workers, initializer=begin) as crew:
            try:
                return list(crew.map(work, items))
            except BaseException:
                off.set()
                raise
    finally:
        torch.set_num_threads(threads)  # what a worker sets, threads to come would begin with
