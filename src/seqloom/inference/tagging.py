"""A tag for each word  [T1]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from seqloom.batches import Tagged
from seqloom.batches.buckets import rows
from seqloom.inference.in_order import predict_in_order
from seqloom.measure import Number, make_signature
from seqloom.measure import spans as chunks
from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.run import Run


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


class TaggedWords(NamedTuple):
    said: np.ndarray  # places of labels
    probability: np.ndarray


def predict_tags(run: Run, source: Tagged, most: int | None = None) -> Iterator[tuple[int, TaggedWords]]:
    """The best path of each sentence, and the probability of each tag by itself."""

    def look(group: np.ndarray) -> list[TaggedWords]:
        batch = source.collate(group, full=True)
        scores = run.model.scores(
            batch.ids, batch.input_mask, batch.word_starts, batch.char_ids, batch.word_ids
        ).float()
        best = run.model.head.decode(scores, batch.mask)
        chance = run.model.head.marginals(scores, batch.mask).gather(2, best[..., None])[..., 0]
        counts = batch.mask.sum(1).tolist()
        return [
            TaggedWords(row[:n].numpy(), p[:n].numpy())
            for row, p, n in zip(best, chance, counts, strict=True)
        ]

    return predict_in_order(run.model, source, look, most)


def predictions(run: Run, source: Tagged) -> Iterator[Tags]:
    for number, one in predict_tags(run, source):
        words = rows(source.letters, [number])[0].tobytes().decode().split("\0")[:-1]
        yield Tags(words, [run.labels[place] for place in one.said], one.probability.tolist())


def measure(
    run: Run, source: Tagged, facts: dict[str, object], most: int | None = None
) -> tuple[list[Number], Confusion]:
    """Accuracy, F1, calibration; accuracy on unknown words; F1 of spans where tags mark spans."""
    confusion, calibration, spans = Confusion(run.labels), Calibration(), chunks.SpanCounts()
    marks, unknown, hits = chunks.has_span_tags(run.labels), 0, 0
    for number, one in predict_tags(run, source, most):
        right = rows(source.tags[0], [number])[0]
        first = rows(source.pieces, [number])[0][rows(source.word_starts, [number])[0]]
        confusion.add(right, one.said)
        calibration.add(one.probability, right == one.said)
        new = first == (-1 if run.specials.unk is None else run.specials.unk)
        unknown, hits = unknown + int(new.sum()), hits + int((new & (right == one.said)).sum())
        if marks:
            spans.add([run.labels[place] for place in right], [run.labels[place] for place in one.said])
    numbers = classification_metrics(confusion, calibration, "words", facts)
    if unknown:
        numbers.append(
            Number(
                "unknown words",
                100 * hits / unknown,
                make_signature("accuracy-unknown", {"words": unknown, **facts}),
            )
        )
    return numbers + (spans.metrics(facts) if marks else []), confusion
