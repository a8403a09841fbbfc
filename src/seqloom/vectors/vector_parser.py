"""Bytes of vector files → words and rows, in blocks.

An error names the file and the line or word that is damaged.
"""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import numpy as np

from seqloom.errors import DataError
from seqloom.vectors.backend import load_kernels

BLOCK = 1 << 22  # bytes
AGAIN = "fetch or write the file again"
Blocks = Iterator[tuple[list[str], np.ndarray]]


def text_blocks(path: str | Path, file: IO[bytes], dim: int, count: int | None) -> Blocks:
    """Words and rows of `word number …` lines, after a header line if it states a `count` of words.

    Only a space separates fields: any other Unicode white space may be part of a word, and in GloVe's files
    even a space may.
    """
    line_number = 1
    num_words = 0
    if count is not None:
        file.readline()
        line_number = 2
    rest = b""
    while True:
        chunk = _read(path, file, BLOCK)
        if line_number == 1 and count is None:
            chunk = chunk.removeprefix(b"\xef\xbb\xbf")
        data = rest + chunk
        end = data.rfind(b"\n") + 1 if chunk else len(data)
        rest = data[end:]
        lines = data[:end].removesuffix(b"\n").split(b"\n") if end else []
        if lines:
            words, rows = _parse_lines(path, lines, dim, line_number)
            line_number += len(lines)
            num_words += len(words)
            yield words, rows
        if not chunk:
            break
    if count is not None and num_words != count:
        raise DataError(
            f"{path}:{line_number - 1}: the first line promises {count:,} words and the file has {num_words:,}; {AGAIN}"
        )


def _parse_lines(
    path: str | Path, lines: list[bytes], dim: int, first_line: int
) -> tuple[list[str], np.ndarray]:
    words: list[bytes] = []
    numbers: list[bytes] = []
    for line_number, line in enumerate(lines, first_line):
        line = line.rstrip(b" \r")
        if line.count(b" ") == dim:
            word, rest = line.split(b" ", 1)
        else:
            word, rest = _split_word_with_spaces(path, line, dim, line_number)
        words.append(word)
        numbers.append(rest)
    rows = _parse_numbers(path, b" ".join(numbers), len(lines), dim, first_line)
    _check_finite(rows, lambda row: f"{path}:{first_line + row}")
    try:
        return b"\n".join(words).decode().split("\n"), rows
    except UnicodeDecodeError:
        return [_decode(word, f"{path}:{number}") for number, word in enumerate(words, first_line)], rows


def _split_word_with_spaces(path: str | Path, line: bytes, dim: int, line_number: int) -> tuple[bytes, bytes]:
    """Splits a line whose word contains spaces, counting the numbers from its end."""
    fields = line.split(b" ")
    word, numbers = fields[:-dim], fields[-dim:]
    if len(fields) > dim + 1 and not _is_number(word[-1]):
        return b" ".join(word), b" ".join(numbers)
    raise DataError(f"{path}:{line_number}: {len(fields) - 1} numbers, not {dim}; {AGAIN}")


def _parse_numbers(path: str | Path, data: bytes, lines: int, dim: int, first_line: int) -> np.ndarray:
    """(lines, dim); Python's `float` parses the unusual spellings that the kernel leaves out."""
    numbers = np.empty(lines * dim, np.float32)
    unusual = np.empty((lines * dim, 3), np.int64)  # index, first byte, last byte
    read_numbers = load_kernels("parse_floats").read_numbers
    _, num_unusual = read_numbers(np.frombuffer(data, np.uint8), numbers, unusual)
    for index, start, end in unusual[:num_unusual].tolist():
        field = data[start:end]
        if not _is_number(field):
            shown = field[:20].decode(errors="replace")
            raise DataError(f"{path}:{first_line + index // dim}: {shown!r} is not a number; {AGAIN}")
        with np.errstate(over="ignore"):  # beyond float32 is infinite, which `_check_finite` reports
            numbers[index] = np.float64(field).astype(np.float32)
    return numbers.reshape(lines, dim)


def _is_number(field: bytes) -> bool:
    try:
        float(field)
    except ValueError:
        return False
    return True


def _check_finite(rows: np.ndarray, location: Callable[[int], str]) -> None:
    if not np.isfinite(rows).all():
        row = int(np.nonzero(~np.isfinite(rows).all(axis=1))[0][0])
        raise DataError(f"{location(row)}: a number that is not finite (NaN or infinity); {AGAIN}")


def _decode(word: bytes, location: str) -> str:
    try:
        return word.decode()
    except UnicodeDecodeError as error:
        raise DataError(
            f"{location}: the word is not UTF-8 (byte 0x{word[error.start]:02x}); save the file as UTF-8"
        ) from None


def binary_blocks(path: str | Path, file: IO[bytes], dim: int, count: int) -> Blocks:
    """Words and rows of word2vec's binary format: word, space, `dim` little-endian float32, an optional line end."""
    size = 4 * dim
    data = b""
    num_words = 0
    while num_words < count:
        chunk = _read(path, file, max(BLOCK, 4 * size))
        data += chunk
        at = 0
        words: list[bytes] = []
        numbers: list[bytes] = []
        while num_words + len(words) < count:
            space = data.find(b" ", at)
            if space < 0 or space + 1 + size > len(data):
                break
            words.append(data[at:space].lstrip(b"\n"))
            numbers.append(data[space + 1 : space + 1 + size])
            at = space + 1 + size
        data = data[at:]
        if words:
            locations = [f"{path}: word {num_words + 1 + i:,}" for i in range(len(words))]
            rows = np.frombuffer(b"".join(numbers), "<f4").reshape(-1, dim)
            _check_finite(rows, locations.__getitem__)
            yield [_decode(word, location) for word, location in zip(words, locations, strict=True)], rows
            num_words += len(words)
        elif not chunk:
            raise DataError(
                f"{path}: the file ends within word {num_words + 1:,} of the {count:,} that its first line promises; {AGAIN}"
            )
    if rest := (data + _read(path, file, BLOCK)).strip(b"\n"):
        raise DataError(
            f"{path}: {len(rest):,} bytes or more come after the {count:,} words that its first line promises; {AGAIN}"
        )


def _read(path: str | Path, file: IO[bytes], size: int) -> bytes:
    try:
        return file.read(size)
    except (OSError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise DataError(f"{path}: cannot be read to its end ({reason}); {AGAIN}") from None
