"""How many CPU threads torch uses, set for one call and one thread only.

`torch.set_num_threads` changes two things: the count of the calling thread, and a process-wide default that every
thread takes over when it first uses torch. The functions here change the first and leave the second as it was, so a
call that runs with one thread does not slow down the threads that others start meanwhile. torch has no function for
this: the default is read and restored from a short-lived thread, whose own count does not matter to anybody.

The compiled kernels ask torch for the count of the calling thread, so these functions govern them too.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from seqloom.errors import UserError

_lock = threading.Lock()  # one change of the default at a time


def thread_count(threads: int | None) -> int | None:
    """The threads that are asked for, else those of SEQLOOM_THREADS; None leaves the choice to torch."""
    if threads is None and (text := os.environ.get("SEQLOOM_THREADS")):
        if not text.isdigit() or int(text) < 1:
            raise UserError(f"SEQLOOM_THREADS is {text!r}; give a number of CPU threads, at least 1")
        return int(text)
    return threads


def set_for_this_thread(count: int) -> None:
    """Sets torch's thread count for the calling thread; other threads, running or new, keep theirs."""
    import torch

    if count < 1:
        raise UserError(f"threads is {count}: give at least 1")
    with _lock:
        default = _default_count()
        torch.get_num_threads()  # a thread takes over the default at its first call: before the change, not after it
        torch.set_num_threads(count)
        _run_in_new_thread(lambda: torch.set_num_threads(default))


@contextmanager
def use_threads(count: int | None) -> Iterator[None]:
    """Inside, torch uses `count` threads in the calling thread; afterwards the count is what it was. None changes nothing."""
    if count is None:
        yield
        return
    import torch

    with _lock:  # a thread takes over the default at its first call, which another thread may be changing
        before = torch.get_num_threads()
    set_for_this_thread(count)
    try:
        yield
    finally:
        set_for_this_thread(before)


def _default_count() -> int:
    """The count that a new thread starts with."""
    import torch

    counts: list[int] = []
    _run_in_new_thread(lambda: counts.append(torch.get_num_threads()))
    return counts[0]


def _run_in_new_thread(work: Callable[[], None]) -> None:
    thread = threading.Thread(target=work, name="seqloom-threads")
    thread.start()
    thread.join()
