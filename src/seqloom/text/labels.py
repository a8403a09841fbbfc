"""The labels of a run: names in a fixed order, in one file
beside the tokenizer, with a signature that detects damage."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from seqloom.errors import DataError
from seqloom.files import write_atomic


def signature(labels: Sequence[str]) -> str:
    """Returns sixteen hexadecimal digits that identify these labels in this order."""
    return hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()[:16]


def save(labels: Sequence[str], path: str | Path) -> None:
    """Writes labels as JSON, atomically."""
    content = {"labels": list(labels), "signature": signature(labels)}
    write_atomic(path, json.dumps(content, ensure_ascii=False, indent=1))


def load(path: str | Path) -> list[str]:
    """Reads the labels saved at `path`; raises a ValueError if the file is missing or damaged."""
    try:
        saved = json.loads(Path(path).read_text("utf-8"))
        labels = saved["labels"]
        intact = (
            isinstance(labels, list)
            and all(isinstance(label, str) for label in labels)
            and saved["signature"] == signature(labels)
        )
    except (OSError, ValueError, KeyError, TypeError):
        intact = False
    if not intact:
        raise DataError(
            f"{path}: missing or damaged, so the names of the labels are unknown; restore the file or train again"
        )
    return labels
