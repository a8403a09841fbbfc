"""Bytes → lines: plain, gzip and zst files and the standard input, checked to be UTF-8 text, in constant memory.

A line ends with LF or CR LF; a lone CR is a character, so that lines are counted as `wc -l` does. A
byte-order mark is dropped. Input that is not text (UTF-16, NUL bytes, a folder, a broken gzip file) raises
one ValueError that names the place and the remedy.
"""

import atexit
import gzip
import logging
import os
import select
import shutil
import sys
import tempfile
import time
import zlib
from collections.abc import Iterator
from contextlib import ExitStack
from io import BufferedIOBase
from pathlib import Path

from seqloom.errors import DataError
from seqloom.files import draft_folder

BLOCK_BYTES = 1 << 20
WRITER_SECONDS = 10.0  # to wait for a writer of a pipe
POLL_SECONDS = 0.1
logger = logging.getLogger("seqloom")
BOM = b"\xef\xbb\xbf"
_spooled: dict[str, Path] = {}
_spool_folders = ExitStack()  # removed at the end of the process; what a killed one leaves, the next removes
atexit.register(_spool_folders.close)


def local_copy(path: str | Path) -> Path:
    """Returns a regular file with the content of `path`: the file itself,
    or a copy of a stream that can be read only once (`-`, a pipe)."""
    name = str(path)
    if name in _spooled:
        return _spooled[name]
    file = Path(path)
    try:
        if name != "-":
            if file.is_dir():
                raise DataError(f"{path}: a folder, not a file; give the files inside it")
            if file.is_file() or not file.exists():
                with file.open("rb") as source:
                    first_byte = source.read(1)
                if not first_byte:
                    raise DataError(f"{path}: the file is empty; give a file with text")
                return file
        folder = _spool_folders.enter_context(draft_folder(tempfile.gettempdir()))
        spool = folder / "stream"
        with spool.open("xb") as copy:
            if name == "-":
                shutil.copyfileobj(sys.stdin.buffer, copy, BLOCK_BYTES)
            else:
                copy.writelines(_stream(file))
    except OSError as error:
        raise DataError(f"{path}: {_reason(error)}; give a file that can be read") from error
    if spool.stat().st_size == 0:
        raise DataError(f"{path}: no input arrived; pipe text into the command")
    _spooled[name] = spool
    return spool


def _stream(file: Path) -> Iterator[bytes]:
    """Yields the bytes of a pipe. A pipe that nobody writes into, and a device, which has no end, are refused."""
    if not file.is_fifo():
        raise DataError(f"{file}: a device or a socket, not a file; give a file, or - for the standard input")
    with open(os.open(file, os.O_RDONLY | os.O_NONBLOCK), "rb", buffering=0) as source:
        waited = 0.0
        arrived = False
        while True:
            chunk = source.read(BLOCK_BYTES)  # None: a writer has nothing yet; empty: there is no writer
            if chunk:
                arrived = True
                yield chunk
            elif chunk is None:
                select.select([source], [], [])
            elif arrived or waited > WRITER_SECONDS:
                break
            else:
                if not waited:
                    logger.info("%s: waiting for something to write into this pipe", file)
                time.sleep(POLL_SECONDS)
                waited += POLL_SECONDS


def blocks(path: str | Path, keep_line_ends: bool = False) -> Iterator[str]:
    """Yields the text in blocks of about 1 MB that end with a newline.

    CR LF becomes LF unless `keep_line_ends`. A longer line is divided before a space,
    or else between two characters: its first blocks do not end with a newline.
    """
    file = local_copy(path)
    number = 1
    rest = b""
    first = True
    try:
        with _open(file) as source:
            while True:
                chunk = source.read(BLOCK_BYTES)
                data = rest + chunk
                if first:
                    data = _strip_bom(path, data)
                    first = False
                if not data:
                    return
                end = data.rfind(b"\n") + 1 if chunk else len(data)
                if not end and len(data) >= BLOCK_BYTES:
                    end = _break_position(data)
                if end:
                    text = _decode(path, number, data[:end])
                    yield text if keep_line_ends or "\r" not in text else text.replace("\r\n", "\n")
                number += data.count(b"\n", 0, end)
                rest = data[end:]
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(
            f"{path}:{number}: damaged gzip file ({error}); download or compress it again"
        ) from error
    except OSError as error:
        raise DataError(f"{path}:{number}: {_reason(error)}; give a file that can be read") from error


