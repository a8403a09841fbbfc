"""The token store: a corpus as memory-mapped ids, built by streaming, once per content, so that it may be larger than memory.

A store is a folder of the cache named by what it was made from: `store.json` and, per column, `N.tokens`, `N.offsets`, `N.bytes`. A field of text is
one column; what the other kinds of fields become is in `kinds.py`.
It is built beside its place and renamed into it, so a store that is there is whole. Old stores stay until the user deletes them.
"""

import hashlib
import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import BinaryIO, NamedTuple
from uuid import uuid4

import numpy as np
import platformdirs
from tokenizers import Tokenizer

from seqloom.files import disk_error, fsync_folder, is_locked, lock_folder, write_new
from seqloom.text.corpus import Reader
from seqloom.text.encoder import RecordEncoder
from seqloom.text.fields import RecordSchema, TextField, has_labels
from seqloom.text.special_tokens import SpecialTokens, special_tokens
from seqloom.text.tokenizer import signature
from seqloom.text.workers import EncoderPool

VERSION = 1
BLOCK = 1 << 20  # characters encoded at a time
SERIAL_BLOCKS = 3  # blocks encoded in this process before workers are worth their start


class Column(NamedTuple):
    """Record i is `tokens[offsets[i]:offsets[i + 1]]`, written with `bytes[i + 1] - bytes[i]` bytes of UTF-8 (<eos> not counted)."""

    tokens: np.ndarray  # (N,) uint16 or uint32 for ids
    offsets: np.ndarray  # (n + 1,) int64, from 0 to N
    bytes: np.ndarray  # (n + 1,) int64


class Store:
    """The ids of n records. `fields[k].tokens` is column k of all records in a row; `store[i]` is record i, one array per column. `names` says
    what the columns are; ids are below `vocabulary`, and the special ones are `specials`."""

    def __init__(
        self,
        fields: Sequence[Column],
        digest: str,
        vocabulary: int = 0,
        names: Sequence[str] | None = None,
        specials: SpecialTokens = SpecialTokens(),
    ):
        self.fields, self.digest, self.vocabulary, self.specials = tuple(fields), digest, vocabulary, specials
        self.names = ("text",) * len(self.fields) if names is None else tuple(names)

    def columns(self, name: str) -> list[Column]:
        """The columns of that name."""
        return [field for field, own in zip(self.fields, self.names, strict=True) if own == name]

    def __len__(self) -> int:
        return len(self.fields[0].offsets) - 1

    def __getitem__(self, index: int) -> tuple[np.ndarray, ...]:
        if not -len(self) <= index < len(self):
            raise IndexError(f"no record {index} among {len(self)}")
        index %= len(self)
        return tuple(field.tokens[field.offsets[index] : field.offsets[index + 1]] for field in self.fields)

    def split(self, fraction: float) -> tuple["Store", "Store"]:
        """(all but the tail, the tail), the tail holding about `fraction` of the first field's ids and at least one record.

        The ids are views; the tail's offsets are counted anew from 0, sixteen bytes of memory per record of it.
        """
        if not 0 < fraction < 1:
            raise ValueError(
                f"a held-out fraction of {fraction} is not between 0 and 1; give for example 0.1"
            )
        if len(self) < 2:
            raise ValueError(
                "one record cannot be split; give a second file for validation, or a reader that cuts the text into lines"
            )
        offsets = self.fields[0].offsets
        cut = int(np.searchsorted(offsets, np.int64(round(offsets[-1] * (1 - fraction)))))
        cut = min(max(cut, 1), len(self) - 1)
        return self._part(0, cut), self._part(cut, len(self))

    def _part(self, start: int, stop: int) -> "Store":
        def shifted(numbers: np.ndarray) -> np.ndarray:
            part = numbers[start : stop + 1]
            return part - part[0] if start else part

        fields = [
            Column(tokens[offsets[start] : offsets[stop]], shifted(offsets), shifted(sizes))
            for tokens, offsets, sizes in self.fields
        ]
        return Store(
            fields,
            hashlib.sha256(f"{self.digest} {start} {stop}".encode()).hexdigest(),
            self.vocabulary,
            self.names,
            self.specials,
        )


