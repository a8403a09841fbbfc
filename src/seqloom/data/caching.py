"""The cache: where it is, how large it is, and how old parts of it are removed.

It holds token stores, tokenizers, keys of records, records given from Python, counts of words, word vectors, leaks that were searched for and
the built-in world's data. All of it is made again when it is needed.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from seqloom.files import cache_folder, is_locked
from seqloom.results import Result

NAMED = "keys|records|tokenizer|vectors|leaks|counts|vocabulary|cooccurrence"  # each is followed by a digest
OURS = re.compile(rf"[0-9a-f]{{32}}|({NAMED})-.*|world(-[0-9a-z]+)?|\.building-.*|\.[0-9a-f]{{32}}\.draft")


@dataclass(frozen=True)
class CacheReport(Result):
    """The folder of the cache, the number of things in it and their bytes; and what was removed."""

    folder: Path
    entries: int
    bytes: int
    removed: int = 0
    freed: int = 0


def cache() -> CacheReport:
    """Where the cache is, and how large.

    >>> seqloom.data.cache().bytes >= 0
    True
    """
    folder = cache_folder()
    entries = list(folder.iterdir())
    return CacheReport(folder, len(entries), sum(map(size_of, entries)))


def prune(days: float) -> CacheReport:
    """Removes what was not used for so many days; what a process is building stays.

    >>> seqloom.data.prune(days=10_000).removed
    0
    """
    folder = cache_folder()
    removed = freed = 0
    for entry in old_entries(folder, time.time() - days * 86_400):
        freed += size_of(entry)
        removed += 1
        if entry.is_dir():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    left = cache()
    return CacheReport(folder, left.entries, left.bytes, removed, freed)


def old_entries(folder: Path, before: float) -> Iterator[Path]:
    """The parts of the cache that were last used before a time. Files that seqloom did not write there are left alone."""
    for entry in sorted(folder.iterdir()):
        is_ours = OURS.fullmatch(entry.name) is not None and not entry.is_symlink()
        if is_ours and entry.stat().st_mtime <= before and not (entry.is_dir() and is_locked(entry)):
            yield entry


def size_of(path: Path) -> int:
    """The bytes of a file, or of all files in a folder."""
    if path.is_dir() and not path.is_symlink():
        return sum(inner.lstat().st_size for inner in path.rglob("*") if inner.is_file())
    return path.lstat().st_size
