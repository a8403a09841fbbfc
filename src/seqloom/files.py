"""Atomic writing, folder locks, digests, and clear errors for a full disk.

A reader of a seqloom folder never sees a partial file, even if the writer was killed. Left out: locks for
readers (a rename is atomic, so they need none) and flushing specific to network file systems. Imports no
other module of the package, and no torch.
"""

import errno
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO
from uuid import uuid4

from seqloom.errors import DataError, NoRoom, UserError

fcntl: ModuleType | None
try:
    import fcntl
except ImportError:  # this system has no advisory locks: `is_locked` looks at the age of the folder alone
    fcntl = None

_DAY_SECONDS = 86_400.0
DRAFT_SUFFIX = ".draft"
_DRAFT = re.compile(r"\.[0-9a-f]{32}\.draft")
_NOT_PERMITTED = (
    "writing here is not permitted",
    "choose a folder that you may write to, or change its permissions",
)
_CAUSES = {
    errno.ENOSPC: ("the disk is full", "free some space or choose another folder"),
    errno.EDQUOT: ("the disk quota is used up", "free some space or choose another folder"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: _NOT_PERMITTED,
    errno.EPERM: _NOT_PERMITTED,
    errno.ENOENT: ("the folder does not exist", "create it first"),
    errno.ENOTDIR: ("a part of this path is a file, not a folder", "choose another path"),
    errno.EIO: (
        "the disk reports an input/output error",
        "check the disk, or choose a folder on another one",
    ),
}


def cache_folder() -> Path:
    """Returns the folder of the cache: SEQLOOM_CACHE, or `seqloom` in the user's cache folder. Only its owner can read it; a folder in which
    another user has written is refused."""
    import platformdirs

    folder = Path(os.environ.get("SEQLOOM_CACHE") or platformdirs.user_cache_dir("seqloom"))
    try:
        if not folder.exists():
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
        foreign = _find_foreign(folder)
    except OSError as error:
        raise disk_error(error, folder, "the cache") from error
    if foreign is not None:
        raise DataError(
            f"{foreign}: another user owns it, so the cache is not trusted; remove it, or set SEQLOOM_CACHE to a folder of your own"
        )
    return folder


def _find_foreign(folder: Path) -> Path | None:
    """The cache folder or, if others may write into it, the first entry there that another user owns; None if there is none."""
    if not hasattr(os, "geteuid"):  # Windows: the user's cache folder is the user's own
        return None
    status, me = folder.stat(), os.geteuid()
    if status.st_uid != me:
        return folder
    if not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return None
    with os.scandir(folder) as entries:
        return next(
            (Path(entry.path) for entry in entries if entry.stat(follow_symlinks=False).st_uid != me), None
        )


def disk_error(
    error: OSError, path: str | Path, content: str, needed: int | None = None
) -> NoRoom | DataError:
    """Returns the error for an `OSError` while writing `content` to `path`: the cause, the bytes needed and free, the
    remedy. A path that does not exist, or leads through a file, is the user's mistake, all else is the disk's."""
    cause, remedy = _CAUSES.get(error.errno or 0, (error.strerror or str(error), "choose another folder"))
    is_mistake = error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EEXIST)
    space = ""
    if needed is not None and not is_mistake:
        space = f" (it needs {needed:,} bytes"
        with suppress(OSError):
            space += f", {free_bytes(path):,} are free"
        space += ")"
    kind = DataError if is_mistake else NoRoom
    return kind(f"{path}: {content} cannot be written{space}: {cause}; {remedy}.")


def free_bytes(path: str | Path) -> int:
    """Returns the bytes that an unprivileged user can still
    write on the disk of `path`, which need not exist yet."""
    existing = Path(path).absolute()
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    return shutil.disk_usage(existing).free


def write_atomic(path: str | Path, data: bytes | str, mode: int = 0o666) -> None:
    """Writes `data` to `path` in one step: a reader sees the old
    file or the new one, never a part, even after a power cut."""
    content = data.encode() if isinstance(data, str) else data
    target = _regular_target(path)
    try:
        with draft_folder(target.parent) as draft:
            write_new(draft / target.name, content, mode)
            os.replace(draft / target.name, target)
            fsync_folder(target.parent)
    except OSError as error:
        raise disk_error(error, path, "the file", len(content)) from error


@contextmanager
def open_atomic(path: str | Path, mode: int = 0o666) -> Iterator[BinaryIO]:
    """Opens a file for writing; it replaces `path` in one step
    at the end of the `with`, unless an error occurred."""
    target = _regular_target(path)
    try:
        with draft_folder(target.parent) as draft:
            with open(draft / target.name, "xb", opener=partial(os.open, mode=mode)) as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft / target.name, target)
            fsync_folder(target.parent)
    except OSError as error:
        raise disk_error(error, path, "the file") from error


@contextmanager
def draft_folder(parent: str | Path) -> Iterator[Path]:
    """A hidden folder in which a result is made before it is moved to its place; it is removed at the end.

    It is locked, so that it can be told from those of processes that were killed, which are removed from `parent` first. Raises `OSError`.
    """
    sweep_drafts(parent)
    with ExitStack() as lock:
        draft = _make_draft(Path(parent), lock)
        try:
            yield draft
        finally:
            try:
                draft.rmdir()  # it is empty, unless an error occurred
            except OSError:
                shutil.rmtree(draft, ignore_errors=True)


