"""Signals are heard everywhere: also while one call of a library, such as a backward pass, takes minutes.

Python runs its signal handlers between two instructions of the main thread, so a long call delays them. The system's own handler writes the
number of the signal into a pipe at once, and a thread reads it.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

GRACE_SECONDS = 2.0  # in which the main thread may end by itself
WAITING = "seqloom: stopping when the present step ends; a second signal ends it at once"
HEARD = (signal.SIGINT, signal.SIGTERM)


def listen(pipe: int) -> None:
    """Reads signals: after the first, says that it was heard; after the second, ends the process."""
    first: float | None = None
    while number := os.read(pipe, 1):
        if number[0] not in HEARD:
            continue
        if first is not None:
            time.sleep(GRACE_SECONDS / 4)
            os._exit(128 + number[0])
        first = time.monotonic()
        threading.Thread(target=say_waiting, daemon=True).start()


def say_waiting() -> None:
    time.sleep(GRACE_SECONDS)
    print(WAITING, file=sys.stderr, flush=True)


@contextmanager
def hear_signals() -> Iterator[None]:
    """Inside, the second SIGINT or SIGTERM ends the process, whatever it is doing. Only the main thread can listen."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    threading.Thread(target=listen, args=(reader,), daemon=True).start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(writer)  # the thread reads the end of the pipe and ends


@contextmanager
def conversation() -> Iterator[None]:
    """Inside, SIGINT only interrupts, as often as it comes: the user stops an answer, not the program."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.set_wakeup_fd(-1)
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
