"""The base class of file formats: how records are read from a file, and written with their predictions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import UserError
from seqloom.inference.predictions import Prediction
from seqloom.run import Run
from seqloom.text.lines import byte_order_mark
from seqloom.text.records import field_class


class FileRecord(NamedTuple):
    """A record of a file: its location for errors, its source as the format keeps it, and the model's input; None for text
    that is not a record."""

    location: str
    source: Any
    record: tuple[Any, ...] | None = None


class FileFormat:
    """Reads the records of one file format, and writes them with their predictions."""

    reader: type | None = None  # the corpus that reads such files in training

    def __init__(self, run: Run, path: str | Path, top: int = 1):
        self.run = run
        self.path = path
        self.top = top  # labels to write for each record
        self.part = run.config.parts["corpus"]
        self.input_fields = [name for name in run.config.kinds() if field_class(name).is_input]
        self.options = self.part.keywords if self.is_training_format else {}

    @property
    def is_training_format(self) -> bool:
        """Whether the run's corpus reads this format, so that its options hold here."""
        return self.run.config.reader_class is self.reader

    def require_fields(self, *expected: str) -> None:
        """Raises if the run reads other fields than such a file has."""
        if tuple(self.input_fields) != expected:
            raise UserError(
                f"{self.path}: the run reads {' and '.join(self.input_fields)}, but such a file has "
                f"{' and '.join(expected)}; give a file like the training data, or JSON Lines"
            )

    def records(self) -> Iterator[FileRecord]:
        raise NotImplementedError

    def prefix(self) -> str:
        """The text before the first line: a byte-order mark, or nothing."""
        return byte_order_mark(self.path)

    def warning(self) -> str:
        """What looks wrong in the file; empty if nothing does."""
        return ""

    def matches(self) -> bool:
        """Whether the first record of the file is in this format."""
        try:
            return any(record.record is not None for record in self.records())
        except ValueError:
            return False

    def write(self, source: Any, prediction: Any) -> str:
        raise NotImplementedError

    def json(self, record: FileRecord, prediction: Prediction) -> str:
        """The record and its prediction as one line of JSON."""
        inputs = input_names(self.input_fields, record.record or ())
        return json.dumps({**inputs, **prediction.fields()}, ensure_ascii=False) + "\n"


def input_names(fields: list[str], record: tuple[Any, ...]) -> dict[str, Any]:
    """What a model reads of a record as JSON; the words of a sentence are part of its prediction."""
    if fields == ["words"]:
        return {}
    return dict(zip(["text"] if len(fields) == 1 else ["first", "second"], record, strict=True))