def build(
    reader: Reader,
    tokenizer: Tokenizer | Sequence[Tokenizer],
    folder: Path | None = None,
    workers: int | None = None,
    progress: Callable[[int], None] | None = None,
    labels: Sequence[str] = (),
) -> Store:
    """The store of `reader`'s records: read from the cache `folder` if it is there, else built with `workers` processes.

    Give one tokenizer for all fields, or a sequence with one for each. `labels` are those that records may name, in their order. `progress` is
    told the bytes of text done since it was last told.
    """
    tokenizers = [tokenizer] if isinstance(tokenizer, Tokenizer) else list(tokenizer)
    folder = Path(folder or platformdirs.user_cache_dir("seqloom"))
    known = [json.dumps(list(labels))] if has_labels(reader.kinds) else []
    joined = ["joined" for one in tokenizers if RecordEncoder(one, reader.ends).joins]
    name = " ".join(
        [str(VERSION), str(reader.ends), reader.digest(), *map(signature, tokenizers), *known, *joined]
    )
    digest = hashlib.sha256(name.encode()).hexdigest()
    place, vocabulary = folder / digest[:32], max(one.get_vocab_size() for one in tokenizers)
    ids = special_tokens(tokenizers[-1])
    try:
        if (store := _open(place, digest, vocabulary, ids)) is not None:
            return store
        folder.mkdir(parents=True, exist_ok=True)
        _remove_stale(folder)
        temporary = folder / f".building-{uuid4().hex}"
        temporary.mkdir()
        try:
            with lock_folder(temporary):
                layout = RecordSchema(reader.kinds, tokenizers, reader.ends, labels)
                _write(temporary, reader, layout, _workers(workers), progress or (lambda size: None), digest)
                _publish(temporary, place, digest)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
    except OSError as error:
        raise disk_error(error, folder, "the tokenized text") from error
    store = _open(place, digest, vocabulary, ids)
    if store is None:
        raise ValueError(
            f"{place}: the store is gone or damaged as soon as it was written; choose another folder"
        )
    return store


def _workers(workers: int | None) -> int:
    if workers is None:
        return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if workers < 1:
        raise ValueError(f"{workers} workers cannot tokenize; give 1 or more")
    return workers


