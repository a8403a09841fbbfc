"""Writes metrics.jsonl, times.jsonl and the TensorBoard files of a training. `run_files` says what they hold."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from seqloom import files
from seqloom.errors import ConfigError
from seqloom.run_files import METRICS_FILE, TIMES_FILE, json_line
from seqloom.train.budget import current_memory


class Metrics:
    """Appends lines to metrics.jsonl and times.jsonl, and the numbers to TensorBoard. Only the main rank writes."""

    def __init__(self, folder: Path, is_main: bool, tensorboard: bool):
        self.folder = folder
        self.file = (folder / METRICS_FILE).open("ab") if is_main else None
        self.times = (folder / TIMES_FILE).open("ab") if is_main else None
        self.writer = open_tensorboard(folder / "tensorboard", tensorboard) if is_main else None

    def truncate(self, num_bytes: int, step: int) -> None:
        """Cuts both files back to the checkpoint from which the run resumes: its size of metrics.jsonl, and its step."""
        if self.file and self.times:
            self.file.truncate(num_bytes)
            self.file.seek(0, os.SEEK_END)
            self.times.close()
            drop_later_times(self.folder / TIMES_FILE, step)
            self.times = (self.folder / TIMES_FILE).open("ab")

    def add(self, numbers: dict[str, Any]) -> None:
        """Writes one line; numbers that are not finite become null."""
        if not self.file:
            return
        self.file.write(json_line(numbers))
        self.file.flush()
        for name, value in numbers.items():
            if self.writer and name != "step" and isinstance(value, int | float):
                self.writer.add_scalar(name, value, numbers["step"])

    def add_time(self, step: int, seconds: float) -> None:
        """Writes when a step was reached, in seconds of training, and the memory in use."""
        if self.times:
            self.times.write(
                json_line({"step": step, "seconds": round(seconds, 3), "memory": current_memory()})
            )
            self.times.flush()

    def sync(self) -> int:
        """The size of metrics.jsonl after it is safely on disk; 0 on ranks that do not write."""
        if not self.file:
            return 0
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        for file in (self.file, self.times, self.writer):
            if file:
                file.close()


def drop_later_times(path: Path, step: int) -> None:
    """Removes the lines of later steps from times.jsonl, and lines that a kill has cut off."""
    kept = []
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if record["step"] <= step:
            kept.append(f"{line}\n")
    files.write_atomic(path, "".join(kept))


def open_tensorboard(folder: Path, wanted: bool) -> Any:
    """A writer of TensorBoard files, or None. A run that has such files already goes on writing them if it can."""
    if not wanted and not folder.is_dir():
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        if wanted:
            raise ConfigError(
                "train.tensorboard: the package tensorboard is not installed; pip install tensorboard, or leave it out"
            ) from None
        return None
    return SummaryWriter(str(folder))


class Speed:
    """Tokens per second since the training started or resumed."""

    def __init__(self) -> None:
        self.tokens = 0.0
        self.start_time = time.perf_counter()

    def add(self, tokens: float) -> float:
        """Counts tokens; the speed so far."""
        self.tokens += tokens
        return self.tokens / max(time.perf_counter() - self.start_time, 1e-9)
