"""Records: the kinds of their fields, the schema that checks and encodes them, and the writing of a store.

    text      a string               text                       ids, with <eos> if records end
    words     a list of strings      pieces, begins, letters    ids; the position of each word's first piece; UTF-8 of each word and a NUL
    tags      a label for each word  tags                       indices in the list of labels
    label     a string               label                      its index in the list of labels
    number    a number               number                     the number
    passage   a string               passage, edges, source     ids; start and end of each in characters; UTF-8
    span      [(start, text), …]     span, answers              start and end of the first answer, both 0 for none; UTF-8 of each answer and a NUL
    chat      a list of messages     chat, counted              ids of the chat under its template; 1 where they are the assistant's, else 0
    answer    a list of messages     answer, counted            the same, but only the last turn counts
    smiles    a molecule, as text    text                       ids
    document  a string               text                       ids; and its summary, the same
    prompt    a list of messages     prompt                     ids after which the assistant answers
    image, captions, audio                                      see `image_field.py` and `audio_field.py`

A store is written block by block: records are read, checked, encoded by this process or by workers, and appended to the files of each
column. The folder is a temporary one, which `publish` renames when it is complete.
"""

from __future__ import annotations

import json
import os
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, BinaryIO, Literal
from uuid import uuid4

import numpy as np
from tokenizers import Tokenizer

from seqloom.errors import DataError
from seqloom.files import fsync_folder, is_locked, write_new
from seqloom.text.corpus import Reader
from seqloom.text.encoder import TEXTS, Encoded, Field, TextField, check_unicode
from seqloom.text.tokenizer import special_tokens

if TYPE_CHECKING:
    from seqloom.text.workers import EncoderPool

Name = Literal[
    "text",
    "words",
    "tags",
    "label",
    "number",
    "passage",
    "span",
    "chat",
    "answer",
    "prompt",
    "smiles",
    "document",
    "summary",
    "image",
    "captions",
    "audio",
]
MAX_LABELS = 10_000  # more labels mean that the wrong column is read
BLOCK = 1 << 20  # characters encoded at a time
SERIAL_BLOCKS = 3  # blocks that this process encodes; only longer corpora are worth starting workers

# The class of each kind, by the names that configs use; it is imported when a record has such a field.
FIELDS = {
    "text": "seqloom.text.encoder:TextField",
    "words": "seqloom.text.fields:WordsField",
    "tags": "seqloom.text.fields:TagsField",
    "label": "seqloom.text.fields:LabelField",
    "number": "seqloom.text.fields:NumberField",
    "passage": "seqloom.text.fields:PassageField",
    "span": "seqloom.text.fields:SpanField",
    "chat": "seqloom.text.chat_field:ChatField",
    "answer": "seqloom.text.chat_field:AnswerField",
    "prompt": "seqloom.text.chat_field:PromptField",
    "smiles": "seqloom.text.molecule_field:SmilesField",
    "document": "seqloom.text.unknown_words:DocumentField",
    "summary": "seqloom.text.unknown_words:DocumentField",
    "image": "seqloom.text.image_field:ImageField",
    "captions": "seqloom.text.image_field:CaptionsField",
    "audio": "seqloom.text.audio_field:AudioField",
}


def field_class(kind: str) -> type[Field]:
    """The field of a kind."""
    field: type[Field] = resolve_name(FIELDS[kind])
    return field


