"""Files of word vectors, recognised by their content: seqloom's, word2vec's, GloVe's and fastText's  [N12].

A seqloom folder holds vectors.npy, which is memory-mapped and therefore opens at once at any size, words.txt
with one word per line, meta.json, and buckets.npy if n-grams give vectors to unseen words. Other files are
read and written in blocks, so that conversion needs little memory. Left out: fastText's .bin, which is a
model and not a file of vectors, and vectors of integers or bits.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Literal, NamedTuple, cast
from uuid import uuid4

import numpy as np

from seqloom.files import disk_error, fsync_file, write_atomic
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vector_parser import binary_blocks, text_blocks
from seqloom.vectors.vectors import SubwordVectors, Vectors

Format = Literal["folder", "word2vec", "binary", "glove"]  # fastText's .vec is word2vec's text
Block = tuple[list[str], np.ndarray]  # words and their rows
FORMAT = "seqloom vectors 1"
HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,9})[ \t]*\r?")
FASTTEXT = (793712314).to_bytes(4, "little")
HEAD = 1 << 16  # bytes from which the format is recognised


class VectorStream(NamedTuple):
    """The vectors of a file as a stream: format, size, meta data, and blocks of words and rows."""

    format: Format
    dim: int
    meta: dict[str, Any]
    blocks: Iterable[Block]


def load(path: str | Path) -> Vectors:
    """The vectors of a folder (memory-mapped) or of a file in any of the formats."""
    if Path(path).is_dir():
        return _open_folder(Path(path))
    stream = open_stream(path)
    words: list[str] = []
    parts: list[np.ndarray] = []
    for block_words, rows in _distinct(stream.blocks):
        words += block_words
        parts.append(rows)
    return Vectors(words, np.concatenate(parts), stream.meta)


def save(vectors: Vectors, path: str | Path, format: Format = "folder") -> None:
    """Writes vectors in any of the formats; `path` must not exist yet."""
    if format == "folder":
        with new_folder(path) as draft:
            write_into(draft, vectors)
        return
    _write(Path(path), format, _blocks(vectors), len(vectors), vectors.dim, vectors.meta)


def write_into(folder: Path, vectors: Vectors) -> None:
    """Writes vectors into an existing folder, with n-grams, which no other format can store."""
    meta = vectors.meta
    if vectors.subword_vectors:
        np.save(folder / "buckets.npy", vectors.subword_vectors.buckets, allow_pickle=False)
        meta = {**meta, "subwords": asdict(vectors.subword_vectors.subwords)}
    _write_folder(folder, _blocks(vectors), vectors.dim, meta)


def _blocks(vectors: Vectors) -> Iterator[Block]:
    return ((list(vectors.words[start : start + len(rows)]), rows) for start, rows in vectors.blocks())


def convert(source: str | Path, target: str | Path, format: Format = "folder") -> Format:
    """Reads one format and writes another, block by block; returns the format of the source."""
    if Path(source).is_dir():
        save(load(source), target, format)
        return "folder"
    stream = open_stream(source)
    count = 0
    if format in ("word2vec", "binary"):  # the first line of these states the number of words
        count = sum(len(words) for words, _ in _distinct(stream.blocks))
        stream = open_stream(source)
    _write(Path(target), format, _distinct(stream.blocks), count, stream.dim, stream.meta)
    return stream.format


def open_stream(path: str | Path) -> VectorStream:
    """Recognises the format of a file. Reading the blocks detects damage and names its line or word."""
    head = _read_head(path)
    first, _, rest = head.partition(b"\n")
    meta = {"source": Path(path).name}
    if header := HEADER.fullmatch(first):
        count, dim = map(int, header.groups())
        fields = rest.split(b"\n", 1)[0].split()
        if count < 1 or dim < 1:
            raise ValueError(
                f"{path}:1: the first line promises {count} words of {dim} numbers; give a file with vectors"
            )
        if _are_numbers(fields[1:]) and len(fields) > dim:
            return VectorStream("word2vec", dim, meta, _read_text(path, dim, count))
        if not (len(fields) == 2 and _are_numbers(fields[1:])):
            if _is_binary(rest) or (fields and not any(_are_numbers([field]) for field in fields[1:])):
                return VectorStream("binary", dim, meta, _read_binary(path, dim, count, len(first) + 1))
            return VectorStream("word2vec", dim, meta, _read_text(path, dim, count))
    fields = first.rstrip(b" \r").split(b" ")
    if len(fields) < 2 or not _are_numbers(fields[1:]):
        raise ValueError(
            f"{path}:1: neither a header (words, size) nor a word and its numbers; "
            "give vectors in word2vec's, GloVe's or fastText's format, or a folder that seqloom wrote"
        )
    return VectorStream("glove", len(fields) - 1, meta, _read_text(path, len(fields) - 1, None))


def _read_head(path: str | Path) -> bytes:
    """The beginning of a file, with its full first line."""
    try:
        with _open(path) as file:
            head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf")
            if b"\n" not in head:  # the first line has thousands of numbers
                head += file.readline(HEAD << 8)
    except FileNotFoundError:
        raise ValueError(
            f"{path}: no such file or folder; give a file of vectors or a folder of them"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise ValueError(f"{path}: cannot be read ({reason}); give a file of vectors") from None
    if not head.strip():
        raise ValueError(f"{path}: the file is empty; give a file of vectors")
    if head.startswith(FASTTEXT):
        raise ValueError(f"{path}: fastText's .bin is a model, not a file of vectors; give its .vec file")
    return head


def _are_numbers(fields: list[bytes]) -> bool:
    """Whether there are fields and all of them are numbers."""
    try:
        return bool(fields) and bool([float(field) for field in fields])
    except ValueError:
        return False


@contextmanager
def _open(path: str | Path) -> Iterator[IO[bytes]]:
    """A file for reading, decompressed if it is gzip."""
    with Path(path).open("rb") as file:
        compressed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if compressed:
            with gzip.open(file) as decompressed:
                yield cast(IO[bytes], decompressed)
        else:
            yield file


def _is_binary(data: bytes) -> bool:
    """Whether bytes have control characters, or are not UTF-8 apart from a character cut off at the end."""
    try:
        data[: max(0, len(data) - 4)].decode()
    except UnicodeDecodeError as error:
        if error.end < len(data) - 8:
            return True
    return bool(re.search(rb"[\0-\x08\x0e-\x1f]", data))


def _read_text(path: str | Path, dim: int, count: int | None) -> Iterator[Block]:
    with _open(path) as file:
        yield from text_blocks(path, file, dim, count)


def _read_binary(path: str | Path, dim: int, count: int, start: int) -> Iterator[Block]:
    with _open(path) as file:
        file.seek(start)
        yield from binary_blocks(path, file, dim, count)


def _distinct(blocks: Iterable[Block]) -> Iterator[Block]:
    """The blocks without repeated words: of equal words the first one counts."""
    seen: set[str] = set()
    for words, rows in blocks:
        new = []
        for row, word in enumerate(words):
            if word not in seen:
                seen.add(word)
                new.append(row)
        yield (words, rows) if len(new) == len(words) else ([words[row] for row in new], rows[new])


def _open_folder(folder: Path) -> Vectors:
    try:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        recognised = meta["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        recognised = False
    if not recognised:
        raise ValueError(
            f"{folder}: not a folder of vectors (it has no meta.json that seqloom wrote); "
            "make one with: seqloom vectors train FILE --out FOLDER"
        )
    try:
        matrix = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        words = (folder / "words.txt").read_bytes().decode().split("\n")[:-1]
        subword_vectors = None
        if "subwords" in meta["about"]:
            buckets = np.load(folder / "buckets.npy", mmap_mode="r", allow_pickle=False)
            subword_vectors = SubwordVectors(Subwords(**meta["about"]["subwords"]), buckets)
    except (OSError, ValueError, EOFError, TypeError, KeyError) as error:
        raise ValueError(f"{folder}: damaged ({' '.join(str(error).split())}); write it again") from None
    if matrix.ndim != 2 or len(words) != len(matrix):
        raise ValueError(
            f"{folder}: damaged (words.txt has {len(words):,} words, vectors.npy the shape {matrix.shape}); "
            "write it again"
        )
    return Vectors(words, matrix, meta["about"], subword_vectors)


def _write(
    path: Path,
    format: Format,
    blocks: Iterable[Block],
    count: int,
    dim: int,
    meta: dict[str, Any],
) -> None:
    if format == "folder":
        with new_folder(path) as draft:
            _write_folder(draft, blocks, dim, meta)
        return
    encode_rows = _binary_rows if format == "binary" else _text_rows
    with _new(path) as draft:
        with draft.open("wb") as file:
            if format != "glove":
                file.write(f"{count} {dim}\n".encode())
            for words, rows in blocks:
                file.write(b"".join(encode_rows(words, rows)))
        fsync_file(draft)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to write into, which is moved to `path` after success and removed after an error."""
    with _new(Path(path)) as draft:
        draft.mkdir()
        yield draft
        for file in draft.iterdir():
            fsync_file(file)


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """A temporary path beside `path`, which is moved there after success and removed after an error."""
    require_absent(path)
    draft = path.parent / f".{path.name}-{uuid4().hex}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield draft
        os.rename(draft, path)
    except OSError as error:
        raise disk_error(error, path, "the result") from error
    finally:
        with suppress(OSError):
            shutil.rmtree(draft) if draft.is_dir() else draft.unlink()


