"""Writing word vectors: a folder, or a file whose ending tells its format. Nothing is left behind if writing fails."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Literal, cast

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.files import disk_error, draft_folder, fsync_file, fsync_folder, require_new, write_atomic

Format = Literal["folder", "word2vec", "binary", "glove", "npz"]  # fastText's .vec is word2vec's text
Block = tuple[list[str], np.ndarray]  # words and their rows
FORMAT = "seqloom vectors 1"
ENDINGS: dict[str, Format] = {".txt": "word2vec", ".vec": "word2vec", ".bin": "binary", ".npz": "npz"}


def format_of(path: Path) -> Format:
    """The format that a name asks for: .txt, .vec and .bin (with .gz too) are word2vec's, .npz is numpy's, no ending is a folder.

    >>> format_of(Path("vec.txt")), format_of(Path("v.bin.gz")), format_of(Path("runs/v"))
    ('word2vec', 'binary', 'folder')
    """
    ending = Path(path.name.removesuffix(".gz")).suffix.lower()
    if not ending and path.suffix != ".gz":
        return "folder"
    if ending not in ENDINGS or (ending == ".npz" and path.suffix == ".gz"):
        raise UserError(
            f"{path}: vectors have no format {path.suffix}; end the name in .txt, .vec or .bin (.gz too) or .npz, "
            "give no ending for a folder, or say --format"
        )
    return ENDINGS[ending]


def write_vectors(
    path: Path,
    format: Format,
    blocks: Iterable[Block],
    count: int,
    dim: int,
    meta: dict[str, Any],
    overwrite: bool = False,
) -> None:
    """Writes blocks of words and rows. `count` is the number of words, which only word2vec's formats need."""
    if format == "folder":
        with new_folder(path, overwrite) as draft:
            write_folder(draft, blocks, dim, meta)
        return
    with _new(path, overwrite) as draft:
        with _create(draft, path.suffix == ".gz") as file:
            if format == "npz":
                _write_npz(file, blocks)
            else:
                _write_rows(file, format, blocks, count, dim)
        fsync_file(draft)


def _write_rows(file: IO[bytes], format: Format, blocks: Iterable[Block], count: int, dim: int) -> None:
    encode_rows = _binary_rows if format == "binary" else _text_rows
    if format != "glove":
        file.write(f"{count} {dim}\n".encode())
    for words, rows in blocks:
        file.write(b"".join(encode_rows(words, rows)))


def _write_npz(file: IO[bytes], blocks: Iterable[Block]) -> None:
    words: list[str] = []
    parts: list[np.ndarray] = []
    for block_words, rows in blocks:
        words += block_words
        parts.append(rows)
    np.savez(file, words=np.array(words, np.str_), vectors=np.concatenate(parts))


@contextmanager
def _create(path: Path, compressed: bool) -> Iterator[IO[bytes]]:
    """A file to write, as gzip if `compressed`; without a time in its header, so that equal vectors are equal files."""
    with path.open("wb") as file:
        if compressed:
            with gzip.GzipFile("", "wb", 6, file, mtime=0) as compressor:
                yield cast(IO[bytes], compressor)
        else:
            yield file


@contextmanager
def new_folder(path: str | Path, overwrite: bool = False) -> Iterator[Path]:
    """A folder to write into, which is moved to `path` after success and removed after an error."""
    with _new(Path(path), overwrite) as draft:
        draft.mkdir()
        yield draft
        for file in draft.iterdir():
            fsync_file(file)


@contextmanager
def _new(path: Path, overwrite: bool) -> Iterator[Path]:
    """A path in a hidden folder beside `path`, which is moved there after success and removed after an error."""
    if not path.name:
        require_absent(path)
    replaced = path.with_name(f".{path.name}-replaced")
    if replaced.exists() and not os.path.lexists(path):
        os.rename(replaced, path)  # a process was killed before it had put the new folder in place of this
    require_absent(path, overwrite)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with draft_folder(path.parent) as folder:
            yield folder / path.name
            if path.is_dir():  # a folder cannot be replaced in one step
                shutil.rmtree(replaced, ignore_errors=True)
                os.rename(path, replaced)
            os.replace(folder / path.name, path)
            fsync_folder(path.parent)
            shutil.rmtree(replaced, ignore_errors=True)
    except OSError as error:
        raise disk_error(error, path, "the result") from error


def require_absent(path: str | Path, overwrite: bool = False) -> None:
    """Raises an error if a path to be written exists; `overwrite` permits files, and folders that hold vectors."""
    require_new(path, overwrite)
    if Path(path).is_dir() and not (Path(path) / "vectors.npy").is_file():
        raise UserError(f"{path}: a folder without vectors is not overwritten; choose another --out")


def write_folder(folder: Path, blocks: Iterable[Block], dim: int, meta: dict[str, Any]) -> None:
    """Writes the files of a folder of vectors."""
    count = 0
    with (folder / "vectors.npy").open("wb") as matrix_file, (folder / "words.txt").open("wb") as words_file:
        _write_npy_header(matrix_file, count, dim)
        for words, rows in blocks:
            if odd := next((word for word in words if "\n" in word), None):
                raise DataError(
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
        raise DataError(
            f"the word {word!r} cannot be stored in this format, in which a space ends a word; use a folder or .npz"
        )
    return word
