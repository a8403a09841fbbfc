"""Predictions of labelled tasks: one for each record, in the order of the file, and their metrics.

A task is the module for a class of model. It has `predictions(run, source)`, one for each record, and
`measure(run, source, conditions, max_groups)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from importlib import import_module
from itertools import chain, islice, pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from seqloom.measure.classification import Confusion
from seqloom.measure.number import Number
from seqloom.models.base import Model
from seqloom.run import Run
from seqloom.text.fields import RecordSchema
from seqloom.text.store import Store, in_memory_store

# the module of each task, imported when a model of the task is used
TASKS = {
    "tagging": "seqloom.inference.tagging",
    "classification": "seqloom.inference.classification",
    "regression": "seqloom.inference.regression",
    "question answering": "seqloom.inference.question_answering",
}
CHUNK = 1 << 19  # characters in memory at a time
MAX_RECORDS = 2048  # records in memory at a time


class LabelMetrics(NamedTuple):
    """The metrics of predictions, and their confusion matrix if there are labels."""

    numbers: list[Number]
    confusion: Confusion | None


def task_of(model: Model) -> ModuleType | None:
    """The module of the model's task; None if the model predicts no labels."""
    return import_module(TASKS[model.task]) if model.task in TASKS else None


def require_task(run: Run) -> ModuleType:
    """The task of a run's model; raises for a model without labels."""
    task = task_of(run.model)
    if task is None:
        verb = "fill" if run.model.task == "masked language modelling" else "generate"
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} predicts no labels; use: seqloom {verb} {run.folder}"
        )
    return task


def measure(
    run: Run, store: Store, conditions: dict[str, object], max_groups: int | None = None
) -> LabelMetrics:
    """All metrics of a run on a store, from at most `max_groups` batches."""
    if not has_known_token(run, store):
        raise unknown_text_error(run)
    return LabelMetrics(*require_task(run).measure(run, run.recipe.data(store), conditions, max_groups))


def predict_stream(
    run: Run, records: Iterable[tuple[str, Sequence[Any]]], check_vocabulary: bool = True
) -> Iterator[Any]:
    """The prediction for each record (its location for errors, its input fields) as they arrive; a part of them is in memory
    at a time. With `check_vocabulary`, raises if no record has a token that the tokenizer knows."""
    task = require_task(run)
    stream = iter(records)
    has_known = not check_vocabulary
    schema = RecordSchema(run.recipe.kinds(), [run.tokenizer], run.adds_eos, run.labels, with_targets=False)
    chunks = iter(lambda: list(next_chunk(stream)), [])
    for chunk, following in pairwise(chain(chunks, [[]])):
        locations, values = zip(*chunk, strict=True)
        store = in_memory_store(values, schema, locations)
        has_known = has_known or has_known_token(run, store)
        if not has_known and not following:
            raise unknown_text_error(run)
        yield from task.predictions(run, run.recipe.data(store))


def predict(run: Run, records: Sequence[Any]) -> list[Any]:
    """The prediction for each record: a text, a pair of texts, a sentence as a list of words, or (question, passage)."""
    inputs = [name for name in run.recipe.kinds() if name in ("text", "words", "passage")]
    located = (
        (f"record {index}", (record,) if len(inputs) == 1 else record)
        for index, record in enumerate(records, 1)
    )
    return list(predict_stream(run, located, check_vocabulary=False))


def next_chunk(records: Iterator[tuple[str, Sequence[Any]]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """The next records, up to the limits of memory."""
    size = 0
    for location, record in islice(records, MAX_RECORDS):
        yield location, record
        for value in record:
            if isinstance(value, Sized):
                size += len(value) * (6 if isinstance(value, list) else 1)
        if size > CHUNK:
            return


def has_known_token(run: Run, store: Store) -> bool:
    """Whether the tokenizer knows a token of the records, or the model also reads words by their characters."""
    if run.model.reads_characters or run.specials.unk is None:
        return True
    fields = [field for name in ("text", "passage", "pieces") for field in store.columns(name)]
    return any(
        not np.isin(field.tokens[:CHUNK], [run.specials.unk, run.specials.eos]).all() for field in fields
    )


def unknown_text_error(run: Run) -> ValueError:
    return ValueError(
        f"{run.folder}: every token of these records is unknown to the run's tokenizer; give text like the training data"
    )
