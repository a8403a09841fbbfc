"""Files of word vectors, recognised by their content: seqloom's, word2vec's, GloVe's and fastText's  [N12].

A seqloom folder holds vectors.npy, which is memory-mapped and therefore opens at once at any size, words.txt
with one word per line, meta.json, and buckets.npy if n-grams give vectors to unseen words. Other files are
read and written in blocks, so that conversion needs little memory; an .npz file is held in memory. What is
written follows from the ending of its name (`format_of`). Left out: fastText's .bin, which is a model and not
a file of vectors, gensim's .kv and .model, which are pickles, and vectors of integers or bits.
"""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from os import PathLike
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import numpy as np

from seqloom import compat
from seqloom.errors import DataError
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vector_parser import binary_blocks, text_blocks
from seqloom.vectors.vector_writer import (
    FORMAT,
    Block,
    Format,
    format_of,
    new_folder,
    require_absent,
    write_folder,
    write_vectors,
)
from seqloom.vectors.vectors import SubwordVectors, Vectors

__all__ = [
    "Format",
    "convert",
    "load",
    "new_folder",
    "open_stream",
    "require_absent",
    "save",
    "write_into",
]

HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,9})[ \t]*\r?")
FASTTEXT = (793712314).to_bytes(4, "little")
PICKLE = b"\x80"
ZIP = b"PK\x03\x04"
HEAD = 1 << 16  # bytes from which the format is recognised


class VectorStream(NamedTuple):
    """The vectors of a file as a stream: format, size, meta data, and blocks of words and rows."""

    format: Format
    dim: int
    meta: dict[str, Any]
    blocks: Iterable[Block]


def load(path: str | PathLike[str]) -> Vectors:
    """The vectors of a folder (memory-mapped) or of a file in any of the formats.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Vectors(["river", "bank"], np.eye(2)).save(f"{folder}/v.txt")
    ...     load(f"{folder}/v.txt")
    Vectors(2 words × 2, v.txt)
    """
    path = Path(path)
    if path.is_dir():
        return _open_folder(path)
    stream = open_stream(path)
    words: list[str] = []
    parts: list[np.ndarray] = []
    for block_words, rows in _distinct(stream.blocks):
        words += block_words
        parts.append(rows)
    return Vectors(words, np.concatenate(parts), stream.meta)


def save(
    vectors: Vectors, path: str | PathLike[str], format: Format | None = None, overwrite: bool = False
) -> None:
    """Writes vectors in the format of the path's ending, or in `format`; what exists is replaced only if `overwrite`."""
    path = Path(path)
    format = format or format_of(path)
    if format == "folder":
        with new_folder(path, overwrite) as draft:
            write_into(draft, vectors)
        return
    write_vectors(path, format, _blocks(vectors), len(vectors), vectors.dim, vectors.meta, overwrite)


def write_into(folder: Path, vectors: Vectors) -> None:
    """Writes vectors into an existing folder, with n-grams, which no other format can store."""
    meta = vectors.meta
    if vectors.subword_vectors:
        np.save(folder / "buckets.npy", vectors.subword_vectors.buckets, allow_pickle=False)
        meta = {**meta, "subwords": asdict(vectors.subword_vectors.subwords)}
    write_folder(folder, _blocks(vectors), vectors.dim, meta)


def _blocks(vectors: Vectors) -> Iterator[Block]:
    return ((list(vectors.words[start : start + len(rows)]), rows) for start, rows in vectors.blocks())


def convert(
    source: str | PathLike[str],
    out: str | PathLike[str],
    format: Format | None = None,
    overwrite: bool = False,
) -> Format:
    """Reads vectors and writes them in the format of the ending of `out`, or in `format`, block by block.

    Returns the format of the source.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     Vectors(["river", "bank"], np.eye(2)).save(f"{folder}/v")
    ...     convert(f"{folder}/v", f"{folder}/v.vec"), convert(f"{folder}/v.vec", f"{folder}/v.bin")
    ('folder', 'word2vec')
    """
    source, out = Path(source), Path(out)
    format = format or format_of(out)
    require_absent(out, overwrite)
    if source.is_dir():
        save(load(source), out, format, overwrite)
        return "folder"
    stream = open_stream(source)
    count = 0
    if format in ("word2vec", "binary"):  # the first line of these states the number of words
        count = sum(len(words) for words, _ in _distinct(stream.blocks))
        stream = open_stream(source)
    write_vectors(out, format, _distinct(stream.blocks), count, stream.dim, stream.meta, overwrite)
    return stream.format


