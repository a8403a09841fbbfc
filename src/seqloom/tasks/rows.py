"""The lines of a file with the ends that they have, so that it can be written as it stood."""

from __future__ import annotations

import gzip
import zlib
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

from seqloom.text.lines import blocks, lines, local

MARK = "\ufeff"  # the byte-order mark


def rows(path: str | Path) -> Iterator[str]:
    """Each line with its end: LF, CR LF, or none after the last. A byte-order mark is left out."""
    try:
        with opened(path) as file:
            for text, own in zip(lines(path), file, strict=False):
                yield text + ("\r\n" if own.endswith(b"\r\n") else "\n" if own.endswith(b"\n") else "")
    except (OSError, EOFError, zlib.error):
        deque(blocks(path), 0)  # says what is damaged, and where
        raise


def mark(path: str | Path) -> str:
    """The byte-order mark of the file, or nothing."""
    with opened(path) as file:
        return MARK if file.read(3) == MARK.encode() else ""


def cut(row: str) -> tuple[str, str]:
    """A line and its end."""
    size = len(row) - (2 if row.endswith("\r\n") else row.endswith("\n"))
    return row[:size], row[size:]


def opened(path: str | Path) -> BinaryIO:
    """The bytes of a file, plain or packed."""
    file = local(path)
    with file.open("rb") as source:
        packed = source.read(2) == b"\x1f\x8b"
    return gzip.open(file) if packed else file.open("rb")