def require_absent(path: str | Path) -> None:
    """Raises an error if a path to be written exists."""
    if os.path.lexists(path):
        raise ValueError(f"{path}: exists already; choose another --out, or remove it first")


def _write_folder(folder: Path, blocks: Iterable[Block], dim: int, meta: dict[str, Any]) -> None:
    count = 0
    with (folder / "vectors.npy").open("wb") as matrix_file, (folder / "words.txt").open("wb") as words_file:
        _write_npy_header(matrix_file, count, dim)
        for words, rows in blocks:
            if odd := next((word for word in words if "\n" in word), None):
                raise ValueError(
                    f"the word {odd!r} contains a line end and cannot be stored in words.txt; leave it out"
                )
            words_file.write("".join(f"{word}\n" for word in words).encode())
            matrix_file.write(np.ascontiguousarray(rows, "<f4").data)
            count += len(words)
        matrix_file.seek(0)
        _write_npy_header(matrix_file, count, dim)  # numpy leaves space in the header for a larger count
    stored = {"format": FORMAT, "words": count, "dim": dim, "about": meta}
    write_atomic(folder / "meta.json", json.dumps(stored, ensure_ascii=False, indent=1))


def _write_npy_header(file: IO[bytes], rows: int, dim: int) -> None:
    header = {"descr": "<f4", "fortran_order": False, "shape": (rows, dim)}
    np.lib.format.write_array_header_1_0(file, header)


def _text_rows(words: Iterable[str], rows: np.ndarray) -> Iterator[bytes]:
    """`word number …` lines; nine digits represent every float32 exactly."""
    line = "%s" + " %.9g" * rows.shape[1] + "\n"
    for word, row in zip(words, rows.tolist(), strict=True):
        yield (line % (_check_no_space(word), *row)).encode()


def _binary_rows(words: Iterable[str], rows: np.ndarray) -> Iterator[bytes]:
    """The word, a space, its numbers as little-endian float32, a line end."""
    for word, row in zip(words, np.ascontiguousarray(rows, "<f4"), strict=True):
        yield b"%s %s\n" % (_check_no_space(word).encode(), row.tobytes())


def _check_no_space(word: str) -> str:
    if " " in word or "\n" in word or not word:
        raise ValueError(
            f"the word {word!r} cannot be stored in this format, in which a space ends a word; use the folder format"
        )
    return word