def open_stream(path: str | PathLike[str]) -> VectorStream:
    """Recognises the format of a file. Reading the blocks detects damage and names its line or word."""
    path = Path(path)
    head = _read_head(path)
    meta = {"source": path.name}
    if head.startswith(ZIP):
        words, matrix = _read_npz(path)
        return VectorStream("npz", matrix.shape[1], meta, [(words, matrix)])
    first, _, rest = head.partition(b"\n")
    if header := HEADER.fullmatch(first):
        count, dim = map(int, header.groups())
        fields = rest.split(b"\n", 1)[0].split()
        if count < 1 or dim < 1:
            raise DataError(
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
        raise DataError(
            f"{path}:1: neither a header (words, size) nor a word and its numbers; "
            "give vectors in word2vec's, GloVe's or fastText's format, or a folder that seqloom wrote"
        )
    return VectorStream("glove", len(fields) - 1, meta, _read_text(path, len(fields) - 1, None))


def _read_head(path: Path) -> bytes:
    """The beginning of a file, with its full first line."""
    try:
        with _open(path) as file:
            head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf")
            if b"\n" not in head:  # the first line has thousands of numbers
                head += file.readline(HEAD << 8)
    except FileNotFoundError:
        raise DataError(
            f"{path}: no such file or folder; give a file of vectors or a folder of them"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or error
        raise DataError(f"{path}: cannot be read ({reason}); give a file of vectors") from None
    if not head.strip():
        raise DataError(f"{path}: the file is empty; give a file of vectors")
    if head.startswith(FASTTEXT):
        raise DataError(f"{path}: fastText's .bin is a model, not a file of vectors; give its .vec file")
    if head.startswith(PICKLE):
        raise DataError(
            f"{path}: a pickle, such as gensim's .kv and .model, which can run any code; "
            "write it with gensim's save_word2vec_format first"
        )
    return head


def _read_npz(path: Path) -> tuple[list[str], np.ndarray]:
    """The arrays `words` (V,) and `vectors` (V, D) of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as arrays:
            words, matrix = arrays["words"], arrays["vectors"]
        if not (isinstance(words, np.ndarray) and isinstance(matrix, np.ndarray)):
            raise ValueError("its members are not arrays")
        words.tolist()  # raises for numbers that are no characters
    except (
        Exception
    ) as error:  # numpy's reader lets the errors of zip, zlib and Python's own tokenizer through
        reason = " ".join(str(error).split())
        raise DataError(
            f"{path}: not vectors as .npz ({reason}); it must hold the arrays words and vectors"
        ) from None
    numbers = (
        matrix.ndim == 2 and matrix.size and matrix.dtype.kind == "f" and bool(np.isfinite(matrix).all())
    )
    if not numbers or words.shape != matrix.shape[:1] or words.dtype.kind != "U":
        raise DataError(
            f"{path}: words of the shape {words.shape} ({words.dtype}) and vectors of the shape {matrix.shape} "
            f"({matrix.dtype}); give as many words as rows of finite floats"
        )
    return words.tolist(), matrix.astype(np.float32, copy=False)


def _are_numbers(fields: list[bytes]) -> bool:
    """Whether there are fields and all of them are numbers."""
    try:
        return bool(fields) and bool([float(field) for field in fields])
    except ValueError:
        return False


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """A file for reading, decompressed if it is gzip. A pipe or a device may have no end, so it is refused."""
    if path.exists() and not path.is_file():
        raise DataError(f"{path}: it is not a regular file; give a file of vectors")
    with path.open("rb") as file:
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


def _read_text(path: Path, dim: int, count: int | None) -> Iterator[Block]:
    with _open(path) as file:
        yield from text_blocks(path, file, dim, count)


def _read_binary(path: Path, dim: int, count: int, start: int) -> Iterator[Block]:
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
        raise DataError(
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
        raise DataError(f"{folder}: damaged ({' '.join(str(error).split())}); write it again") from None
    if matrix.ndim != 2 or len(words) != len(matrix):
        raise DataError(
            f"{folder}: damaged (words.txt has {len(words):,} words, vectors.npy the shape {matrix.shape}); "
            "write it again"
        )
    return Vectors(words, matrix, compat.upgrade_json("meta.json", meta["about"]), subword_vectors)
