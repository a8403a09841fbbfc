"""How much of what a run is measured on was in the data that it learnt from."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

from seqloom import files
from seqloom.data.options import is_first
from seqloom.data.overlap import Leak, LeakReport, find_leaks
from seqloom.errors import UserError
from seqloom.run_config import Config
from seqloom.text.corpus import Lines, Parallel

MAX_CHARACTERS = (
    20_000_000  # of training data that are read before a measurement; `seqloom data leaks` reads all
)
logger = logging.getLogger("seqloom.inference")


def training_leaks(
    config: Config, test: Iterable[tuple[Any, ...]], kinds: Sequence[str], digest: str
) -> LeakReport | None:
    """Which test records are in the training files of a config, or nearly; None if they cannot be read any more. `digest` identifies the
    test records: the result is kept in the cache until the training files change."""
    paths = config.files.train
    if not paths:
        return None  # a model of another program
    try:
        states = [[path, status.st_size, status.st_mtime_ns] for path in paths for status in [os.stat(path)]]
        key = json.dumps([1, config.tree.get("corpus"), states, list(kinds), digest], sort_keys=True)
        path = files.cache_folder() / f"leaks-{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
        saved = read_saved(path.read_bytes()) if path.exists() else None
        if saved is not None:
            return saved
        report = find_leaks(config.reader(paths), test, kinds, max_characters=MAX_CHARACTERS)
        files.write_atomic(path, json.dumps(report.to_dict()), 0o600)
        return report
    except (OSError, UserError) as error:
        logger.info("whether test records are in the training data was not checked: %s", error)
        return None


def read_report(record: Any) -> LeakReport | None:
    """A report from JSON; None if it is not one."""
    try:
        return LeakReport(**{**record, "examples": tuple(Leak(**example) for example in record["examples"])})
    except (TypeError, KeyError):
        return None


def read_saved(content: bytes) -> LeakReport | None:
    """A report of the cache; None if it is damaged."""
    try:
        return read_report(json.loads(content))
    except ValueError:
        return None


def log_leaks(report: LeakReport | None, config: Config) -> None:
    """Says how many test records are in the training data of a config: a warning if some are equal, else a note."""
    if report is not None and report.near and is_first(report.sentence()):
        log = logger.warning if report.normalized else logger.info
        form = " --format lines" if config.reader_class in (Lines, Parallel) else ""
        log("%s; seqloom data leaks TRAIN TEST%s shows them", report.sentence(), form)
