"""The token store: a corpus as memory-mapped ids, built once per
content by streaming, so that it may be larger than memory.

A store is a folder of the cache, named by a digest of its content: `store.json` and, for each column,
`N.tokens`, `N.offsets` and `N.bytes`. A text field is one column; the columns of the other kinds of fields
are in `fields.py`. A view of some records adds their numbers and copies nothing, so that data may be divided in any way without a second
copy on the disk or in memory. A store is built in a temporary folder and then renamed, so that an existing store is
always complete (`records.py`). Stores stay until `seqloom data cache --prune` removes them.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from uuid import uuid4

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.files import cache_folder, disk_error, lock_folder
from seqloom.text.corpus import Reader
from seqloom.text.encoder import RecordEncoder
from seqloom.text.records import RecordSchema, has_labels
from seqloom.text.tokenizer import SpecialTokens, signature, special_tokens

if TYPE_CHECKING:
    pass

VERSION = 1
BLOCK_RECORDS = 1 << 16  # records that a view gathers at a time
BLOCK_TOKENS = 1 << 20


class Column(NamedTuple):
    """Record i is `tokens[offsets[i]:offsets[i + 1]]`; its text
    has `bytes[i + 1] - bytes[i]` bytes of UTF-8, without <eos>.

    The names of the fields are file names.
    """

    tokens: np.ndarray  # (N,) uint16 or uint32 for ids
    offsets: np.ndarray  # (n + 1,) int64, from 0 to N
    bytes: np.ndarray  # (n + 1,) int64

    def row(self, index: int) -> np.ndarray:
        """Returns the values of one record."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def sizes(self, index: np.ndarray) -> np.ndarray:
        """Returns the number of values of each of the given records."""
        return self.offsets[index + 1] - self.offsets[index]

    def byte_sizes(self, index: np.ndarray) -> np.ndarray:
        """Returns the UTF-8 bytes of each of the given records."""
        return self.bytes[index + 1] - self.bytes[index]

    def number(self, index: int) -> int:
        """Returns the number of a record in the corpus, from 0."""
        return int(index)

    @property
    def num_records(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_bytes(self) -> int:
        """The UTF-8 bytes of all records."""
        return int(self.bytes[-1] - self.bytes[0])

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields all values, in blocks of bounded size."""
        for start in range(0, len(self.tokens), BLOCK_TOKENS):
            yield self.tokens[start : start + BLOCK_TOKENS]

    def gathered(self) -> Column:
        """Returns the column with its values in one array."""
        return self

    def pick(self, records: np.ndarray) -> ColumnView:
        """Returns the view of the given records."""
        return ColumnView(self, records)


class ColumnView:
    """The records of a column that have the given numbers, in that order."""

    def __init__(self, whole: Column, records: np.ndarray):
        self.whole = whole
        self.records = records
        self.num_records = len(records)
        self.num_tokens = sum(int(self.whole.sizes(part).sum()) for part in self.parts())
        self.num_bytes = sum(int(self.whole.byte_sizes(part).sum()) for part in self.parts())

    def parts(self) -> Iterator[np.ndarray]:
        """Yields the numbers of the records, some at a time."""
        for start in range(0, len(self.records), BLOCK_RECORDS):
            yield self.records[start : start + BLOCK_RECORDS].astype(np.int64)

    def row(self, index: int) -> np.ndarray:
        return self.whole.row(int(self.records[index]))

    def sizes(self, index: np.ndarray) -> np.ndarray:
        return self.whole.sizes(self.records[index].astype(np.int64))

    def byte_sizes(self, index: np.ndarray) -> np.ndarray:
        return self.whole.byte_sizes(self.records[index].astype(np.int64))

    def number(self, index: int) -> int:
        return int(self.records[index])

    def blocks(self) -> Iterator[np.ndarray]:
        for part in self.parts():
            yield self.tokens_of(part)

    def tokens_of(self, records: np.ndarray) -> np.ndarray:
        """Returns the values of the given records of the whole column in one array."""
        counts = self.whole.sizes(records)
        ends = np.cumsum(counts)
        positions = np.arange(ends[-1] if len(ends) else 0)
        positions += np.repeat(self.whole.offsets[records] - (ends - counts), counts)
        return self.whole.tokens[positions]

    def gathered(self) -> Column:
        """Returns the view with its values in one array, a copy in memory."""
        tokens = [*self.blocks()] or [self.whole.tokens[:0]]
        records = self.records.astype(np.int64)
        sizes = [self.whole.sizes(records), self.whole.byte_sizes(records)]
        offsets, byte_offsets = (np.concatenate([[0], np.cumsum(part)]) for part in sizes)
        return Column(np.concatenate(tokens), offsets, byte_offsets)

    def pick(self, records: np.ndarray) -> ColumnView:
        return ColumnView(self.whole, self.records[records])


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

    def split_by_content(self, keys: np.ndarray, fraction: float) -> tuple[Store, Store]:
        """Returns (training, held out): views of the records, chosen by their keys (see `split.py`), each label
        giving its share if records have one. The numbers of the records take 4 or 8 bytes of memory each."""
        labels = self.columns("label")
        strata = labels[0].gathered().tokens if labels else None
        from seqloom.text.split import assign_sides

        sides = assign_sides(keys, [fraction], strata)
        dtype = np.uint32 if len(self) < 1 << 32 else np.int64
        return self._pick(np.flatnonzero(sides == 0).astype(dtype), f"content {fraction} train"), self._pick(
            np.flatnonzero(sides == 1).astype(dtype), f"content {fraction} valid"
        )

    def _pick(self, records: np.ndarray, name: str) -> Store:
        """Returns the store of the records with these numbers; `name` tells its digest from others of this store."""
        digest = hashlib.sha256(f"{self.digest} {name}".encode()).hexdigest()
        columns = [column.pick(records) for column in self.fields]
        return Store(columns, digest, self.vocabulary, self.names, self.specials)

    def split(self, fraction: float) -> tuple[Store, Store]:
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

    def first(self, count: int) -> Store:
        """Returns the store of the first `count` records, or this store if it has no more."""
        return self if count >= len(self) else self._slice(0, count)

    def _slice(self, start: int, stop: int) -> Store:
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
        from seqloom.text import records

        folder.mkdir(parents=True, exist_ok=True)
        records.remove_stale(folder)
        temporary = folder / f".building-{uuid4().hex}"
        temporary.mkdir(mode=0o700)
        try:
            with lock_folder(temporary):
                schema = RecordSchema(
                    reader.kinds, tokenizers, reader.adds_eos, labels, template=reader.template
                )
                records.write_store(
                    temporary,
                    reader,
                    schema,
                    records.num_workers(workers),
                    progress or (lambda size: None),
                    digest,
                )
                records.publish(temporary, path, lambda: _open(path, digest) is not None)
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
