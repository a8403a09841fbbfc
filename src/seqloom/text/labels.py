"""The labels of a run: names in a stable order, in one file beside the tokenizer, refused where it is not what was written."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from seqloom.files import write_atomic


def signature(labels: Sequence[str]) -> str:
    """Sixteen hexadecimal digits that name exactly these labels in this order."""
    return hashlib.sha256(json.dumps(list(labels)).encode()).hexdigest()[:16]


def save(labels: Sequence[str], path: str | Path) -> None:
    """Write labels as JSON, whole or not at all."""
    write_atomic(
        path,
        json.dumps({"labels": list(labels), "signature": signature(labels)}, ensure_ascii=False, indent=1),
    )


def load(path: str | Path) -> list[str]:
    """The labels saved at `path`; a file that is damaged is a ValueError."""
    try:
        kept = json.loads(Path(path).read_text("utf-8"))
        labels = kept["labels"]
        whole = (
            isinstance(labels, list)
            and all(isinstance(one, str) for one in labels)
            and kept["signature"] == signature(labels)
        )
    except (OSError, ValueError, KeyError, TypeError):
        whole = False
    if not whole:
        raise ValueError(f"{path}: missing or damaged, so no label has its name; restore it, or train anew")
    return labels
