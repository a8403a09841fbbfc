"""Predictions of labelled tasks: one for each record, in the order of the file, and their metrics.

A task is the module for a class of model. It has `predictions(run, source)`, one for each record, and
`measure(run, source, conditions, max_groups)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from importlib import import_module
from itertools import chain, islice, pairwise
from types import ModuleType
from typing import Any, NamedTuple, TypeAlias, overload

import numpy as np

from seqloom.errors import DataError, UserError
from seqloom.inference.one_or_many import many
from seqloom.inference.sources import SOURCE_KINDS, is_source, source_of
from seqloom.inference.unknown_text import UnknownText
from seqloom.inference.verbs import wrong_verb
from seqloom.measure.classification import Confusion
from seqloom.measure.number import Number
from seqloom.models.base import Model
from seqloom.run import Run, RunLike, as_run
from seqloom.text.records import RecordSchema, field_class
from seqloom.text.store import Store, in_memory_store

# the module of each task, imported when a model of the task is used
TASKS = {
    "tagging": "seqloom.inference.tagging",
    "classification": "seqloom.inference.classification",
    "regression": "seqloom.inference.regression",
    "question answering": "seqloom.inference.question_answering",
}
SomePrediction: TypeAlias = Any  # Label, Tags, Span or Value: only the run knows which
CHUNK = 1 << 19  # characters in memory at a time
MAX_RECORDS = 2048  # records in memory at a time


class LabelMetrics(NamedTuple):
    """The metrics of predictions, their confusion matrix if there are labels, and of each record what is right, or the squared error of
    its number, and out of how many."""

    numbers: list[Number]
    confusion: Confusion | None
    by_record: list[tuple[float, int]]


def task_of(model: Model) -> ModuleType | None:
    """The module of the model's task; None if the model predicts no labels."""
    return import_module(TASKS[model.task]) if model.task in TASKS else None


def require_task(run: Run) -> ModuleType:
    """The task of a run's model; raises for a model without labels."""
    task = task_of(run.model)
    if task is None:
        raise wrong_verb(run, "predict")
    return task


def measure(
    run: Run, store: Store, conditions: dict[str, object], max_groups: int | None = None
) -> LabelMetrics:
    """All metrics of a run on a store, from at most `max_groups` batches."""
    if not has_known_token(run, store):
        raise unknown_text_error(run)
    return LabelMetrics(*require_task(run).measure(run, run.config.data(store), conditions, max_groups))


def predict_stream(
    run: Run, records: Iterable[tuple[str, Sequence[Any]]], check_vocabulary: bool = True
) -> Iterator[Any]:
    """The prediction for each record (its location for errors, its input fields) as they arrive; a part of them is in memory
    at a time. With `check_vocabulary`, raises if no record has a token that the tokenizer knows. Warns behind the last of what is unknown."""
    task = require_task(run)
    unknown = UnknownText(run)
    stream = iter(records)
    has_known = not check_vocabulary
    schema = RecordSchema(run.config.kinds(), [run.tokenizer], run.adds_eos, run.labels, with_targets=False)
    chunks = iter(lambda: list(next_chunk(stream)), [])
    for chunk, following in pairwise(chain(chunks, [[]])):
        locations, values = zip(*chunk, strict=True)
        store = in_memory_store(values, schema, locations)
        has_known = has_known or has_known_token(run, store)
        if not has_known and not following:
            raise unknown_text_error(run)
        yield from task.predictions(run, run.config.data(store))
        unknown.add_all([text for record in values for text in texts_of(record)])
    unknown.warn()


def texts_of(record: Sequence[Any]) -> Iterator[str]:
    """The texts among the fields of a record; words are one text."""
    for value in record:
        if isinstance(value, str | list):
            yield value if isinstance(value, str) else " ".join(value)


