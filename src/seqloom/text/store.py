"""The token store: a corpus as memory-mapped ids, built once per
content by streaming, so that it may be larger than memory.

A store is a folder of the cache, named by a digest of its content: `store.json` and, for each column,
`N.tokens`, `N.offsets` and `N.bytes`. A text field is one column; the columns of the other kinds of fields
are in `fields.py`. A store is built in a temporary folder and then renamed, so that an existing store is
always complete. Stores stay until `seqloom data cache --prune` removes them.
"""

import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO
from uuid import uuid4

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.files import cache_folder, disk_error, fsync_folder, is_locked, lock_folder, write_new
from seqloom.text.column import Column, ColumnView
from seqloom.text.corpus import Reader
from seqloom.text.encoder import Encoded, RecordEncoder
from seqloom.text.fields import RecordSchema, TextField, has_labels
from seqloom.text.special_tokens import SpecialTokens, special_tokens
from seqloom.text.split import assign_sides
from seqloom.text.tokenizer import signature

if TYPE_CHECKING:
    from seqloom.text.workers import EncoderPool

VERSION = 1
BLOCK = 1 << 20  # characters encoded at a time
SERIAL_BLOCKS = 3  # blocks that this process encodes; only longer corpora are worth starting workers


class Store:
    """The ids of n records. `fields[k].tokens` is column k of all records, concatenated; `store[i]` is record
    i, one array per column. `names` are the names of the columns; ids are below `vocabulary`, and `specials`
    are the special ids."""

    def __init__(
        self,
        fields: Sequence[Column | ColumnView],
        digest: str,
        vocabulary: int = 0,
        names: Sequence[str] | None = None,
        specials: SpecialTokens = SpecialTokens(),
    ):
        self.fields = tuple(fields)
        self.digest = digest
        self.vocabulary = vocabulary
        self.specials = specials
        self.names = ("text",) * len(self.fields) if names is None else tuple(names)

    def columns(self, name: str) -> list[Column | ColumnView]:
        """Returns the columns of that name."""
        named_columns = zip(self.names, self.fields, strict=True)
        return [column for column_name, column in named_columns if column_name == name]

    def __len__(self) -> int:
        return self.fields[0].num_records

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"no record {index} among {len(self)}")
        index %= len(self)
        return tuple(column.row(index) for column in self.fields)

    def split_by_content(self, keys: np.ndarray, fraction: float) -> tuple["Store", "Store"]:
        """Returns (training, held out): views of the records, chosen by their keys (see `split.py`), each label
        giving its share if records have one. The numbers of the records take 4 or 8 bytes of memory each."""
        labels = self.columns("label")
        strata = labels[0].gathered().tokens if labels else None
        sides = assign_sides(keys, [fraction], strata)
        dtype = np.uint32 if len(self) < 1 << 32 else np.int64
        return self._pick(np.flatnonzero(sides == 0).astype(dtype), f"content {fraction} train"), self._pick(
            np.flatnonzero(sides == 1).astype(dtype), f"content {fraction} valid"
        )

    def _pick(self, records: np.ndarray, name: str) -> "Store":
        """Returns the store of the records with these numbers; `name` tells its digest from others of this store."""
        digest = hashlib.sha256(f"{self.digest} {name}".encode()).hexdigest()
        columns = [column.pick(records) for column in self.fields]
        return Store(columns, digest, self.vocabulary, self.names, self.specials)

    def split(self, fraction: float) -> tuple["Store", "Store"]:
        """Returns (all but the tail, the tail); the tail has about
        `fraction` of the first column's ids, at least one record.

        The ids are views; the offsets of the tail are copied and start at 0, 16 bytes of memory per record.
        """
        if not 0 < fraction < 1:
            raise DataError(f"a held-out fraction of {fraction} is not between 0 and 1; give for example 0.1")
        if len(self) < 2:
            raise DataError(
                "one record cannot be split; give a second file for validation, or a reader that splits the text into lines"
            )
        offsets = self.fields[0].gathered().offsets
        tail_start = int(np.searchsorted(offsets, np.int64(round(offsets[-1] * (1 - fraction)))))
        tail_start = min(max(tail_start, 1), len(self) - 1)
        return self._slice(0, tail_start), self._slice(tail_start, len(self))

    def first(self, count: int) -> "Store":
        """Returns the store of the first `count` records, or this store if it has no more."""
        return self if count >= len(self) else self._slice(0, count)

    def _slice(self, start: int, stop: int) -> "Store":
        """Returns the store of records `start` to `stop`, `stop` excluded."""

        def from_zero(offsets: np.ndarray) -> np.ndarray:
            part = offsets[start : stop + 1]
            return part - part[0] if start else part

        columns = [
            Column(tokens[offsets[start] : offsets[stop]], from_zero(offsets), from_zero(sizes))
            for tokens, offsets, sizes in (column.gathered() for column in self.fields)
        ]
        digest = hashlib.sha256(f"{self.digest} {start} {stop}".encode()).hexdigest()
        return Store(columns, digest, self.vocabulary, self.names, self.specials)


