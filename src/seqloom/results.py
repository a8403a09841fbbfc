"""What the calls of seqloom report: results when they return, and progress while they work.

Results are frozen dataclasses that are also JSON:

    @dataclass(frozen=True)
    class Label(Result):
        label: str
        probability: float

    Label("pos", 0.9).to_dict()   # {"label": "pos", "probability": 0.9}

Progress of long calls: a bar on a terminal or in a notebook, a log line every five seconds elsewhere, or a function of the caller.

    with Reporter("translating", total=1000, progress=progress) as report:
        for line in lines:
            ...
            report.advance(1, {"bleu": bleu})

Every long call has an argument `progress`: True for a bar or log lines, False for neither, or a function that receives a
`Progress` at each update.
"""

from __future__ import annotations

import dataclasses
import logging
import math
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LOG_SECONDS = 5  # least time between two lines
PACE_SECONDS = 30  # what is left is judged by the pace of so long, or of the last quarter if that is longer
PACE_SAMPLES = 32  # of this time
logger = logging.getLogger("seqloom")


class Result:
    """Base of the results. A subclass is a frozen dataclass; a field whose metadata has `json: False` stays out of the JSON."""

    def to_dict(self) -> dict[str, Any]:
        """The result as the command line prints it with --json: numbers that are not finite become None."""
        return {
            field.name: to_json(getattr(self, field.name))
            for field in dataclasses.fields(self)  # type: ignore[arg-type]  # subclasses are dataclasses
            if field.metadata.get("json", True)
        }


def to_json(value: Any) -> Any:
    """A value as JSON has it."""
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): to_json(item) for key, item in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return to_json(value._asdict())
    if isinstance(value, list | tuple):
        return [to_json(item) for item in value]
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "tolist"):  # numpy and torch
        return to_json(value.tolist())
    return value


@dataclass(frozen=True)
class Progress:
    """How far a long call is. `total` and `seconds_left` are None while they are unknown."""

    what: str
    done: float
    total: float | None
    numbers: dict[str, float] = field(default_factory=dict)
    seconds_left: float | None = None


ProgressOption = bool | Callable[[Progress], None]


class Reporter:
    """Reports the progress of one call; use it as a context manager. `done` is where the work begins, above 0 if it resumes."""

    def __init__(
        self, what: str, total: float | None = None, progress: ProgressOption = True, done: float = 0
    ):
        self.what = what
        self.total = total
        self.done = self.start = done
        self.numbers: dict[str, float] = {}
        self.callback = progress if callable(progress) else None
        self.logs = progress is True
        self.start_time = self.last_log_time = time.perf_counter()
        # When so much was done. It begins with the first report: what comes before, such as compilation, says nothing about the rest.
        self.samples: deque[tuple[float, float]] = deque()
        self.bar: Any = make_bar() if self.logs and shows_bars() else None
        if self.bar:
            self.bar.start()
            self.task = self.bar.add_task(what, total=total, completed=done, numbers="")

    def __enter__(self) -> Reporter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def advance(self, count: float = 1, numbers: Mapping[str, float] = {}) -> None:
        """Adds to what is done."""
        self.update(self.done + count, numbers)

    def update(self, done: float, numbers: Mapping[str, float] = {}) -> None:
        """Sets what is done, and the numbers to show beside it."""
        self.done = done
        self.numbers.update(numbers)
        self.note_pace()
        if self.bar:
            self.bar.update(self.task, completed=done, numbers=format_numbers(self.numbers))
        elif self.callback:
            self.callback(Progress(self.what, done, self.total, dict(self.numbers), self.seconds_left()))
        elif self.logs:
            now = time.perf_counter()
            if now - self.last_log_time > LOG_SECONDS:
                self.last_log_time = now
                logger.info("%s", self.line())

    def set_total(self, total: float) -> None:
        """Sets how much there is to do, once it is known."""
        self.total = total
        if self.bar:
            self.bar.update(self.task, total=total)

    def note_pace(self) -> None:
        """Keeps a sample of how far it is, and drops those that are too old for the pace."""
        now = time.perf_counter()
        period = max(PACE_SECONDS, (now - self.start_time) / 4)
        if not self.samples or now - self.samples[-1][0] >= period / PACE_SAMPLES:
            self.samples.append((now, self.done))
        while len(self.samples) > 2 and self.samples[1][0] <= now - period:
            self.samples.popleft()

    def seconds_left(self) -> float | None:
        """The time that the rest takes at the pace of late, which follows the load of the machine; None before the second report."""
        if self.total is None or not self.samples or self.done <= self.samples[0][1]:
            return None
        then, done = self.samples[0]
        return max(0.0, self.total - self.done) * (time.perf_counter() - then) / (self.done - done)

    def line(self) -> str:
        """The progress in one line."""
        total = "" if self.total is None else f"/{self.total:,.0f}"
        left = self.seconds_left()
        time_left = (
            "" if left is None else f"{left / 60:.1f} min left" if left >= 60 else f"{left:.0f} s left"
        )
        parts = (f"{self.what} {self.done:,.0f}{total}", format_numbers(self.numbers), time_left)
        return "  ".join(part for part in parts if part)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()
            self.bar = None


def format_numbers(numbers: dict[str, float]) -> str:
    """Numbers with their names, as in `loss 1.2345  3,000 tokens/s`: a name with a slash follows its number."""
    return "  ".join(
        f"{value:,.0f} {name}" if "/" in name else f"{name} {value:.4f}" for name, value in numbers.items()
    )


def shows_bars() -> bool:
    """Whether stderr is a terminal, or this is a notebook, and the log is not silenced."""
    if not logger.isEnabledFor(logging.INFO) and logger.level:
        return False
    return sys.stderr.isatty() or "ipykernel" in sys.modules


def make_bar() -> Any:
    from rich import progress
    from rich.console import Console

    return progress.Progress(
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TextColumn("{task.fields[numbers]}"),
        progress.TimeRemainingColumn(),
        console=None if "ipykernel" in sys.modules else Console(stderr=True),
    )