def _make_draft(parent: Path, lock: ExitStack) -> Path:
    """Makes a draft and locks it; one that another process has swept before it was locked is made again."""
    while True:
        draft = parent / f".{uuid4().hex}{DRAFT_SUFFIX}"
        draft.mkdir(mode=0o700)
        try:
            if lock.enter_context(lock_folder(draft)) and draft.exists():
                return draft
        except FileNotFoundError:
            continue
        except OSError:
            draft.rmdir()
            raise


def sweep_drafts(parent: str | Path) -> None:
    """Removes the drafts of processes that were killed."""
    with suppress(OSError):
        for path in Path(parent).glob(f".*{DRAFT_SUFFIX}"):
            if is_draft(path):
                with lock_if_dead(path) as dead:
                    if dead:
                        shutil.rmtree(path, ignore_errors=True)


def is_draft(path: Path) -> bool:
    """Whether a path has the name of a draft."""
    return _DRAFT.fullmatch(path.name) is not None


def _regular_target(path: str | Path) -> Path:
    """Returns the file that `path` refers to, with links resolved; raises if it is not a regular file.

    A rename over /dev/null or a pipe would succeed, and destroy it.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise DataError(f"{path}: this is not a regular file; choose the path of a file.")
    return target


def require_new(path: str | Path, overwrite: bool = False) -> None:
    """Raises if something is already at a path that is to be written, unless it may be overwritten."""
    path = Path(path)
    if path.name in ("", ".."):
        raise UserError(
            f"{path}: this names no new file or folder; give --out a name, such as {path / 'words'}"
        )
    if os.path.lexists(path) and not overwrite:
        raise UserError(
            f"{path}: exists already; choose another --out, such as {free_name(path)}, or replace it with --overwrite"
        )


def free_name(path: Path) -> Path:
    """The path with the first number that makes it new: runs/v-2, words-2.txt."""
    ending = "" if path.is_dir() else "".join(path.suffixes[-2 if path.suffix == ".gz" else -1 :])
    stem = path.name.removesuffix(ending)
    number = 2
    while os.path.lexists(path.with_name(f"{stem}-{number}{ending}")):
        number += 1
    return path.with_name(f"{stem}-{number}{ending}")


def write_new(path: str | Path, data: bytes, mode: int = 0o666) -> None:
    """Writes a file that must not exist yet and flushes it to the disk; raises `OSError`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode)
    try:
        remaining = memoryview(data)
        while remaining:  # a nearly full disk accepts a part and fails at the next call
            remaining = remaining[os.write(handle, remaining) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def read_limited(path: str | Path, limit: int) -> bytes:
    """Returns the bytes of a regular file; a device or a pipe may have no end, so it is refused.

    Raises `OSError`, or a `ValueError` for a file of more than `limit` bytes.
    """
    path = Path(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        data = file.read(limit + 1)
    if len(data) > limit:
        size = path.stat().st_size
        raise DataError(
            f"{path}: the file has {size:,} bytes, but at most {limit:,} are read; give the right file"
        )
    return data


def digest(content: bytes) -> str:
    """Returns the SHA-256 of some bytes in hexadecimal."""
    return hashlib.sha256(content).hexdigest()


def sha256(path: str | Path) -> str:
    """Returns the SHA-256 of a file in hexadecimal; the file is read in blocks, in constant memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def with_digest(body: Mapping[str, Any]) -> bytes:
    """The canonical bytes of a JSON object that carries its own SHA-256. A file with any other bytes, even other spaces, is damaged."""
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    return (json.dumps({**body, "sha256": digest}, indent=1, sort_keys=True) + "\n").encode()


def check_digest(content: bytes) -> dict[str, Any] | None:
    """The object that `with_digest` wrote, or None if a byte of it has changed."""
    try:
        body = json.loads(content)
        body.pop("sha256")
        return body if content == with_digest(body) else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def fsync_file(path: str | Path) -> None:
    """Flushes a file that other code wrote to the disk."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_folder(path: str | Path) -> None:
    """Flushes a folder's list of names to the disk; otherwise a power cut may undo a rename."""
    if os.name == "nt":  # Windows cannot open folders; its file system orders renames itself
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems do not support it
            raise
    finally:
        os.close(handle)


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[bool]:
    """Locks a folder during a `with`; yields False if another
    process holds the lock. The lock ends with the process.

    On a file system without locks, this yields True to everyone,
    and `is_locked` looks at the age of the folder alone.
    """
    if fcntl is None:
        yield True
        return
    handle = os.open(folder, os.O_RDONLY)
    locked = True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            locked = False
        except OSError:
            pass
        yield locked
    finally:
        os.close(handle)


@contextmanager
def exclusive(folder: str | Path, work: str) -> Iterator[None]:
    """Locks a folder; raises if another process holds the lock.
    `work` says what that process does, such as "training"."""
    with lock_folder(folder) as locked:
        if not locked:
            raise DataError(
                f"{folder}: another process is {work} there; wait until it ends, or choose another folder"
            )
        yield


def is_locked(folder: str | Path) -> bool:
    """Returns whether a running process may still write into
    `folder`; without locks, whether it changed within a day."""
    with lock_if_dead(folder) as dead:
        return not dead and os.path.lexists(folder)


@contextmanager
def lock_if_dead(folder: str | Path) -> Iterator[bool]:
    """Locks a folder during a `with`, unless a running process may still write into it; yields whether it is locked.

    On a file system without locks, a process that wrote within a day counts as running.
    """
    try:
        is_old = time.time() - os.stat(folder).st_mtime >= _DAY_SECONDS
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield False
        return
    try:
        dead = is_old
        if fcntl is not None:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                dead = True
            except BlockingIOError:
                dead = False
            except OSError:
                pass
        yield dead
    finally:
        os.close(handle)
