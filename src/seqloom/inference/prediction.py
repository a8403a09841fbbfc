"""Labelled tasks in use: what a run says about records, in the order of the file, and what its answers are worth.

A task is the module that belongs to a kind of model. It offers `answers(run, source)`, one for each record, and `measure(run, source, facts)`;
and `begin(model, store, labels)` where a new model needs to know something of the data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice, pairwise
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from seqloom.inference import classification, question_answering, regression, tagging
from seqloom.measure import Number
from seqloom.measure.classification import Confusion
from seqloom.models import Classifier, ExtractiveQA, MaskedLM, Regressor, Tagger
from seqloom.run import Run
from seqloom.text.fields import RecordSchema
from seqloom.text.store import Store, in_memory_store

TASKS: dict[type[nn.Module], ModuleType] = {
    Tagger: tagging,
    Classifier: classification,
    Regressor: regression,
    ExtractiveQA: question_answering,
}
CHUNK, MAX_RECORDS = 1 << 19, 2048  # characters and records that are in memory at a time


class LabelMetrics(NamedTuple):
    """What answers are worth; what was taken for what, where there are labels."""

    numbers: list[Number]
    confusion: Confusion | None


def task_of(model: nn.Module) -> ModuleType | None:
    """The task of a model; None for one that writes text."""
    return next((task for kind, task in TASKS.items() if isinstance(model, kind)), None)


def require_task(run: Run) -> ModuleType:
    task = task_of(run.model)
    if task is None:
        use = (
            "fill gaps with it: seqloom fill"
            if isinstance(run.model, MaskedLM)
            else "write with it: seqloom generate"
        )
        raise ValueError(
            f"{run.folder}: a {type(run.model).__name__} has no labels to give; {use} {run.folder}"
        )
    return task


def measure(run: Run, store: Store, facts: dict[str, object], most: int | None = None) -> LabelMetrics:
    """Every number of a run on a store, from at most `most` batches."""
    if not has_known_token(run, store):
        raise unknown_text_error(run)
    return LabelMetrics(*require_task(run).measure(run, run.recipe.data(store), facts, most))


def predict_stream(run: Run, records: Iterable[tuple[str, Sequence]], judged: bool = True) -> Iterator[Any]:
    """What the run says about each record, as they come: (its place for errors, what a model reads of it). A few are in memory at a time.
    Where they are `judged`, one of them must have a token that is known."""
    task, source, some = require_task(run), iter(records), not judged
    layout = RecordSchema(run.recipe.kinds(), [run.tokenizer], run.adds_eos, run.labels, with_targets=False)
    for chunk, following in pairwise(chain(iter(lambda: list(next_chunk(source)), []), [[]])):
        places, values = zip(*chunk, strict=True)
        store = in_memory_store(values, layout, places)
        some = some or has_known_token(run, store)
        if not some and not following:
            raise unknown_text_error(run)
        yield from task.predictions(run, run.recipe.data(store))


def predict(run: Run, records: Sequence) -> list[Any]:
    """What the run says about each record: a text, a pair of texts, a sentence as a list of words, or (question, passage)."""
    single = sum(1 for name in run.recipe.kinds() if name in ("text", "words", "passage")) == 1
    return list(
        predict_stream(
            run,
            (
                (f"record {number}", (record,) if single else record)
                for number, record in enumerate(records, 1)
            ),
            judged=False,
        )
    )


def next_chunk(records: Iterator[tuple[str, Sequence]]) -> Iterator[tuple[str, Sequence]]:
    """The next few records."""
    size = 0
    for place, record in islice(records, MAX_RECORDS):
        yield place, record
        size += sum(
            len(value) * (6 if isinstance(value, list) else 1)
            for value in record
            if hasattr(value, "__len__")
        )
        if size > CHUNK:
            return


def has_known_token(run: Run, store: Store) -> bool:
    """Whether the tokenizer knows something of the records, or words are also read by their letters."""
    if run.model.reads_characters or run.specials.unk is None:
        return True
    fields = [field for name in ("text", "passage", "pieces") for field in store.columns(name)]
    return any(
        not np.isin(field.tokens[:CHUNK], [run.specials.unk, run.specials.eos]).all() for field in fields
    )


def unknown_text_error(run: Run) -> ValueError:
    return ValueError(
        f"{run.folder}: not one token of these records is known to the run; give text like that which it was trained on"
    )
