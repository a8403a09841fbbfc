"""Bytes of foreign vector files → words and rows, in blocks; what is damaged is one sentence that names the line or the byte."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np

from seqloom.vectors.backend import load_kernels

BLOCK = 1 << 22  # bytes
AGAIN = "fetch or write the file again"
Blocks = Iterator[tuple[list[str], np.ndarray]]


def text_blocks(path: str | Path, file: BinaryIO, dim: int, count: int | None) -> Blocks:
    """Words and rows of `word number …` lines, after a header line where `count` is what it promised. Only a space separates: any other
    white space of Unicode may be part of a word, and in GloVe's files even a space may."""
    number, words = 1, 0
    if count is not None:
        file.readline()
        number = 2
    rest = b""
    while True:
        chunk = _read(path, file, BLOCK)
        if number == 1 and count is None:
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        data = rest + chunk
        cut = data.rfind(b"\n") + 1 if chunk else len(data)
        rest = data[cut:]
        lines = data[:cut].removesuffix(b"\n").split(b"\n") if cut else []
        if lines:
            found, rows = _rows(path, lines, dim, number)
            number, words = number + len(lines), words + len(found)
            yield found, rows
        if not chunk:
            break
    if count is not None and words != count:
        raise ValueError(
            f"{path}:{number - 1}: the first line promises {count:,} words and the file has {words:,}; {AGAIN}"
        )


def _rows(path: str | Path, lines: list[bytes], dim: int, number: int) -> tuple[list[str], np.ndarray]:
    heads, tails = [], []
    for place, line in enumerate(lines, number):
        line = line.rstrip(b" \r")
        head, tail = line.split(b" ", 1) if line.count(b" ") == dim else _spaced(path, line, dim, place)
        heads.append(head)
        tails.append(tail)
    rows = _numbers(path, b" ".join(tails), len(tails), dim, number)
    _finite(rows, lambda row: f"{path}:{number + row}")
    try:
        return b"\n".join(heads).decode().split("\n"), rows
    except UnicodeDecodeError:
        return [_word(head, f"{path}:{place}") for place, head in enumerate(heads, number)], rows


def _spaced(path: str | Path, line: bytes, dim: int, place: int) -> tuple[bytes, bytes]:
    """A line whose word holds spaces, cut from its end."""
    fields = line.split(b" ")
    word, numbers = fields[:-dim], fields[-dim:]
    if len(fields) > dim + 1 and not _is_number(word[-1]):
        return b" ".join(word), b" ".join(numbers)
    raise ValueError(f"{path}:{place}: {len(fields) - 1} numbers, not {dim}; {AGAIN}")


def _numbers(path: str | Path, data: bytes, lines: int, dim: int, number: int) -> np.ndarray:
    """(lines, dim): what is written in any other way than most numbers are is asked of Python's `float`."""
    found, left = np.empty(lines * dim, np.float32), np.empty((lines * dim, 3), np.int64)
    _, aside = load_kernels("parse_floats").read_numbers(np.frombuffer(data, np.uint8), found, left)
    for place, start, end in left[:aside].tolist():
        field = data[start:end]
        if not _is_number(field):
            raise ValueError(
                f"{path}:{number + place // dim}: {field[:20].decode(errors='replace')!r} is no number; {AGAIN}"
            )
        with np.errstate(
            over="ignore"
        ):  # beyond float32 is infinite, which is refused where the line is known
            found[place] = np.float64(field).astype(np.float32)
    return found.reshape(lines, dim)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _finite(rows: np.ndarray, where) -> None:
    if not np.isfinite(rows).all():
        row = int(np.nonzero(~np.isfinite(rows).all(axis=1))[0][0])
        raise ValueError(f"{where(row)}: a number that is not finite (NaN or infinity); {AGAIN}")


def _word(data: bytes, where: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{where}: the word is not UTF-8 (byte 0x{data[error.start]:02x}); save the file as UTF-8"
        ) from None


def binary_blocks(path: str | Path, file: BinaryIO, dim: int, count: int) -> Blocks:
    """Words and rows of word2vec's binary form: the word, a space, `dim` little-endian float32, a line end or none."""
    size, data, words = 4 * dim, b"", 0
    while words < count:
        chunk = _read(path, file, max(BLOCK, 4 * size))
        data, at = data + chunk, 0
        heads, tails = [], []
        while words + len(heads) < count:
            space = data.find(b" ", at)
            if space < 0 or space + 1 + size > len(data):
                break
            heads.append(data[at:space].lstrip(b"\n"))
            tails.append(data[space + 1 : space + 1 + size])
            at = space + 1 + size
        data = data[at:]
        if heads:
            first = words + 1
            rows = np.frombuffer(b"".join(tails), "<f4").reshape(-1, dim)
            _finite(rows, lambda row, first=first: f"{path}: word {first + row:,}")
            yield [_word(head, f"{path}: word {place:,}") for place, head in enumerate(heads, first)], rows
            words += len(heads)
        elif not chunk:
            raise ValueError(
                f"{path}: the file ends within word {words + 1:,} of the {count:,} that its first line promises; {AGAIN}"
            )
    if left := (data + _read(path, file, BLOCK)).strip(b"\n"):
        raise ValueError(
            f"{path}: {len(left):,} bytes or more come after the {count:,} words that its first line promises; {AGAIN}"
        )


def _read(path: str | Path, file: BinaryIO, size: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ValueError(
            f"{path}: cannot be read to its end ({getattr(error, 'strerror', None) or error}); {AGAIN}"
        ) from None