def build(
    reader: Reader,
    tokenizer: Tokenizer | Sequence[Tokenizer],
    folder: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    labels: Sequence[str] = (),
) -> Store:
    """Returns the store of `reader`'s records: from the cache `folder`
    if it is there, else built with `workers` processes.

    Give one tokenizer for all fields, or a sequence with one for each. `labels` are the labels that records
    may name, in their order. `progress` is called with the bytes of text processed since its last call.
    """
    tokenizers = [tokenizer] if isinstance(tokenizer, Tokenizer) else list(tokenizer)
    folder = Path(folder or cache_folder())
    digest = _digest(reader, tokenizers, labels)
    path = folder / digest[:32]
    vocabulary = max(tokenizer.get_vocab_size() for tokenizer in tokenizers)
    specials = special_tokens(tokenizers[-1])
    try:
        if (store := _open(path, digest, vocabulary, specials)) is not None:
            return store
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        temporary = folder / f".building-{uuid4().hex}"
        temporary.mkdir(mode=0o700)
        try:
            with lock_folder(temporary):
                schema = RecordSchema(
                    reader.kinds, tokenizers, reader.adds_eos, labels, template=reader.template
                )
                _write(
                    temporary, reader, schema, _num_workers(workers), progress or (lambda size: None), digest
                )
                _publish(temporary, path, digest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise disk_error(error, folder, "the tokenized text") from error
    store = _open(path, digest, vocabulary, specials)
    if store is None:
        raise DataError(
            f"{path}: the store disappeared or was damaged just after it was written; choose another folder"
        )
    return store


def _digest(reader: Reader, tokenizers: Sequence[Tokenizer], labels: Sequence[str]) -> str:
    """Returns the SHA-256 of all that the ids depend on.
    Changing its form would rebuild every cached store."""
    label_names = [json.dumps(list(labels))] if has_labels(reader.kinds) else []
    stateful = ["joined" for tokenizer in tokenizers if RecordEncoder(tokenizer, reader.adds_eos).is_stateful]
    signatures = map(signature, tokenizers)
    name = " ".join(
        [str(VERSION), str(reader.adds_eos), reader.digest(), *signatures, *label_names, *stateful]
    )
    return hashlib.sha256(name.encode()).hexdigest()


def _num_workers(workers: int | None) -> int:
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise DataError(f"{workers} workers cannot tokenize; give 1 or more")
    return workers


def _open(
    path: Path, digest: str, vocabulary: int = 0, specials: SpecialTokens = SpecialTokens()
) -> Store | None:
    """Opens the store at `path`; returns None if there is none, or if its files have wrong sizes."""
    try:
        metadata = json.loads((path / "store.json").read_text(encoding="utf-8"))
        if metadata["digest"] != digest:
            return None
        num_offsets = metadata["records"] + 1
        columns = []
        for i, column in enumerate(metadata["fields"]):
            columns.append(
                Column(
                    tokens=_map(path / f"{i}.tokens", column["dtype"], column["tokens"]),
                    offsets=_map(path / f"{i}.offsets", "int64", num_offsets),
                    bytes=_map(path / f"{i}.bytes", "int64", num_offsets),
                )
            )
        names = [column.get("name", "text") for column in metadata["fields"]]
        with suppress(OSError):
            os.utime(path)  # the time of its last use, for `data cache --prune`
        return Store(columns, digest, vocabulary, names, specials)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _map(path: Path, dtype: str, count: int) -> np.ndarray:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise DataError(f"{path}: damaged")
    return np.memmap(path, dtype, "r") if count else np.empty(0, dtype)


def _remove_stale(folder: Path) -> None:
    """Removes the folders of killed builds; a folder younger than
    a minute may belong to a build that has not locked it yet."""
    for stale in folder.glob(".building-*"):
        with suppress(OSError):
            if time.time() - stale.stat().st_mtime > 60 and not is_locked(stale):
                shutil.rmtree(stale, ignore_errors=True)


def _publish(temporary: Path, path: Path, digest: str) -> None:
    """Renames the finished folder to `path`, unless another
    process has published the same store meanwhile."""
    fsync_folder(temporary)
    for is_last_attempt in (False, True):
        try:
            os.rename(temporary, path)
            fsync_folder(path.parent)
            return
        except OSError:
            if _open(path, digest) is not None:
                return
            if is_last_attempt or not path.exists():
                raise
            damaged = path.with_name(f".building-{uuid4().hex}")
            os.rename(path, damaged)
            shutil.rmtree(damaged, ignore_errors=True)


class _ColumnWriter:
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


def _write(
    folder: Path,
    reader: Reader,
    schema: RecordSchema,
    workers: int,
    progress: Callable[[int], None],
    digest: str,
) -> None:
    """Writes all columns and store.json into `folder`. Workers
    encode text fields only; this process encodes the others."""
    writers: list[_ColumnWriter] = []
    pool: EncoderPool | None = None
    pending: deque[tuple[_ColumnWriter, Future[Encoded]]] = deque()
    text_fields = [field for field in schema.fields if type(field) is TextField]
    try:
        for i, block in enumerate(_blocks(reader, schema)):
            if not writers:
                writers = [_ColumnWriter(folder, column) for column in range(len(schema.names))]
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


def _blocks(reader: Reader, schema: RecordSchema) -> Iterator[list[list]]:
    """Yields, for each block of about 1 MB, the values of each field."""
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


def value_size(value: Any) -> int:
    """Returns about how many bytes a value of a record takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    return len(value) if hasattr(value, "__len__") else 0


def in_memory_store(
    records: Sequence[Sequence], schema: RecordSchema, locations: Sequence[str] | None = None
) -> Store:
    """Builds a store of a few records in memory, with the same columns as `build`."""
    locations = locations or [f"record {number}" for number in range(1, len(records) + 1)]
    rows = [schema.check(record, location) for record, location in zip(records, locations, strict=True)]
    columns = []
    for field, values in zip(schema.fields, zip(*rows, strict=True), strict=True):
        for (tokens, counts, sizes), dtype in zip(field.encode(list(values)), field.dtypes, strict=True):
            offsets = np.concatenate([[0], np.cumsum(counts)])
            byte_offsets = np.concatenate([[0], np.cumsum(sizes)])
            columns.append(Column(np.frombuffer(tokens, dtype), offsets, byte_offsets))
    return Store(columns, "", 0, schema.names, schema.specials)
