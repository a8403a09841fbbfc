"""SIGINT and SIGTERM: the first asks the loop to save and leave, the second leaves at once."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType, TracebackType


class Signals:
    """Inside, `seen` is the number of the signal that came, or 0."""

    def __init__(self) -> None:
        self.seen = 0
        self.before: dict[int, object] = {}

    def __enter__(self) -> Signals:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                self.before[number] = signal.signal(number, self.note)
        return self

    def note(self, number: int, frame: FrameType | None) -> None:
        if self.seen:
            os._exit(128 + number)
        self.seen = number

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self.before.items():
            signal.signal(number, handler)
