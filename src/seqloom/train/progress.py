"""Progress on stderr: a live bar on a terminal, plain lines elsewhere; TensorBoard files if its package is installed."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

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
