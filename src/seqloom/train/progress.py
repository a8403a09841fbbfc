"""Progress on stderr: a live bar on a terminal, plain lines elsewhere; TensorBoard files where its package is there."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any


def log(sentence: str) -> None:
    """One line of the log."""
    print(sentence, file=sys.stderr, flush=True)


class TokenizeProgress:
    """Says how much text has been tokenized, once in five seconds; a corpus that takes less says nothing."""

    def __init__(self) -> None:
        self.done, self.begin = 0, time.perf_counter()
        self.spoken = self.begin

    def __call__(self, octets: int) -> None:
        self.done += octets
        now = time.perf_counter()
        if now - self.spoken > 5:
            self.spoken = now
            log(f"tokenized {self.done / 1e6:,.0f} MB, {self.done / 1e6 / (now - self.begin):,.1f} MB/s")


class ProgressBar:
    """Shows where a run stands: loss, tokens per second, time left."""

    def __init__(self, steps: int, step: int, quiet: bool = False):
        self.steps, self.begun_at, self.begin, self.tokens, self.quiet = (
            steps,
            step,
            time.perf_counter(),
            0,
            quiet,
        )
        self.bar: Any = None
        self.spoken = self.begin
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
            self.task = self.bar.add_task("training", total=steps, completed=step, numbers="")

    def advance(self, step: int, tokens: int) -> None:
        self.tokens += tokens
        if self.bar:
            self.bar.update(self.task, completed=step)

    def show(self, step: int, loss: float) -> None:
        """The latest loss; on a pipe at most one line in five seconds, and the last."""
        speed = self.tokens / max(time.perf_counter() - self.begin, 1e-9)
        if self.bar:
            self.bar.update(self.task, numbers=f"loss {loss:.4f}  {speed:,.0f} tokens/s")
        elif not self.quiet and (time.perf_counter() - self.spoken > 5 or step == self.steps):
            self.spoken = time.perf_counter()
            left = (self.steps - step) * (self.spoken - self.begin) / max(step - self.begun_at, 1)
            log(f"step {step}/{self.steps}  loss {loss:.4f}  {speed:,.0f} tokens/s  {left / 60:.1f} min left")

    def note(self, sentence: str) -> None:
        if self.bar:
            self.bar.console.print(sentence, highlight=False, markup=False)
        elif not self.quiet:
            log(sentence)

    def close(self) -> None:
        if self.bar:
            self.bar.stop()


class TensorBoardWriter:
    """TensorBoard files, or nothing where the package is missing."""

    def __init__(self, folder: Path):
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError:
            self.writer = None
        else:
            self.writer = SummaryWriter(str(folder))

    def add(self, step: int, numbers: dict[str, float]) -> None:
        if self.writer:
            for name, value in numbers.items():
                self.writer.add_scalar(name, value, step)

    def close(self) -> None:
        if self.writer:
            self.writer.close()
