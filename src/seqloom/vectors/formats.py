"""Files of word vectors, recognised by what is in them: our own folder, word2vec's text and binary, GloVe's text, fastText's .vec  [N12].

Our own is a folder: vectors.npy, which is memory-mapped and so opens at once whatever its size, words.txt with a word a line, meta.json, and
buckets.npy where n-grams make vectors of unseen words.
Foreign files are read and written in blocks, so converting one needs no memory to speak of. Left out: fastText's .bin, which is a model and
not a file of vectors, and vectors of whole numbers or bits.
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
from typing import Any, BinaryIO, Literal, NamedTuple
from uuid import uuid4

import numpy as np

from seqloom.files import disk_error, fsync_file, write_atomic
from seqloom.vectors.subwords import Subwords
from seqloom.vectors.vector_parser import binary_blocks, text_blocks
from seqloom.vectors.vectors import SubwordVectors, Vectors

Format = Literal["folder", "word2vec", "binary", "glove"]  # fastText's .vec is word2vec's text
FORMAT = "seqloom vectors 1"
HEADER = re.compile(rb"[ \t]*(\d{1,18})[ \t]+(\d{1,9})[ \t]*\r?")
FASTTEXT = (793712314).to_bytes(4, "little")
HEAD = 1 << 16


class VectorStream(NamedTuple):
    """A file's vectors as they come: its form, their size, what is known of them, and blocks of words and rows."""

    form: Format
    dim: int
    meta: dict[str, Any]
    blocks: Iterable[tuple[list[str], np.ndarray]]


def load(path: str | Path) -> Vectors:
    """The vectors of a folder (memory-mapped) or a file in any of the forms."""
    if Path(path).is_dir():
        return _open_folder(Path(path))
    found = open_stream(path)
    words: list[str] = []
    parts: list[np.ndarray] = []
    for some, rows in _distinct(found.blocks):
        words += some
        parts.append(rows)
    return Vectors(words, np.concatenate(parts), found.meta)


def save(vectors: Vectors, path: str | Path, form: Format = "folder") -> None:
    """Write vectors in any of the forms; the place must be free."""
    if form == "folder":
        with new_folder(path) as draft:
            write_into(draft, vectors)
        return
    _write(Path(path), form, _blocks(vectors), len(vectors), vectors.dim, vectors.meta)


def write_into(folder: Path, vectors: Vectors) -> None:
    """Write vectors into a folder that is there; n-grams too, which only this form can hold."""
    about = vectors.meta
    if vectors.grams:
        np.save(folder / "buckets.npy", vectors.grams.buckets, allow_pickle=False)
        about = {**about, "subwords": asdict(vectors.grams.subwords)}
    _write_folder(folder, _blocks(vectors), vectors.dim, about)


def _blocks(vectors: Vectors) -> Iterator[tuple[list[str], np.ndarray]]:
    return ((list(vectors.words[start : start + len(rows)]), rows) for start, rows in vectors.blocks())


def convert(source: str | Path, target: str | Path, form: Format = "folder") -> Format:
    """Read one form and write another, block by block; gives back the form that was read."""
    if Path(source).is_dir():
        save(load(source), target, form)
        return "folder"
    found = open_stream(source)
    count = 0
    if form in ("word2vec", "binary"):  # whose first line says how many there are
        count = sum(len(words) for words, _ in _distinct(found.blocks))
        found = open_stream(source)
    _write(Path(target), form, _distinct(found.blocks), count, found.dim, found.meta)
    return found.form


