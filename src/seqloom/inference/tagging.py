"""A tag for each word  [T1]."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from seqloom.batches import Tagged
from seqloom.batches.buckets import read_rows
from seqloom.inference.in_order import predict_in_order
from seqloom.inference.predictions import Tags
from seqloom.inference.task_model import model_of
from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.measure.number import Number, make_signature, percent, wilson
from seqloom.measure.spans import SpanCounts, has_span_tags
from seqloom.models import Tagger
from seqloom.run import Run


class TaggedWords(NamedTuple):
    """The predicted tags of one sentence."""

    tag_ids: np.ndarray  # indices of labels
    probabilities: np.ndarray


def predict_tags(
    run: Run, source: Tagged, max_groups: int | None = None
) -> Iterator[tuple[int, TaggedWords]]:
    """The best tag sequence of each sentence, and the marginal probability of each tag."""
    model = model_of(run, Tagger)

    def predict_group(group: np.ndarray) -> list[TaggedWords]:
        batch = source.collate(group, full=True)
        scores = model.scores(
            batch.ids, batch.input_mask, batch.word_starts, batch.char_ids, batch.word_ids
        ).float()
        tag_ids = model.head.decode(scores, batch.mask)
        marginals = model.head.marginals(scores, batch.mask)
        probabilities = marginals.gather(2, tag_ids[..., None])[..., 0]
        counts = batch.mask.sum(1).tolist()
        return [
            TaggedWords(sentence_ids[:count].numpy(), sentence_probabilities[:count].numpy())
            for sentence_ids, sentence_probabilities, count in zip(
                tag_ids, probabilities, counts, strict=True
            )
        ]

    return predict_in_order(model, source, predict_group, max_groups)


def predictions(run: Run, source: Tagged) -> Iterator[Tags]:
    """The tags of each sentence, in order."""
    for record, tagged in predict_tags(run, source):
        words = read_rows(source.letters, [record])[0].tobytes().decode().split("\0")[:-1]
        tags = [run.labels[tag] for tag in tagged.tag_ids]
        yield Tags(words, tags, tagged.probabilities.tolist())


def measure(
    run: Run, source: Tagged, conditions: dict[str, object], max_groups: int | None = None
) -> tuple[list[Number], Confusion, list[tuple[float, int]]]:
    """Accuracy, F1, calibration; accuracy on unknown words; F1 of spans if tags mark spans."""
    confusion = Confusion(run.labels)
    calibration = Calibration()
    by_record = []
    spans = SpanCounts()
    marks_spans = has_span_tags(run.labels)
    unk_id = -1 if run.specials.unk is None else run.specials.unk
    num_unknown = 0
    num_unknown_correct = 0
    for record, (predicted, probabilities) in predict_tags(run, source, max_groups):
        gold = read_rows(source.tags[0], [record])[0]
        first_pieces = read_rows(source.pieces, [record])[0][read_rows(source.word_starts, [record])[0]]
        confusion.add(gold, predicted)
        calibration.add(probabilities, gold == predicted)
        by_record.append((float((gold == predicted).sum()), len(gold)))
        is_unknown = first_pieces == unk_id
        num_unknown += int(is_unknown.sum())
        num_unknown_correct += int((is_unknown & (gold == predicted)).sum())
        if marks_spans:
            spans.add([run.labels[tag] for tag in gold], [run.labels[tag] for tag in predicted])
    numbers = classification_metrics(confusion, calibration, "words", conditions)
    if num_unknown:
        accuracy_signature = make_signature("accuracy-unknown", {"words": num_unknown, **conditions})
        accuracy = num_unknown_correct / num_unknown
        interval = percent(wilson(num_unknown_correct, num_unknown))
        numbers.append(
            Number("accuracy_unknown", 100 * accuracy, accuracy_signature, *interval, n=num_unknown)
        )
    if marks_spans:
        numbers += spans.metrics(conditions)
    return numbers, confusion, by_record
