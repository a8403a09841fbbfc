"""A tag for each word  [T1]."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.data import Tagged
from seqloom.data.buckets import rows
from seqloom.measure import Number, chunks, sign
from seqloom.measure.labels import Calibration, Confusion, labels
from seqloom.models import Tagger
from seqloom.run import Run
from seqloom.tasks.walk import walk
from seqloom.text.kinds import some
from seqloom.text.store import Store


class Tags(NamedTuple):
    """A sentence with the best tag of each word and its probability."""

    words: list[str]
    tags: list[str]
    probabilities: list[float]

    def json(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "tags": self.tags,
            "probabilities": [round(p, 6) for p in self.probabilities],
        }


def begin(model: Tagger, store: Store, names: Sequence[str]) -> None:
    """Where tags mark spans, the sentences to learn must keep to what spans allow."""
    if not model.head.spans:
        return
    if not chunks.marked(names):
        raise ValueError(
            f"model.head.spans: {some(names)} are not labels of spans, such as O, B-PER and I-PER; leave it out"
        )
    field = store.columns("tags")[0]
    tags, border, full = field.tokens.astype(np.int64), len(names), np.flatnonzero(np.diff(field.offsets))
    before, after = (
        np.insert(tags, field.offsets[full], border),
        np.insert(tags, field.offsets[full + 1], border),
    )
    if len(wrong := np.flatnonzero(~model.head.allowed.numpy()[before, after])):
        first, second = ([*names, "the border"][side[wrong[0]]] for side in (before, after))
        sentence = (
            full[np.searchsorted(field.offsets[full + 1] + np.arange(1, len(full) + 1), wrong[0], "right")]
            + 1
        )
        raise ValueError(
            f"sentence {sentence} of the training text has {second} after {first}, which no spans allow; leave model.head.spans out"
        )


class Told(NamedTuple):
    said: np.ndarray  # places of labels
    probability: np.ndarray


def told(run: Run, source: Tagged, most: int | None = None) -> Iterator[tuple[int, Told]]:
    """The best path of each sentence, and the probability of each tag by itself."""

    def look(group: np.ndarray) -> list[Told]:
        batch = source.cut(group, whole=True)
        scores = run.model.scores(batch.ids, batch.real, batch.begins, batch.letters, batch.spelt).float()
        best = run.model.head.best(scores, batch.mask)
        chance = run.model.head.marginals(scores, batch.mask).gather(2, best[..., None])[..., 0]
        counts = batch.mask.sum(1).tolist()
        return [Told(row[:n].numpy(), p[:n].numpy()) for row, p, n in zip(best, chance, counts, strict=True)]

    return walk(run.model, source, look, most)


def answers(run: Run, source: Tagged) -> Iterator[Tags]:
    for number, one in told(run, source):
        words = rows(source.letters, [number])[0].tobytes().decode().split("\0")[:-1]
        yield Tags(words, [run.labels[place] for place in one.said], one.probability.tolist())


def measure(
    run: Run, source: Tagged, facts: dict[str, object], most: int | None = None
) -> tuple[list[Number], Confusion]:
    """Accuracy, F1, calibration; accuracy on unknown words; F1 of spans where tags mark spans."""
    confusion, calibration, spans = Confusion(run.labels), Calibration(), chunks.Spans()
    marks, unknown, hits = chunks.marked(run.labels), 0, 0
    for number, one in told(run, source, most):
        right = rows(source.tags[0], [number])[0]
        first = rows(source.pieces, [number])[0][rows(source.begins, [number])[0]]
        confusion.add(right, one.said)
        calibration.add(one.probability, right == one.said)
        new = first == (-1 if run.specials.unk is None else run.specials.unk)
        unknown, hits = unknown + int(new.sum()), hits + int((new & (right == one.said)).sum())
        if marks:
            spans.add([run.labels[place] for place in right], [run.labels[place] for place in one.said])
    numbers = labels(confusion, calibration, "words", facts)
    if unknown:
        numbers.append(
            Number(
                "unknown words", 100 * hits / unknown, sign("accuracy-unknown", {"words": unknown, **facts})
            )
        )
    return numbers + (spans.numbers(facts) if marks else []), confusion