def _open(
    place: Path, digest: str, vocabulary: int = 0, ids: SpecialTokens = SpecialTokens()
) -> Store | None:
    """The store at `place`, or None where there is none, or one whose files are not as long as they should be."""
    try:
        notes = json.loads((place / "store.json").read_text(encoding="utf-8"))
        if notes["digest"] != digest:
            return None
        records, fields = notes["records"] + 1, []
        for index, field in enumerate(notes["fields"]):
            shapes = ((field["dtype"], field["tokens"]), ("int64", records), ("int64", records))
            fields.append(
                Column(
                    *(
                        _map(place / f"{index}.{name}", *shape)
                        for name, shape in zip(Column._fields, shapes, strict=True)
                    )
                )
            )
        return Store(
            fields, digest, vocabulary, [field.get("name", "text") for field in notes["fields"]], ids
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _map(path: Path, dtype: str, count: int) -> np.ndarray:
    if path.stat().st_size != count * np.dtype(dtype).itemsize:
        raise ValueError(f"{path}: damaged")
    return np.memmap(path, dtype, "r") if count else np.empty(0, dtype)


def _remove_stale(folder: Path) -> None:
    """Remove what killed builds left; a build that has only just made its folder may not have claimed it yet."""
    for left in folder.glob(".building-*"):
        with suppress(OSError):
            if time.time() - left.stat().st_mtime > 60 and not is_locked(left):
                shutil.rmtree(left, ignore_errors=True)


def _publish(temporary: Path, place: Path, digest: str) -> None:
    """Rename the finished folder into its place, unless another process has put the same there meanwhile."""
    fsync_folder(temporary)
    for last in (False, True):
        try:
            os.rename(temporary, place)
            fsync_folder(place.parent)
            return
        except OSError:
            if _open(place, digest) is not None:
                return
            if last or not place.exists():
                raise
            damaged = place.with_name(f".building-{uuid4().hex}")
            os.rename(place, damaged)
            shutil.rmtree(damaged, ignore_errors=True)


class _Output:
    """The three growing files of one field."""

    def __init__(self, folder: Path, index: int):
        self.files: list[BinaryIO] = [(folder / f"{index}.{name}").open("wb") for name in Column._fields]
        self.ids = self.size = self.records = 0
        for file in self.files[1:]:
            file.write(np.int64(0).tobytes())

    def add(self, tokens: bytes, counts: np.ndarray, sizes: np.ndarray) -> int:
        offsets, bytes_ = self.ids + np.cumsum(counts), self.size + np.cumsum(sizes)
        for file, data in zip(self.files, (tokens, offsets.tobytes(), bytes_.tobytes()), strict=True):
            file.write(data)
        done = int(bytes_[-1]) - self.size
        self.ids, self.size, self.records = int(offsets[-1]), int(bytes_[-1]), self.records + len(counts)
        return done

    def sync(self) -> None:
        for file in self.files:
            file.flush()
            os.fsync(file.fileno())

    def close(self) -> None:
        for file in self.files:
            with suppress(OSError):  # what a full disk refused was refused before
                file.close()


def _write(
    folder: Path,
    reader: Reader,
    layout: RecordSchema,
    workers: int,
    progress: Callable[[int], None],
    digest: str,
) -> None:
    outputs: list[_Output] = []
    pool: EncoderPool | None = None
    waiting: deque = deque()
    texts = [kind for kind in layout.kinds if type(kind) is TextField]
    try:
        for number, block in enumerate(_blocks(reader, layout)):
            if not outputs:
                outputs = [_Output(folder, index) for index in range(len(layout.names))]
            if number == SERIAL_BLOCKS and workers > 1 and texts:
                pool = EncoderPool([kind.tokenizer for kind in texts], reader.ends, workers)
            columns = iter(outputs)
            for kind, values in zip(layout.kinds, block, strict=True):
                own = list(islice(columns, len(kind.names)))
                if pool is not None and type(kind) is TextField:
                    waiting.append((own[0], pool.submit(texts.index(kind), values)))
                else:
                    progress(
                        sum(
                            output.add(*found) for output, found in zip(own, kind.encode(values), strict=True)
                        )
                    )
            while len(waiting) > 2 * workers:
                output, future = waiting.popleft()
                progress(output.add(*future.result()))
        for output, future in waiting:
            progress(output.add(*future.result()))
        for output in outputs:
            output.sync()
    finally:
        if pool is not None:
            pool.close()
        for output in outputs:
            output.close()
    if not outputs:
        raise ValueError(f"{', '.join(map(str, reader.paths))}: no record in it; give a file with text")
    dtypes = [dtype.name for kind in layout.kinds for dtype in kind.dtypes]
    notes = {
        "digest": digest,
        "records": outputs[0].records,
        "fields": [
            {"name": name, "dtype": dtype, "tokens": output.ids}
            for name, dtype, output in zip(layout.names, dtypes, outputs, strict=True)
        ],
    }
    write_new(folder / "store.json", json.dumps(notes).encode())


def _blocks(reader: Reader, layout: RecordSchema) -> Iterator[list[list]]:
    """Per block of about 1 MB: for each field, its values."""
    block: list[list] = []
    size = 0
    for record in reader:
        values = layout.check(record, reader.at)
        size += sum(len(value) for value in values if hasattr(value, "__len__"))
        block.append(values)
        if size >= BLOCK or len(block) >= BLOCK:
            yield [list(field) for field in zip(*block, strict=True)]
            block, size = [], 0
    if block:
        yield [list(field) for field in zip(*block, strict=True)]


def in_memory_store(
    records: Sequence[Sequence], layout: RecordSchema, places: Sequence[str] | None = None
) -> Store:
    """A store in memory of a few records, laid out as `build` does."""
    places = places or [f"record {number}" for number in range(1, len(records) + 1)]
    rows = [layout.check(record, place) for record, place in zip(records, places, strict=True)]
    fields = []
    for kind, values in zip(layout.kinds, zip(*rows, strict=True), strict=True):
        for (tokens, counts, sizes), dtype in zip(kind.encode(list(values)), kind.dtypes, strict=True):
            fields.append(
                Column(
                    np.frombuffer(tokens, dtype),
                    *(np.concatenate([[0], np.cumsum(column)]) for column in (counts, sizes)),
                )
            )
    return Store(fields, "", 0, layout.names, layout.specials)
