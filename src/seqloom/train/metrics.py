"""Writes metrics.jsonl, times.jsonl and the TensorBoard files of a training. `run_files` says what they hold."""

from __future__ import annotations

import json
import os
import time
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from seqloom import files
from seqloom.errors import ConfigError
from seqloom.run_files import DAMAGED_METRICS_FILE, METRICS_FILE, TIMES_FILE, json_line
from seqloom.train.budget import current_memory

if TYPE_CHECKING:
    from seqloom.train.options import TrainJob, TrainOptions

Watch = Callable[[int, int], None]


class Metrics:
    """Appends lines to metrics.jsonl and times.jsonl, and the numbers to TensorBoard. Only the main rank writes."""

    def __init__(self, folder: Path, is_main: bool, tensorboard: bool):
        self.folder = folder
        self.checksums = ""
        self.file = self.open(METRICS_FILE) if is_main else None
        self.times = self.open(TIMES_FILE) if is_main else None
        self.writer = open_tensorboard(folder / "tensorboard", tensorboard) if is_main else None

    def open(self, name: str) -> BinaryIO:
        """Opens one of the files for appending."""
        path = self.folder / name
        try:
            return path.open("ab")
        except OSError as error:
            raise files.disk_error(error, path, "the file") from error

    def truncate(self, num_bytes: int = 0, step: int = 0, checksums: str | None = None) -> str | None:
        """Cuts both files back to the checkpoint from which the run goes on: its size of metrics.jsonl, and its step.

        If a line is not the one that was written, it and the lines after it are cut off too, and a warning is returned.
        """
        if not self.file or not self.times:
            return None
        path, warning = self.folder / METRICS_FILE, None
        content = path.read_bytes()
        lines = content[:num_bytes].splitlines(keepends=True)
        good = lines[: count_good_lines(lines, checksums)]
        size = sum(map(len, good))
        if size < num_bytes:
            files.write_atomic(self.folder / DAMAGED_METRICS_FILE, content)
            warning = (
                f"{path}:{len(good) + 1}: this line is missing or not what the training wrote; the file is cut before it, "
                f"and {DAMAGED_METRICS_FILE} has what was there"
            )
        self.file.truncate(size)
        self.file.seek(0, os.SEEK_END)
        self.checksums = "".join(map(checksum, good))
        self.times.close()
        drop_later_lines(self.folder / TIMES_FILE, step)
        self.times = self.open(TIMES_FILE)
        return warning

    def add(self, numbers: dict[str, Any]) -> None:
        """Writes one line; numbers that are not finite become null."""
        if not self.file:
            return
        line = json_line(numbers)
        self.append(self.file, line)
        self.checksums += checksum(line)
        for name, value in numbers.items():
            if self.writer and name != "step" and isinstance(value, int | float):
                self.writer.add_scalar(name, value, numbers["step"])

    def add_time(self, step: int, seconds: float) -> None:
        """Writes when a step was reached, in seconds of training, and the memory in use."""
        if self.times:
            record = {"step": step, "seconds": round(seconds, 3), "memory": current_memory()}
            self.append(self.times, json_line(record))

    def append(self, file: BinaryIO, line: bytes) -> None:
        """Appends a line to one of the files."""
        try:
            file.write(line)
            file.flush()
        except OSError as error:
            raise files.disk_error(error, self.folder, "a measurement") from error

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
                with suppress(OSError):  # a full disk, which `append` has reported
                    file.close()


def checksum(line: bytes) -> str:
    """The CRC-32 of a line, eight hexadecimal digits; a checkpoint holds those of all lines."""
    return f"{zlib.crc32(line):08x}"


def count_good_lines(lines: list[bytes], checksums: str | None) -> int:
    """How many lines at the beginning are as they were written. Older versions stored no checksums: lines of JSON are good then."""
    for number, line in enumerate(lines):
        if checksums is None:
            good = line.endswith(b"\n") and is_record(line)
        else:
            good = checksum(line) == checksums[8 * number : 8 * number + 8]
        if not good:
            return number
    return len(lines)


def is_record(line: bytes) -> bool:
    """Whether a line is a JSON object."""
    try:
        return isinstance(json.loads(line), dict)
    except ValueError:
        return False


def drop_later_lines(path: Path, step: int) -> None:
    """Removes the lines of later steps from a file of measurements, and lines that a kill has cut off."""
    kept = []
    for line in path.read_text("utf-8", "replace").splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("step"), int) and record["step"] <= step:
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


def open_watch(options: TrainOptions, job: TrainJob, step: int) -> Watch:
    """What is to be measured besides the loss at an evaluation, as a function of the step and the tokens so far."""
    if options.watch != "gradients":
        return lambda step, tokens: None
    from seqloom.train.gradient_watch import (
        GradientWatch,
    )  # it knows every kind of layer: others do not load it

    return GradientWatch(options, job, step).measure
