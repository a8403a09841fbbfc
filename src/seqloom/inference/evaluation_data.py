"""Data to measure a run on: files in the form of its training data, or records."""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from seqloom.data.options import record_fields, resolve_path
from seqloom.errors import DataError
from seqloom.inference.sources import SOURCE_KINDS, source_of
from seqloom.run import Run
from seqloom.run_config import Config
from seqloom.text.chat_template import template_name
from seqloom.text.corpus import Table
from seqloom.text.formats import detect_format
from seqloom.text.lazy_array import LazyArray
from seqloom.text.records import RecordSchema
from seqloom.text.store import Store, build, in_memory_store

Data = str | os.PathLike[str] | list[Any]  # a file, files, or records
logger = logging.getLogger("seqloom.inference")
PLAIN_WIDTH = 256  # tokens of a window of plain text, for a model of chats


class EvaluationData(NamedTuple):
    """Data to measure on: its ids, its records as text, and its SHA-256."""

    store: Store
    records: Iterable[tuple[Any, ...]]
    digest: str


def read_data(run: Run, data: Data, limit: int | None = None) -> EvaluationData:
    """Files, or records, under the run's tokenizer and labels; at most `limit` records."""
    items: list[Any] = data if isinstance(data, list) else [data]
    kinds = run.config.kinds()
    if not items:
        raise DataError("no data: give the files to measure on, as in: seqloom evaluate RUN FILE")
    if isinstance(items[0], str | os.PathLike):
        reader = run.config.reader([path for item in items for path in data_paths(os.fspath(item), kinds)])
        if isinstance(reader, Table):
            for warning in reader.quotes_warnings():
                logger.warning("%s", warning)
        store = build(reader, run.tokenizer, labels=run.labels)
        if limit is None or limit >= len(store):
            return EvaluationData(store, reader, reader.digest())
        return EvaluationData(store.first(limit), list(islice(reader, limit)), store.first(limit).digest)
    records = [record_values(run, record, number) for number, record in enumerate(items[:limit], 1)]
    content = json.dumps(records, ensure_ascii=False, default=LazyArray.key)
    digest = hashlib.sha256(content.encode()).hexdigest()
    schema = RecordSchema(kinds, [run.tokenizer], run.adds_eos, run.labels, template=run.config.template)
    store = in_memory_store(records, schema)
    store.digest = digest
    return EvaluationData(store, records, digest)


def as_language_model(run: Run, data: Data) -> Run:
    """A run with a chat template, as it is measured by the likelihood of `data`: of the assistant's turns in chats, of both answers of
    preferences, or of all of a plain text. Other runs stay as they are."""
    template = run.config.template or run.chat_template
    if template is None or not run.model.predicts_tokens:
        return run
    template = template_name(template)
    items: list[Any] = data if isinstance(data, list) else [data]
    is_file = bool(items) and isinstance(items[0], str | os.PathLike)
    form = detect_format(data_paths(os.fspath(items[0]), ("chat",))) if is_file else None
    sections: dict[str, Any] = {"objective": {"type": "next_token"}}
    if form in ("text", "lines"):
        if run.config.template is None:
            return run
        width = min(run.model.context or PLAIN_WIDTH, PLAIN_WIDTH)
        sections["corpus"] = {"type": "Text"}
        sections["batches"] = {"type": "Windows", "width": width, "batch": 8}
    elif form == "preferences":
        sections["corpus"] = {"type": "Preferences", "template": template}
        sections["batches"] = {"type": "Comparisons"}
    elif run.config.uses_feedback or (form == "chats" and run.config.template is None):
        sections["corpus"] = {"type": "Chats", "template": template}
        sections["batches"] = {"type": "Turns"}
    else:
        return run
    tree = {name: section for name, section in run.config.tree.items() if name != "rollouts"}
    config = Config({**tree, **sections}, run.config.lines, run.config.own_parts)
    return Run(run.folder, config, run.tokenizer, run.model, run.labels)


def data_paths(name: str, kinds: Sequence[str]) -> list[str]:
    """The files that a name stands for: itself, those of a pattern, or the test text of the built-in world, also beside a folder `world`."""
    if (name == "world" and not os.path.isfile(name)) or (glob.has_magic(name) and not os.path.exists(name)):
        return resolve_path(name, kinds, "test")
    return [name]


def record_values(run: Run, record: Any, number: int) -> tuple[Any, ...]:
    """The fields of a record, which is a tuple or a mapping."""
    if not isinstance(record, Mapping):
        return with_source(run, tuple(record), number)
    names = run.config.parts["corpus"].keywords.get("fields") or record_fields(run.config.kinds())
    missing = [name for name in names if name not in record]
    if missing:
        raise DataError(f"record {number}: no {missing[0]!r}; give {', '.join(names)}")
    return with_source(run, tuple(record[name] for name in names), number)


def with_source(run: Run, values: tuple[Any, ...], number: int) -> tuple[Any, ...]:
    """The fields of a record whose first is a picture or sound, if the run reads those: a file becomes a source."""
    if run.config.kinds()[0] not in SOURCE_KINDS:
        return values
    return source_of(run, values[0], f"record {number}"), *values[1:]