@overload
def predict(run: RunLike, records: str | tuple[str, ...]) -> SomePrediction: ...
@overload
def predict(run: RunLike, records: list[Any] | np.ndarray) -> list[SomePrediction]: ...
@overload
def predict(run: RunLike, records: Iterator[Any]) -> Iterator[SomePrediction]: ...
def predict(run: RunLike, records: Any) -> Any:
    """The prediction for a record: a `Label`, `Tags`, `Span` or `Value`, by the run's task.

    A record is a text, a pair of texts as a tuple (question and passage too), or a sentence, as a text or a tuple of its words. One
    record gives one prediction, a list, an array or a tuple of records a list, and an iterator an iterator, which reads ahead of its
    results by at most 2,048 records.

    >>> predict(classifier, "the queen sees a dog").label
    'court'
    >>> [round(found.probability, 2) for found in predict(classifier, ["a old river", "the red cat"])]
    [0.4, 0.4]
    """
    opened = as_run(run)
    require_task(opened)
    if is_record(opened, records):
        [prediction] = predict_records(opened, iter([records]))
        return prediction
    if isinstance(records, Iterator):
        return predict_records(opened, records)
    noun = "text" if len(input_fields(opened)) == 1 and opened.model.reads == "text" else "record"
    return list(predict_records(opened, iter(many(records, noun))))


def is_record(run: Run, value: Any) -> bool:
    """Whether a value is one record: a text, a picture or sound, or a tuple, unless it is one of records."""
    if isinstance(value, tuple):
        return not all(isinstance(item, tuple | list) for item in value) or not value
    return isinstance(value, str) or (run.config.kinds()[0] in SOURCE_KINDS and is_source(value))


def predict_records(run: Run, records: Iterator[Any]) -> Iterator[SomePrediction]:
    """The prediction for each record, as they arrive."""
    located = (
        (f"record {number}", model_input(run, record, f"record {number}"))
        for number, record in enumerate(records, 1)
    )
    return predict_stream(run, located, check_vocabulary=False)


def input_fields(run: Run) -> list[str]:
    """The kinds of the fields that the model reads of a record."""
    return [name for name in run.config.kinds() if field_class(name).is_input]


def model_input(run: Run, record: Any, location: str) -> tuple[Any, ...]:
    """The fields that the model reads of a record, which is a text, a pair of texts or a sentence of words."""
    fields = input_fields(run)
    if fields[:1] in (["audio"], ["image"]) and len(fields) == 1:
        return (source_of(run, record, location),)
    if fields == ["words"]:
        return (list(record) if isinstance(record, tuple) else record,)
    if len(fields) > 1 and isinstance(record, str):
        raise DataError(
            f"{location}: one text, but the run reads pairs; give two, as a tuple, or with a tab between them"
        )
    values = tuple(record) if isinstance(record, tuple | list) else (record,)
    strangers = [type(value).__name__ for value in values if not isinstance(value, str)]
    if strangers or len(values) != len(fields):
        expected = "a str" if len(fields) == 1 else f"a tuple of {len(fields)} str"
        given = f"a {strangers[0]}" if strangers else f"{len(values)} texts"
        raise DataError(
            f"{location} is {given}; give {expected} for each record, and several records as a list"
        )
    return values


def next_chunk(records: Iterator[tuple[str, Sequence[Any]]]) -> Iterator[tuple[str, Sequence[Any]]]:
    """The next records, up to the limits of memory."""
    size = 0
    for location, record in islice(records, MAX_RECORDS):
        yield location, record
        for value in record:
            if isinstance(value, Sized):
                size += len(value) * (6 if isinstance(value, list | tuple) else 1)
        if size > CHUNK:
            return


def has_known_token(run: Run, store: Store) -> bool:
    """Whether the tokenizer knows a token of the records, or the model also reads words by their characters."""
    if run.model.reads_characters or run.specials.unk is None:
        return True
    fields = [field for name in ("text", "passage", "pieces") for field in store.columns(name)]
    return not fields or any(
        not np.isin(next(field.blocks(), ()), [run.specials.unk, run.specials.eos]).all() for field in fields
    )


def unknown_text_error(run: Run) -> UserError:
    return UserError(
        f"{run.folder}: every token of these records is unknown to the run's tokenizer; give text like the training data"
    )
