"""What a training reports: metrics.jsonl, the progress bar and log lines.

metrics.jsonl has one line per measurement and no times, so that equal runs write equal files.
"""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

FILE = "metrics.jsonl"


class Metrics:
    """Appends lines to metrics.jsonl, and the numbers to TensorBoard. Only the main rank writes."""

    def __init__(self, folder: Path, is_main: bool):
        self.file = (folder / FILE).open("ab") if is_main else None
        self.tensorboard = TensorBoardWriter(folder / "tensorboard") if is_main else None

    def truncate(self, num_bytes: int) -> None:
        """Cuts the file to the size that it had when the checkpoint was saved from which the run resumes."""
        if self.file:
            self.file.truncate(num_bytes)
            self.file.seek(0, os.SEEK_END)

    def add(self, numbers: dict[str, Any]) -> None:
        """Writes one line; numbers that are not finite become null."""
        if not self.file or not self.tensorboard:
            return
        record = {
            key: None if isinstance(value, float) and not math.isfinite(value) else value
            for key, value in numbers.items()
        }
        self.file.write(json.dumps(record).encode() + b"\n")
        self.file.flush()
        del record["step"]
        scalars = {key: value for key, value in record.items() if isinstance(value, int | float)}
        self.tensorboard.add(numbers["step"], scalars)

    def sync(self) -> int:
        """The size of the file after it is safely on disk; 0 on ranks that do not write."""
        if not self.file:
            return 0
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        if self.file:
            self.file.close()
        if self.tensorboard:
            self.tensorboard.close()


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl."""
    return [json.loads(line) for line in (folder / FILE).read_text("utf-8").splitlines()]


LOG_SECONDS = 5  # least time between two lines of progress


def log(message: str) -> None:
    """Prints one line to stderr."""
    print(message, file=sys.stderr, flush=True)


class TokenizeProgress:
    """Logs how much text has been tokenized, at most once in five seconds."""

    def __init__(self) -> None:
        self.num_bytes = 0
        self.start_time = time.perf_counter()
        self.last_log_time = self.start_time

    def __call__(self, num_bytes: int) -> None:
        self.num_bytes += num_bytes
        now = time.perf_counter()
        if now - self.last_log_time > LOG_SECONDS:
            self.last_log_time = now
            megabytes = self.num_bytes / 1e6
            log(f"tokenized {megabytes:,.0f} MB, {megabytes / (now - self.start_time):,.1f} MB/s")


class ProgressBar:
    """Shows the step, the loss, the tokens per second and the time left of a training run."""

    def __init__(self, steps: int, start_step: int, quiet: bool = False):
        self.steps = steps
        self.start_step = start_step
        self.quiet = quiet
        self.tokens = 0
        self.start_time = time.perf_counter()
        self.last_log_time = self.start_time
        self.bar: Any = None
        if not quiet and sys.stderr.isatty():
            from rich import progress
            from rich.console import Console

            self.bar = progress.Progress(
                progress.TextColumn("{task.description}"),
                progress.BarColumn(),
                progress.MofNCompleteColumn(),
                progress.TextColumn("{task.fields[numbers]}"),
                progress.TimeRemainingColumn(),
                console=Console(stderr=True),
            )
            self.bar.start()
            self.task = self.bar.add_task("training", total=steps, completed=start_step, numbers="")

    def advance(self, step: int, tokens: int) -> None:
        """Moves the bar to a step that has predicted `tokens` tokens."""
        self.tokens += tokens
        if self.bar:
            self.bar.update(self.task, completed=step)

    def show(self, step: int, loss: float) -> None:
        """Shows the latest loss; without a terminal at most one line in five seconds, and the last step."""
        now = time.perf_counter()
        seconds = now - self.start_time
        speed = self.tokens / max(seconds, 1e-9)
        if self.bar:
            self.bar.update(self.task, numbers=f"loss {loss:.4f}  {speed:,.0f} tokens/s")
        elif not self.quiet and (now - self.last_log_time > LOG_SECONDS or step == self.steps):
            self.last_log_time = now
            minutes_left = (self.steps - step) * seconds / max(step - self.start_step, 1) / 60
            log(
                f"step {step}/{self.steps}  loss {loss:.4f}  {speed:,.0f} tokens/s  {minutes_left:.1f} min left"
            )

    def message(self, text: str) -> None:
        """Prints a line above the bar."""
        if self.bar:
            self.bar.console.print(text, highlight=False, markup=False)
        elif not self.quiet:
            log(text)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()


class TensorBoardWriter:
    """Writes TensorBoard files, or nothing if the package is missing."""

    def __init__(self, folder: Path):
        self.writer: Any = None
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            return
        self.writer = SummaryWriter(str(folder))

    def add(self, step: int, scalars: dict[str, float]) -> None:
        if self.writer:
            for name, value in scalars.items():
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self.writer:
            self.writer.close()
