"""Several texts at a time: workers of one thread each beat one worker of several where products are small, and they share the model's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def shared(work: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> list[Result]:
    """`work` of every item, in order, by so many workers; what one item gives does not depend on the others. Products, which take nearly all the
    time, run outside Python's lock."""
    if workers < 1:
        raise ValueError(f"{workers} workers can do nothing: give at least 1")
    if workers == 1 or len(items) < 2:
        return [work(item) for item in items]
    threads = torch.get_num_threads()
    try:
        with ThreadPoolExecutor(workers, initializer=torch.set_num_threads, initargs=(1,)) as crew:
            return list(crew.map(work, items))
    finally:
        torch.set_num_threads(threads)  # what a worker sets, threads to come would begin with
