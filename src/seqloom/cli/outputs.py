"""Where the results of verbs on texts go: to stdout as they are ready, or to a file that is written whole or not at all."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable
from pathlib import Path

from seqloom.results import Reporter

logger = logging.getLogger("seqloom.cli")


def check_output(out: Path | None, overwrite: bool) -> None:
    """Raises if the file to write exists, before any work is done."""
    from seqloom.files import require_new

    if out is not None and out.is_file():
        require_new(out, overwrite)


def write_pieces(pieces: Iterable[str], out: Path | None, what: str, progress: bool) -> None:
    """Writes text piece by piece. A file appears when all of it is there; its progress is reported as `what`."""
    if out is None:
        for piece in pieces:
            sys.stdout.write(piece)
            sys.stdout.flush()
        return
    from seqloom.files import open_atomic

    with open_atomic(out) as target, Reporter(what, progress=progress) as report:
        for piece in pieces:
            target.write(piece.encode())
            report.advance()
    logger.info("written to %s", out)
