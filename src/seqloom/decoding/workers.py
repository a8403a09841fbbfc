"""Runs several calls at a time in threads that share the model's memory.

Where matrix products are small, workers of one thread each are faster than one worker of several threads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import TypeVar

from seqloom.errors import UserError
from seqloom.threads import set_for_this_thread

Item = TypeVar("Item")
Result = TypeVar("Result")
_cancelled: ContextVar[threading.Event | None] = ContextVar("cancelled", default=None)


class Cancelled(Exception):
    """Raised in a worker when another one has failed."""


def check_cancelled() -> None:
    """Raises `Cancelled` in a cancelled worker. Every call of a model passes here."""
    event = _cancelled.get()
    if event is not None and event.is_set():
        raise Cancelled


def parallel_map(work: Callable[[Item], Result], items: Sequence[Item], workers: int = 1) -> list[Result]:
    """`work(item)` of every item, in order, computed by `workers` threads.

    Each call runs in a copy of the caller's context: `plain()`, attention capture and the collection of losses hold
    inside the workers and end with the caller. Each worker uses one torch thread; the caller's count and the count of
    all other threads stay as they are. Matrix products, which take nearly all the time, run outside Python's lock.
    If one call fails or the user interrupts, the others end at their next call of a model.
    """
    if workers < 1:
        raise UserError(f"workers is {workers}: give at least 1")
    if workers == 1 or len(items) < 2:
        return [work(item) for item in items]
    context = copy_context()
    cancelled = threading.Event()
    context.run(_cancelled.set, cancelled)

    def run(item: Item) -> Result:
        return context.copy().run(work, item)  # a context can be entered by one thread at a time

    with ThreadPoolExecutor(workers, initializer=set_for_this_thread, initargs=(1,)) as pool:
        try:
            return list(pool.map(run, items))
        except BaseException:
            cancelled.set()
            raise