def open_stream(path: str | Path) -> VectorStream:
    """What a foreign file holds; damage is found while the blocks are read, and named by its line or byte."""
    try:
        with _open(path) as file:
            head = file.read(HEAD).removeprefix(b"\xef\xbb\xbf")
            if b"\n" not in head:  # thousands of numbers on the first line
                head += file.readline(HEAD << 8)
    except FileNotFoundError:
        raise ValueError(
            f"{path}: no such file or folder; give a file of vectors or a folder of them"
        ) from None
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error}); give a file of vectors"
        ) from None
    if not head.strip():
        raise ValueError(f"{path}: the file is empty; give a file of vectors")
    if head.startswith(FASTTEXT):
        raise ValueError(f"{path}: fastText's .bin is a model, not a file of vectors; give its .vec file")
    first, _, rest = head.partition(b"\n")
    meta = {"source": Path(path).name}
    if said := HEADER.fullmatch(first):
        count, dim = map(int, said.groups())
        fields = rest.split(b"\n", 1)[0].split()
        if count < 1 or dim < 1:
            raise ValueError(
                f"{path}:1: the first line promises {count} words of {dim} numbers; give a file with vectors"
            )
        if _numbers(fields[1:]) and len(fields) > dim:
            return VectorStream("word2vec", dim, meta, _lines(path, dim, count))
        if not (len(fields) == 2 and _numbers(fields[1:])):
            if _binary(rest) or (fields and not any(_numbers([field]) for field in fields[1:])):
                return VectorStream("binary", dim, meta, _packed(path, dim, count, len(first) + 1))
            return VectorStream("word2vec", dim, meta, _lines(path, dim, count))
    fields = first.rstrip(b" \r").split(b" ")
    if len(fields) < 2 or not _numbers(fields[1:]):
        raise ValueError(
            f"{path}:1: neither a header (words, size) nor a word and its numbers; "
            "give vectors in word2vec's, GloVe's or fastText's form, or a folder of ours"
        )
    return VectorStream("glove", len(fields) - 1, meta, _lines(path, len(fields) - 1, None))


def _numbers(fields: list[bytes]) -> bool:
    """Whether all of some fields are numbers."""
    try:
        return bool(fields) and bool([float(field) for field in fields])
    except ValueError:
        return False


@contextmanager
def _open(path: str | Path) -> Iterator[BinaryIO]:
    with Path(path).open("rb") as file:
        packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        if packed:
            with gzip.open(file) as plain:
                yield plain
        else:
            yield file


def _binary(data: bytes) -> bool:
    """Whether bytes are no text: control characters, or not UTF-8 before the last few."""
    try:
        data[: max(0, len(data) - 4)].decode()
    except UnicodeDecodeError as error:
        if error.end < len(data) - 8:
            return True
    return bool(re.search(rb"[\0-\x08\x0e-\x1f]", data))


def _lines(path: str | Path, dim: int, count: int | None) -> Iterator[tuple[list[str], np.ndarray]]:
    with _open(path) as file:
        yield from text_blocks(path, file, dim, count)


def _packed(path: str | Path, dim: int, count: int, start: int) -> Iterator[tuple[list[str], np.ndarray]]:
    with _open(path) as file:
        file.seek(start)
        yield from binary_blocks(path, file, dim, count)


def _distinct(blocks: Iterable[tuple[list[str], np.ndarray]]) -> Iterator[tuple[list[str], np.ndarray]]:
    """The blocks without words that came before: of equal words the first one counts."""
    seen: set[str] = set()
    for words, rows in blocks:
        fresh = [row for row, word in enumerate(words) if not (word in seen or seen.add(word))]
        yield (words, rows) if len(fresh) == len(words) else ([words[row] for row in fresh], rows[fresh])


