"""Files that are whole or not there: atomic writing, digests, and the sentence a full disk deserves.

A reader of a seqloom folder never meets half a file, whatever killed the writer. Left out: locking of readers (a rename is
atomic, so they need none), symbolic-link farms and network-specific flushing. Knows nobody in the package, and no torch.
"""

import errno
import hashlib
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

try:
    import fcntl
except ImportError:  # no advisory locks on this system: `claimed` goes by age alone
    fcntl = None

_DAY = 86_400.0
_CAUSES = {
    errno.ENOSPC: ("the disk is full", "free some space or choose another folder"),
    errno.EDQUOT: ("the disk quota is used up", "free some space or choose another folder"),
    errno.EROFS: ("the file system is read-only", "choose a folder that can be written"),
    errno.EACCES: (
        "writing here is not permitted",
        "choose a folder you may write, or change its permissions",
    ),
    errno.EPERM: (
        "writing here is not permitted",
        "choose a folder you may write, or change its permissions",
    ),
    errno.ENOENT: ("the folder does not exist", "make it first"),
    errno.ENOTDIR: ("a part of this path is a file, not a folder", "choose another path"),
    errno.EIO: (
        "the disk reports an input/output error",
        "check the disk, or choose a folder on another one",
    ),
}


class NoRoom(ValueError):
    """The disk would not take the bytes: full, over quota, read-only or failing. What was there before is untouched."""


def disk_error(error: OSError, path: str | Path, what: str, needed: int | None = None) -> NoRoom:
    """The sentence for an `OSError` met while writing `what` at `path`: the cause, the bytes needed and free, the way out."""
    cause, remedy = _CAUSES.get(error.errno or 0, (error.strerror or str(error), "choose another folder"))
    room = ""
    if needed is not None:
        room = f" (it needs {needed:,} bytes"
        with suppress(OSError):
            room += f", {free_bytes(path):,} are free"
        room += ")"
    return NoRoom(f"{path}: {what} cannot be written{room}: {cause}; {remedy}.")


def free_bytes(path: str | Path) -> int:
    """Bytes an unprivileged writer may still use on the disk of `path`, which need not exist yet."""
    there = Path(path).absolute()
    while not there.exists() and there != there.parent:
        there = there.parent
    return shutil.disk_usage(there).free


def write_atomic(path: str | Path, data: bytes | str) -> None:
    """Put `data` at `path` in one step: a reader sees the old file or the new one, never a part, even after a power cut."""
    content = data.encode() if isinstance(data, str) else data
    target = Path(os.path.realpath(path))  # a link stays a link: the file it names is the one renewed
    if target.exists() and not target.is_file():
        # A rename over /dev/null or a pipe would succeed, and destroy it.
        raise ValueError(f"{path}: this is not a regular file; choose the path of a file.")
    temporary = target.parent / f".{uuid4().hex}.tmp"
    try:
        write_new(temporary, content)
        os.replace(temporary, target)
        fsync_folder(target.parent)
    except OSError as error:
        raise disk_error(error, path, "the file", len(content)) from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)


@contextmanager
def open_atomic(path: str | Path) -> Iterator[BinaryIO]:
    """A file to write bit by bit; it takes its place at `path` in one step at the end of the `with`, and never if that fails."""
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise ValueError(f"{path}: this is not a regular file; choose the path of a file.")
    temporary = target.parent / f".{uuid4().hex}.tmp"
    try:
        with open(temporary, "xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
        fsync_folder(target.parent)
    except OSError as error:
        raise disk_error(error, path, "the file") from error
    finally:
        with suppress(OSError):
            os.unlink(temporary)


def write_new(path: str | Path, data: bytes) -> None:
    """Write a file that must not exist yet and flush it to the disk; raises the bare `OSError`."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)
    try:
        rest = memoryview(data)
        while rest:  # a nearly full disk takes a part first and refuses afterwards
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    finally:
        os.close(handle)


def read_limited(path: str | Path, most: int) -> bytes:
    """The bytes of a regular file, and of nothing else: a device or a pipe may have no end. Raises the bare `OSError`, or a `ValueError` for a
    file of more than `most`."""
    path = Path(path)
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file")
    with path.open("rb") as file:
        found = file.read(most + 1)
    if len(found) > most:
        raise ValueError(
            f"{path}: {path.stat().st_size:,} bytes are too many, at most {most:,} are read; give the right file"
        )
    return found


def sha256(path: str | Path) -> str:
    """SHA-256 of a file's bytes in hexadecimal, read in pieces so that its size costs no memory."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync_file(path: str | Path) -> None:
    """Flush a file that someone else wrote to the disk."""
    handle = os.open(path, os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def fsync_folder(path: str | Path) -> None:
    """Flush a folder's list of names to the disk, without which a rename may be forgotten in a power cut."""
    if os.name == "nt":  # folders cannot be opened there; the file system orders renames itself
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # some network file systems know no such flush
            raise
    finally:
        os.close(handle)


@contextmanager
def lock_folder(folder: str | Path) -> Iterator[bool]:
    """Mark a folder as being written by this process for the length of a `with`; death ends the claim by itself. Gives False where another process
    has claimed it. On a file system without locks nobody is kept out, and `claimed` goes by age alone."""
    if fcntl is None:
        yield True
        return
    handle, ours = os.open(folder, os.O_RDONLY), True
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            ours = False
        except OSError:
            pass
        yield ours
    finally:
        os.close(handle)


@contextmanager
def exclusive(folder: str | Path, work: str) -> Iterator[None]:
    """Claim a folder, or say that another process is at `work` there."""
    with lock_folder(folder) as ours:
        if not ours:
            raise ValueError(
                f"{folder}: another process is {work} there; wait for its end, or choose another folder"
            )
        yield


def is_locked(folder: str | Path) -> bool:
    """Whether a living process may still write into `folder`; where locks are unknown, whether it was touched within a day."""
    try:
        recent = time.time() - os.stat(folder).st_mtime < _DAY
        handle = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        if fcntl is None:
            return recent
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return recent
    finally:
        os.close(handle)
