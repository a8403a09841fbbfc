"""metrics.jsonl: one line for each thing measured, a function of the run alone (no times), so that equal runs have equal files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

from seqloom.train.progress import TensorBoardWriter


class Metrics:
    """Appends lines; a resumed run first cuts the file back to where its checkpoint stood. Only the first rank writes."""

    def __init__(self, folder: Path, first: bool):
        self.path = folder / "metrics.jsonl"
        self.file = self.path.open("ab") if first else None
        self.board = TensorBoardWriter(folder / "tensorboard") if first else None

    def cut(self, size: int) -> None:
        if self.file:
            self.file.truncate(size)
            self.file.seek(0, os.SEEK_END)

    def add(self, numbers: dict[str, Any]) -> None:
        if self.file:
            plain = {
                key: None if isinstance(value, float) and not math.isfinite(value) else value
                for key, value in numbers.items()
            }
            self.file.write(json.dumps(plain).encode() + b"\n")
            self.file.flush()
            values = {
                key: value
                for key, value in plain.items()
                if isinstance(value, (int, float)) and key != "step"
            }
            self.board.add(numbers["step"], values)

    def flushed(self) -> int:
        """The size of the file, once it is safely on disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        return self.file.tell()

    def close(self) -> None:
        if self.file:
            self.file.close()
            self.board.close()
