"""Answers that stand in a passage  [T10].

A passage that does not fit with its question is read in parts that overlap by half; the most probable span of all parts is the answer. No answer is
said only by a run that has learnt that there may be none, where every part says so.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch

from seqloom.batches import Questions
from seqloom.batches.buckets import rows, sizes
from seqloom.inference.in_order import predict_in_order
from seqloom.measure import Number
from seqloom.measure.question_answering import AnswerMetrics
from seqloom.run import Run
from seqloom.text.fields import NONE

LONGEST = 30  # tokens of an answer


class Span(NamedTuple):
    """The answer as it stands in the passage, from and to which character, and its probability; an empty text for no answer."""

    text: str
    start: int
    end: int
    probability: float

    def json(self) -> dict[str, Any]:
        return {
            "answer": self.text,
            "start": self.start,
            "end": self.end,
            "probability": round(self.probability, 6),
        }


class TokenSpan(NamedTuple):
    """Tokens of a passage, the last included, and ln P; None is no answer. `none` is ln P of no answer in the same part."""

    first: int | None
    last: int | None
    log_p: float
    none: float


def window_starts(length: int, room: int) -> list[int]:
    """Where parts of `room` tokens begin: every half of it, the last flush right."""
    return [*range(0, max(length - room, 0), max(room // 2, 1)), max(length - room, 0)]


def predict_spans(run: Run, source: Questions, most: int | None = None) -> Iterator[tuple[int, TokenSpan]]:
    """The best span of each record."""

    def look(group: np.ndarray) -> list[TokenSpan]:
        begins = [
            window_starts(int(n), int(r))
            for n, r in zip(sizes(source.passages, group), source.passage_capacity(group), strict=True)
        ]
        whose = np.repeat(np.arange(len(group)), [len(row) for row in begins])
        starts = np.concatenate(begins)
        found: list[list[TokenSpan]] = [[] for _ in group]
        for some in np.array_split(np.arange(len(starts)), -(-len(starts) // len(group))):
            batch = source.collate_windows(
                group[whose[some]], starts[some], np.zeros((len(some), 2), np.int64)
            )
            scores, _ = run.model.scores(*batch.inputs)
            for place, span in zip(some, best_spans(scores.double()), strict=True):
                found[whose[place]].append(
                    span._replace(first=span.first + int(starts[place]), last=span.last + int(starts[place]))
                )
        return [best_of_windows(spans, NONE in run.labels) for spans in found]

    return predict_in_order(run.model, source, look, most)


def best_of_windows(spans: list[TokenSpan], may_lack: bool) -> TokenSpan:
    """The most probable span of all parts; no answer where there may be none and each part says so, as probable as the part that doubts it most."""
    if may_lack and all(span.none > span.log_p for span in spans):
        none = min(span.none for span in spans)
        return TokenSpan(None, None, none, none)
    return max(spans, key=lambda span: span.log_p)


def best_spans(scores: torch.Tensor) -> list[TokenSpan]:
    """The most probable span of each row: (B, 2, 1 + S)."""
    log_p = scores.log_softmax(-1)
    both = log_p[:, 0, 1:, None] + log_p[:, 1, None, 1:]  # (B, S, S)
    size = both.shape[-1]
    inside = torch.ones(size, size, dtype=torch.bool).triu().tril(LONGEST - 1)
    top, where = both.masked_fill(~inside, float("-inf")).flatten(1).max(1)
    none = log_p[:, 0, 0] + log_p[:, 1, 0]
    found = zip(where.tolist(), top.tolist(), none.tolist(), strict=True)
    return [TokenSpan(place // size, place % size, value, empty) for place, value, empty in found]


def predictions(run: Run, source: Questions) -> Iterator[Span]:
    for number, span in predict_spans(run, source):
        yield to_prediction(source, number, span)


def to_prediction(source: Questions, record: int, span: TokenSpan) -> Span:
    if span.first is None:
        return Span("", 0, 0, float(np.exp(span.log_p)))
    edges = rows(source.edges, [record])[0].reshape(-1, 2)
    text = rows(source.store.columns("source")[0], [record])[0].tobytes().decode()
    start, end = int(edges[span.first, 0]), int(edges[span.last, 1])
    return Span(text[start:end], start, end, float(np.exp(span.log_p)))


def measure(
    run: Run, source: Questions, facts: dict[str, object], most: int | None = None
) -> tuple[list[Number], None]:
    """Exact match and F1 against every right answer."""
    counted, right = AnswerMetrics(), source.store.columns("answers")[0]
    for number, span in predict_spans(run, source, most):
        texts = rows(right, [number])[0].tobytes().decode().split("\0")[:-1]
        counted.add(to_prediction(source, number, span).text, texts)
    return counted.metrics(facts), None
