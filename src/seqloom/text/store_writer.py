"""Writes a store: records are read in blocks, checked, encoded by this process or by workers, and appended to the files of each column.

The folder is a temporary one, which `publish` renames when it is complete.
"""

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import numpy as np

from seqloom.errors import DataError
from seqloom.files import fsync_folder, is_locked, write_new
from seqloom.text.corpus import Reader
from seqloom.text.encoder import Encoded
from seqloom.text.fields import RecordSchema, TextField
from seqloom.text.store import Column

if TYPE_CHECKING:
    from seqloom.text.workers import EncoderPool

BLOCK = 1 << 20  # characters encoded at a time
SERIAL_BLOCKS = 3  # blocks that this process encodes; only longer corpora are worth starting workers


def num_workers(workers: int | None) -> int:
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise DataError(f"{workers} workers cannot tokenize; give 1 or more")
    return workers


def remove_stale(folder: Path) -> None:
    """Removes the folders of killed builds; a folder younger than
    a minute may belong to a build that has not locked it yet."""
    for stale in folder.glob(".building-*"):
        with suppress(OSError):
            if time.time() - stale.stat().st_mtime > 60 and not is_locked(stale):
                shutil.rmtree(stale, ignore_errors=True)


def publish(temporary: Path, path: Path, is_complete: Callable[[], bool]) -> None:
    """Renames the finished folder to `path`, unless another
    process has published the same store meanwhile."""
    fsync_folder(temporary)
    for is_last_attempt in (False, True):
        try:
            os.rename(temporary, path)
            fsync_folder(path.parent)
            return
        except OSError:
            if is_complete():
                return
            if is_last_attempt or not path.exists():
                raise
            damaged = path.with_name(f".building-{uuid4().hex}")
            os.rename(path, damaged)
            shutil.rmtree(damaged, ignore_errors=True)


class ColumnWriter:
    """Appends to the three files of one column."""

    def __init__(self, folder: Path, index: int):
        self.files: list[BinaryIO] = [(folder / f"{index}.{name}").open("wb") for name in Column._fields]
        self.num_tokens = 0
        self.num_bytes = 0
        self.num_records = 0
        for file in self.files[1:]:
            file.write(np.int64(0).tobytes())

    def add(self, tokens: bytes, counts: np.ndarray, sizes: np.ndarray) -> int:
        """Appends records and returns the number of their UTF-8 bytes."""
        offsets = self.num_tokens + np.cumsum(counts)
        byte_offsets = self.num_bytes + np.cumsum(sizes)
        for file, data in zip(self.files, (tokens, offsets.tobytes(), byte_offsets.tobytes()), strict=True):
            file.write(data)
        added_bytes = int(byte_offsets[-1]) - self.num_bytes
        self.num_tokens = int(offsets[-1])
        self.num_bytes = int(byte_offsets[-1])
        self.num_records += len(counts)
        return added_bytes

    def sync(self) -> None:
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self.files:
            with suppress(OSError):  # a full disk has raised already, in `add` or `sync`
                file.close()


def write_store(
    folder: Path,
    reader: Reader,
    schema: RecordSchema,
    workers: int,
    progress: Callable[[int], None],
    digest: str,
) -> None:
    """Writes all columns and store.json into `folder`. Workers
    encode text fields only; this process encodes the others."""
    writers: list[ColumnWriter] = []
    pool: EncoderPool | None = None
    pending: deque[tuple[ColumnWriter, Future[Encoded]]] = deque()
    text_fields = [field for field in schema.fields if type(field) is TextField]
    try:
        for i, block in enumerate(blocks(reader, schema)):
            if not writers:
                writers = [ColumnWriter(folder, column) for column in range(len(schema.names))]
            if i == SERIAL_BLOCKS and workers > 1 and text_fields:
                from seqloom.text import workers as encoding

                pool = encoding.EncoderPool(
                    [field.tokenizer for field in text_fields], reader.adds_eos, workers
                )
            remaining = iter(writers)
            for field, values in zip(schema.fields, block, strict=True):
                field_writers = list(islice(remaining, len(field.names)))
                if pool is not None and type(field) is TextField:
                    pending.append((field_writers[0], pool.submit(text_fields.index(field), values)))
                else:
                    columns = zip(field_writers, field.encode(values), strict=True)
                    progress(sum(writer.add(*encoded) for writer, encoded in columns))
            while len(pending) > 2 * workers:
                writer, future = pending.popleft()
                progress(writer.add(*future.result()))
        for writer, future in pending:
            progress(writer.add(*future.result()))
        for writer in writers:
            writer.sync()
    finally:
        if pool is not None:
            pool.close()
        for writer in writers:
            writer.close()
    if not writers:
        raise DataError(f"{', '.join(map(str, reader.paths))}: no records; give a file with text")
    dtypes = [dtype.name for field in schema.fields for dtype in field.dtypes]
    metadata = {
        "digest": digest,
        "records": writers[0].num_records,
        "fields": [
            {"name": name, "dtype": dtype, "tokens": writer.num_tokens}
            for name, dtype, writer in zip(schema.names, dtypes, writers, strict=True)
        ],
    }
    write_new(folder / "store.json", json.dumps(metadata).encode())


def blocks(reader: Reader, schema: RecordSchema) -> Iterator[list[list]]:
    """Yields, for each block of about 1 MB, the values of each field."""
    if reader.is_plain and len(schema.fields) == 1 and type(schema.fields[0]) is TextField:
        yield from text_blocks(reader)
        return
    block: list[list] = []
    size = 0
    for record in reader:
        values = schema.check(record, reader.location)
        size += sum(value_size(value) for value in values)
        block.append(values)
        if size >= BLOCK or len(block) >= BLOCK:
            yield [list(column) for column in zip(*block, strict=True)]
            block = []
            size = 0
    if block:
        yield [list(column) for column in zip(*block, strict=True)]


def text_blocks(reader: Reader) -> Iterator[list[list]]:
    """Yields the same blocks for records that are text and need no check."""
    block: list[str] = []
    size = 0
    for (text,) in reader:
        size += len(text)
        block.append(text)
        if size >= BLOCK or len(block) >= BLOCK:
            yield [block]
            block = []
            size = 0
    if block:
        yield [block]


def value_size(value: Any) -> int:
    """Returns about how many bytes a value of a record takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if hasattr(value, "__len__") else 0
