"""Bytes → lines: plain or gzip files and the standard input, checked to be UTF-8 text, in constant memory.

A line ends with LF or CR LF; a lone CR is a character, so that the count of lines is everybody's (`wc -l`). A byte-order mark is dropped.
What is not text (UTF-16, NUL bytes, a folder, a broken gzip) is one ValueError that says where and what to do.
"""

import atexit
import gzip
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

BLOCK = 1 << 20
MARK = b"\xef\xbb\xbf"  # the byte-order mark
_spooled: dict[str, Path] = {}


def local_copy(path: str | Path) -> Path:
    """A regular file with the content of `path`: itself, or a copy of a stream that can be read only once (`-`, a pipe)."""
    name = str(path)
    if name in _spooled:
        return _spooled[name]
    file = Path(path)
    try:
        if name != "-":
            if file.is_dir():
                raise ValueError(f"{path}: a folder, not a file; give the files inside it")
            if file.is_file() or not file.exists():
                with file.open("rb") as source:
                    begun = source.read(1)
                if not begun:
                    raise ValueError(f"{path}: the file is empty; give a file with text")
                return file
        with tempfile.NamedTemporaryFile(prefix="seqloom-", delete=False) as copy:
            spool = Path(copy.name)
            atexit.register(spool.unlink, missing_ok=True)
            if name == "-":
                shutil.copyfileobj(sys.stdin.buffer, copy, BLOCK)
            else:
                with file.open("rb") as source:
                    shutil.copyfileobj(source, copy, BLOCK)
    except OSError as error:
        raise ValueError(
            f"{path}: {(error.strerror or str(error)).lower()}; give a file that can be read"
        ) from error
    if spool.stat().st_size == 0:
        raise ValueError(f"{path}: nothing came in; pipe text into the command")
    _spooled[name] = spool
    return spool


def blocks(path: str | Path, kept: bool = False) -> Iterator[str]:
    """The text in blocks of about 1 MB that end with a newline, newlines being LF, or what they are in the file where that is `kept`.

    A longer line is cut before a space, or else between two characters: its first blocks do not end with a newline.
    """
    file = local_copy(path)
    number, rest, first = 1, b"", True
    try:
        with _open(file) as source:
            while True:
                chunk = source.read(BLOCK)
                data = rest + chunk
                if first:
                    data, first = _strip_bom(path, data), False
                if not data:
                    return
                cut = data.rfind(b"\n") + 1 if chunk else len(data)
                if not cut and len(data) >= BLOCK:
                    cut = _cut(data)
                if cut:
                    text = _decode(path, number, data[:cut])
                    yield text if kept or "\r" not in text else text.replace("\r\n", "\n")
                number, rest = number + data.count(b"\n", 0, cut), data[cut:]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path}:{number}: damaged gzip file ({error}); fetch or pack it again") from error
    except OSError as error:
        raise ValueError(
            f"{path}:{number}: {(error.strerror or str(error)).lower()}; give a file that can be read"
        ) from error


def lines(path: str | Path) -> Iterator[str]:
    """The lines of the file, without their ends."""
    begun: list[str] = []
    for text in blocks(path):
        head, *more = text.split("\n")
        begun.append(head)
        if more:
            yield "".join(begun)
            begun = [more.pop()]
            yield from more
    if any(begun):
        yield "".join(begun)


def lines_with_ends(path: str | Path) -> Iterator[str]:
    """The lines of the file with the ends that they have, LF, CR LF, or none after the last, so that it can be written as it stood."""
    begun: list[str] = []
    for text in blocks(path, kept=True):
        *whole, rest = text.split("\n")
        for line in whole:
            yield "".join([*begun, line, "\n"])
            begun = []
        begun += [rest] if rest else []
    if begun:
        yield "".join(begun)


def split_line_end(row: str) -> tuple[str, str]:
    """A line and its end."""
    size = len(row) - (2 if row.endswith("\r\n") else row.endswith("\n"))
    return row[:size], row[size:]


def byte_order_mark(path: str | Path) -> str:
    """The byte-order mark of the file, or nothing."""
    with _open(local_copy(path)) as file:
        return MARK.decode() if file.read(3) == MARK else ""


def _open(file: Path) -> BinaryIO:
    with file.open("rb") as source:
        packed = source.read(2) == b"\x1f\x8b"
    return gzip.open(file) if packed or file.suffix == ".gz" else file.open("rb")


def _strip_bom(path: str | Path, data: bytes) -> bytes:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise ValueError(f"{path}:1: UTF-16 text; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    data = data.removeprefix(MARK)
    if not data:
        raise ValueError(f"{path}: the file is empty; give a file with text")
    return data


def _cut(data: bytes) -> int:
    """Where to cut a block without a newline: before its last space, or else before its last character."""
    space = data.rfind(b" ")
    if space > 0:
        return space
    last = len(data) - 1
    while data[last] & 0xC0 == 0x80 and len(data) - last < 4:
        last -= 1
    return last


def _decode(path: str | Path, number: int, data: bytes) -> str:
    zero = data.find(b"\0")
    if zero >= 0:
        line = number + data.count(b"\n", 0, zero)
        raise ValueError(f"{path}:{line}: a NUL byte: a binary file or UTF-16; give UTF-8 text")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise ValueError(
            f"{path}:{line}: byte {column} of the line (0x{data[error.start]:02x}) is not UTF-8; "
            "save the file as UTF-8 (iconv -t UTF-8)"
        ) from None
    return text