def _open_folder(folder: Path) -> Vectors:
    try:
        meta = json.loads((folder / "meta.json").read_text("utf-8"))
        known = meta["format"] == FORMAT
    except (OSError, ValueError, KeyError, TypeError):
        known = False
    if not known:
        raise ValueError(
            f"{folder}: no folder of vectors (it has no meta.json of ours); make one with: seqloom vectors train FILE --out FOLDER"
        )
    try:
        matrix = np.load(folder / "vectors.npy", mmap_mode="r", allow_pickle=False)
        words = (folder / "words.txt").read_bytes().decode().split("\n")[:-1]
        grams = None
        if "subwords" in meta["about"]:
            grams = SubwordVectors(
                Subwords(**meta["about"]["subwords"]),
                np.load(folder / "buckets.npy", mmap_mode="r", allow_pickle=False),
            )
    except (OSError, ValueError, EOFError, TypeError, KeyError) as error:
        raise ValueError(f"{folder}: damaged ({' '.join(str(error).split())}); write it again") from None
    if matrix.ndim != 2 or len(words) != len(matrix):
        raise ValueError(
            f"{folder}: damaged: words.txt has {len(words):,} words, vectors.npy the shape {matrix.shape}; write it again"
        )
    return Vectors(words, matrix, meta["about"], grams)


def _write(
    path: Path,
    form: Format,
    blocks: Iterable[tuple[list[str], np.ndarray]],
    count: int,
    dim: int,
    meta: dict[str, Any],
) -> None:
    if form == "folder":
        with new_folder(path) as draft:
            _write_folder(draft, blocks, dim, meta)
        return
    with _new(path) as draft:
        with draft.open("wb") as file:
            if form != "glove":
                file.write(f"{count} {dim}\n".encode())
            for words, rows in blocks:
                file.write(
                    b"".join(_packed_rows(words, rows) if form == "binary" else _text_rows(words, rows))
                )
        fsync_file(draft)


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A folder to write into, which stands at `path` when all went well and nowhere otherwise."""
    with _new(Path(path)) as draft:
        draft.mkdir()
        yield draft
        for file in draft.iterdir():
            fsync_file(file)


@contextmanager
def _new(path: Path) -> Iterator[Path]:
    """A place beside `path` that is moved there in the end."""
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
    """See that nothing is at a place to be written."""
    if os.path.lexists(path):
        raise ValueError(f"{path}: exists already; choose another --out, or remove it first")


def _write_folder(
    folder: Path, blocks: Iterable[tuple[list[str], np.ndarray]], dim: int, meta: dict[str, Any]
) -> None:
    rows_written = 0
    with (folder / "vectors.npy").open("wb") as numbers, (folder / "words.txt").open("wb") as names:
        for last in (
            False,
            True,
        ):  # the header is written again when the count is known: numpy leaves room in it for that
            numbers.seek(0)
            np.lib.format.write_array_header_1_0(
                numbers, {"descr": "<f4", "fortran_order": False, "shape": (rows_written, dim)}
            )
            for words, rows in () if last else blocks:
                if odd := next((word for word in words if "\n" in word), None):
                    raise ValueError(
                        f"the word {odd!r} holds a line end and cannot stand in words.txt; leave it out"
                    )
                names.write("".join(f"{word}\n" for word in words).encode())
                numbers.write(np.ascontiguousarray(rows, "<f4"))
                rows_written += len(words)
    write_atomic(
        folder / "meta.json",
        json.dumps(
            {"format": FORMAT, "words": rows_written, "dim": dim, "about": meta}, ensure_ascii=False, indent=1
        ),
    )


def _text_rows(words: Iterable[str], rows: np.ndarray) -> Iterator[bytes]:
    """`word number …` lines; nine digits give every float32 back."""
    line = "%s" + " %.9g" * rows.shape[1] + "\n"
    for word, row in zip(words, rows.tolist(), strict=True):
        yield (line % (_check_no_space(word), *row)).encode()


def _packed_rows(words: Iterable[str], rows: np.ndarray) -> Iterator[bytes]:
    data, size = np.ascontiguousarray(rows, "<f4").tobytes(), 4 * rows.shape[1]
    for place, word in enumerate(words):
        yield b"%s %s\n" % (_check_no_space(word).encode(), data[place * size : place * size + size])


def _check_no_space(word: str) -> str:
    if " " in word or "\n" in word or not word:
        raise ValueError(
            f"the word {word!r} cannot stand in this form, where a space ends a word; keep the vectors as a folder"
        )
    return word