class RecordSchema:
    """The fields of a record. Without `with_targets`, only the fields that a model reads are expected. `template` renders chats."""

    def __init__(
        self,
        kinds: Sequence[str],
        tokenizers: Sequence[Tokenizer],
        adds_eos: bool,
        labels: Sequence[str],
        with_targets: bool = True,
        template: str | None = None,
    ):
        expected = [kind for kind in kinds if with_targets or field_class(kind).is_input]
        self.kinds = tuple(expected)
        if len(tokenizers) not in (1, len(expected)):
            raise DataError(
                f"{len(tokenizers)} tokenizers for records of {len(expected)} fields; give one for all, or one for each"
            )
        label_ids = {label: index for index, label in enumerate(labels)}
        by_field = tokenizers if len(tokenizers) > 1 else list(tokenizers) * len(expected)
        self.fields = [
            field_class(kind)(tokenizer, adds_eos, label_ids)
            for kind, tokenizer in zip(expected, by_field, strict=True)
        ]
        for field in self.fields:
            if field.template is not None and template is not None:
                field.template = template
        self.names = tuple(name for field in self.fields for name in field.names)
        self.has_targets = not all(field_class(kind).is_input for kind in kinds)
        self.specials = special_tokens(by_field[-1])

    def check(self, record: Sequence, location: str) -> list:
        """Returns a record's values in the form that fields
        encode; raises if they are invalid or inconsistent."""
        columns = ", ".join(self.names)
        if isinstance(record, str):
            raise DataError(
                f"{location}: one text instead of {len(self.fields)} fields ({columns}); give them together, as a pair"
            )
        if len(record) != len(self.fields):
            raise DataError(f"{location}: {len(record)} fields instead of {len(self.fields)} ({columns})")
        values = [field.check(value, location) for field, value in zip(self.fields, record, strict=True)]
        if self.has_targets and any(isinstance(value, str) and not value.strip() for value in values):
            raise DataError(f"{location}: an empty text; write one, or remove the record")
        by_kind = dict(zip(self.kinds, values, strict=True))
        if "tags" in by_kind and len(by_kind["tags"]) != len(by_kind["words"]):
            raise DataError(
                f"{location}: {len(by_kind['words'])} words and {len(by_kind['tags'])} tags; give each word one tag"
            )
        for start, text in by_kind.get("span", []):
            if by_kind["passage"][start : start + len(text)] != text:
                raise DataError(
                    f"{location}: the answer {text!r} is not at character {start} of the passage; correct answer_start"
                )
        return values


def collect_labels(reader: Reader) -> list[str]:
    """Returns the labels of a corpus in alphabetical order; none if its records have no labels."""
    fields = [(i, field_class(kind)) for i, kind in enumerate(reader.kinds) if field_class(kind).names_labels]
    labels: set[str] = set()
    for record in reader if fields else ():
        for i, field in fields:
            labels.update(field.labels_in(record[i], reader.location))
        if len(labels) > MAX_LABELS:
            raise DataError(
                f"{reader.location}: more than {MAX_LABELS:,} different labels; is it the right column?"
            )
    return sorted(labels)


def iter_texts(reader: Reader) -> Iterator[str]:
    """Yields the texts that a tokenizer is trained on: every
    text, the words of a sentence joined by spaces, chats under their template, and the labels of records without a text."""
    if reader.template is not None:
        from seqloom.text.chat_field import chat_texts

        return chat_texts(reader)
    return map(itemgetter(0), reader) if reader.is_plain else checked_texts(reader)


def checked_texts(reader: Reader) -> Iterator[str]:
    """Yields the texts of records that have several fields, or come from JSON."""
    for record in reader:
        for kind, value in zip(reader.kinds, record, strict=True):
            if kind in (*TEXTS, "passage") or (kind == "label" and reader.kinds[0] in ("audio", "image")):
                yield check_unicode(value, reader.location)
            elif kind == "captions":
                yield from (check_unicode(caption, reader.location) for caption in value)
            elif kind == "words":
                yield check_unicode(value if isinstance(value, str) else " ".join(value), reader.location)


def has_labels(kinds: Iterable[str]) -> bool:
    """Returns whether records of these kinds name labels."""
    return any(field_class(kind).names_labels for kind in kinds)


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
        from seqloom.text.store import Column  # which imports this module

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
                    columns = field.encode(values)
                    size = sum(
                        writer.add(*encoded) for writer, encoded in zip(field_writers, columns, strict=True)
                    )
                    if not size and not isinstance(field, TextField):  # pictures and sounds have no text
                        size = sum(len(stored) for stored, _, _ in columns)
                    progress(size)
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
