"""Extractive question answering: the answer is a span of a passage  [T10].

A passage that does not fit beside its question is read in windows that overlap by half; the most probable span of all
windows is the answer. "No answer" is predicted only by a run whose training data has questions without an answer, and only
if every window predicts it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import torch

from seqloom.batches import Questions
from seqloom.batches.buckets import read_rows, row_lengths
from seqloom.inference.in_order import predict_in_order
from seqloom.inference.predictions import Span
from seqloom.inference.task_model import model_of
from seqloom.measure.number import Number
from seqloom.measure.question_answering import AnswerMetrics, exact_match
from seqloom.models import ExtractiveQA
from seqloom.run import Run
from seqloom.text.fields import NONE

MAX_ANSWER_TOKENS = 30


class TokenSpan(NamedTuple):
    """The first and the last token of an answer, None for no answer, ln P of it, and ln P of no answer in the same window."""

    first: int | None
    last: int | None
    log_p: float
    no_answer_log_p: float

    def shifted(self, start: int) -> TokenSpan:
        """The same span in a passage whose token `start` is the first of the window."""
        if self.first is None or self.last is None:
            return self
        return self._replace(first=self.first + start, last=self.last + start)


def window_starts(length: int, capacity: int) -> list[int]:
    """The first tokens of windows of `capacity` tokens: every half window, the last one at the end of the passage."""
    last_start = max(length - capacity, 0)
    return [*range(0, last_start, max(capacity // 2, 1)), last_start]


def predict_spans(
    run: Run, source: Questions, max_groups: int | None = None
) -> Iterator[tuple[int, TokenSpan]]:
    """The best span of each record."""
    model = model_of(run, ExtractiveQA)
    allow_no_answer = NONE in run.labels

    def predict_group(group: np.ndarray) -> list[TokenSpan]:
        passages = zip(row_lengths(source.passages, group), source.passage_capacity(group), strict=True)
        starts_of = [window_starts(int(length), int(capacity)) for length, capacity in passages]
        record_of = np.repeat(np.arange(len(group)), [len(starts) for starts in starts_of])
        starts = np.concatenate(starts_of)
        spans: list[list[TokenSpan]] = [[] for _ in group]
        num_batches = -(-len(starts) // len(group))
        for windows in np.array_split(np.arange(len(starts)), num_batches):
            answers = np.zeros((len(windows), 2), np.int64)
            batch = source.collate_windows(group[record_of[windows]], starts[windows], answers)
            scores, _ = model.scores(*batch.inputs)
            for window, span in zip(windows, best_spans(scores.double()), strict=True):
                spans[record_of[window]].append(span.shifted(int(starts[window])))
        return [best_of_windows(record_spans, allow_no_answer) for record_spans in spans]

    return predict_in_order(model, source, predict_group, max_groups)


def best_of_windows(spans: list[TokenSpan], allow_no_answer: bool) -> TokenSpan:
    """The most probable span of all windows.

    It is no answer if that is allowed and the most probable in each window; its probability is the lowest of all windows.
    """
    if allow_no_answer and all(span.no_answer_log_p > span.log_p for span in spans):
        log_p = min(span.no_answer_log_p for span in spans)
        return TokenSpan(None, None, log_p, log_p)
    return max(spans, key=lambda span: span.log_p)


def best_spans(scores: torch.Tensor) -> list[TokenSpan]:
    """The most probable span of each row: (B, 2, 1 + S)."""
    log_p = scores.log_softmax(-1)
    span_log_p = log_p[:, 0, 1:, None] + log_p[:, 1, None, 1:]  # (B, S, S)
    size = span_log_p.shape[-1]
    allowed = torch.ones(size, size, dtype=torch.bool).triu().tril(MAX_ANSWER_TOKENS - 1)
    best, indices = span_log_p.masked_fill(~allowed, float("-inf")).flatten(1).max(1)
    no_answer = log_p[:, 0, 0] + log_p[:, 1, 0]
    columns = zip(indices.tolist(), best.tolist(), no_answer.tolist(), strict=True)
    return [
        TokenSpan(index // size, index % size, value, no_answer_value)
        for index, value, no_answer_value in columns
    ]


def predictions(run: Run, source: Questions) -> Iterator[Span]:
    """The answer to each question, in order."""
    for record, span in predict_spans(run, source):
        yield to_prediction(source, record, span)


def to_prediction(source: Questions, record: int, span: TokenSpan) -> Span:
    """The span as text and characters of the record's passage."""
    probability = float(np.exp(span.log_p))
    if span.first is None or span.last is None:
        return Span("", 0, 0, probability)
    edges = read_rows(source.edges, [record])[0].reshape(-1, 2)
    text = read_rows(source.store.columns("source")[0], [record])[0].tobytes().decode()
    start = int(edges[span.first, 0])
    end = int(edges[span.last, 1])
    return Span(text[start:end], start, end, probability)


def measure(
    run: Run, source: Questions, conditions: dict[str, object], max_groups: int | None = None
) -> tuple[list[Number], None, list[tuple[float, int]]]:
    """Exact match and F1 against every correct answer."""
    metrics = AnswerMetrics()
    by_record = []
    (answers,) = source.store.columns("answers")
    for record, span in predict_spans(run, source, max_groups):
        gold = read_rows(answers, [record])[0].tobytes().decode().split("\0")[:-1]
        text = to_prediction(source, record, span).text
        metrics.add(text, gold)
        by_record.append((exact_match(text, gold), 1))
    return metrics.metrics(conditions), None, by_record