def lines(path: str | Path) -> Iterator[str]:
    """Yields the lines of the file, without their ends."""
    pending: list[str] = []
    for text in blocks(path):
        head, *more = text.split("\n")
        pending.append(head)
        if more:
            yield "".join(pending)
            pending = [more.pop()]
            yield from more
    if any(pending):
        yield "".join(pending)


def first_lines(path: str | Path, count: int) -> list[str]:
    """Returns the first lines of the file, at most `count`, and not
    more than one block; of a longer line, its beginning."""
    return next(blocks(path), "").removesuffix("\n").split("\n")[:count]


def starts_with(path: str | Path) -> str:
    """The first character of a file that is not white space; empty if there is none."""
    return "".join(first_lines(path, 1000)).strip()[:1]


def lines_with_ends(path: str | Path) -> Iterator[str]:
    """Yields the lines of the file with their ends, LF, CR
    LF, or none after the last: joined, they are the file."""
    pending: list[str] = []
    for text in blocks(path, keep_line_ends=True):
        *complete, rest = text.split("\n")
        for line in complete:
            yield "".join([*pending, line, "\n"])
            pending = []
        pending += [rest] if rest else []
    if pending:
        yield "".join(pending)


def split_line_end(row: str) -> tuple[str, str]:
    """Splits a line into its text and its end."""
    size = len(row) - (2 if row.endswith("\r\n") else row.endswith("\n"))
    return row[:size], row[size:]


def byte_order_mark(path: str | Path) -> str:
    """Returns the byte-order mark of the file, or an empty string."""
    with _open(local_copy(path)) as file:
        return BOM.decode() if file.read(3) == BOM else ""


def strip_compression(path: str | Path) -> Path:
    """Returns the path without the suffix of a compressed file."""
    return Path(str(path).removesuffix(".gz").removesuffix(".zst"))


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()


def _open(file: Path) -> BufferedIOBase:
    with file.open("rb") as source:
        start = source.read(4)
    if start == b"\x28\xb5\x2f\xfd" or file.suffix == ".zst":
        return _open_zstd(file)
    return gzip.open(file) if start[:2] == b"\x1f\x8b" or file.suffix == ".gz" else file.open("rb")


def _open_zstd(file: Path) -> BufferedIOBase:
    """Opens a file compressed with Zstandard, for which Python needs a package."""
    try:
        return _ZstdFile(file)
    except ImportError:
        raise DataError(
            f"{file}: reading .zst needs the package zstandard; install seqloom[data], or unpack the file with: unzstd {file}"
        ) from None


class _ZstdFile(BufferedIOBase):
    """Reads a file compressed with Zstandard."""

    def __init__(self, file: Path):
        import zstandard

        self.file = file
        self.error = zstandard.ZstdError
        self.stream = zstandard.open(file, "rb")

    def read(self, size: int | None = -1) -> bytes:
        try:
            return self.stream.read(-1 if size is None else size)
        except self.error as error:
            raise DataError(
                f"{self.file}: damaged zst file ({error}); download or compress it again"
            ) from error

    def close(self) -> None:
        self.stream.close()
        super().close()


def _strip_bom(path: str | Path, data: bytes) -> bytes:
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        raise DataError(f"{path}:1: UTF-16 text; save it as UTF-8 (iconv -f UTF-16 -t UTF-8)")
    data = data.removeprefix(BOM)
    if not data:
        raise DataError(f"{path}: the file is empty; give a file with text")
    return data


def _break_position(data: bytes) -> int:
    """Returns where to divide a block without a newline: before
    its last space, or else before its last character."""
    space = data.rfind(b" ")
    if space > 0:
        return space
    last = len(data) - 1
    while data[last] & 0xC0 == 0x80 and len(data) - last < 4:
        last -= 1
    return last


def _decode(path: str | Path, number: int, data: bytes) -> str:
    nul = data.find(b"\0")
    if nul >= 0:
        line = number + data.count(b"\n", 0, nul)
        raise DataError(f"{path}:{line}: a NUL byte: a binary file or UTF-16; give UTF-8 text")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = number + data.count(b"\n", 0, error.start)
        column = error.start - data.rfind(b"\n", 0, error.start)
        raise DataError(
            f"{path}:{line}: byte {column} of the line (0x{data[error.start]:02x}) is not UTF-8; "
            "save the file as UTF-8 (iconv -t UTF-8)"
        ) from None
    return text
