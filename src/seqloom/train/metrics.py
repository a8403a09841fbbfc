"""metrics.jsonl: one line per measurement. It holds no times, so that equal runs write equal files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from seqloom.train.progress import TensorBoardWriter

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
