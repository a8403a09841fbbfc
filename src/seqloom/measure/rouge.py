"""Quality of summaries: ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004), what was copied and what is new.

Tokens and scores are those of the package rouge-score without stemming: lower case, the letters a-z and digits. The score of a corpus is the
mean F₁ of its summaries; the intervals resample summaries.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np

from seqloom.measure.number import Number, bootstrap, make_signature

NAMES = ("rouge_1", "rouge_2", "rouge_l")
TITLES = {"rouge_1": "ROUGE-1", "rouge_2": "ROUGE-2", "rouge_l": "ROUGE-L"}
SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[^\sa-z])")
MIN_SPAN = 2  # words of a copied span


def rouge_tokens(text: str) -> list[str]:
    """The words of a text as ROUGE counts them."""
    return re.findall("[a-z0-9]+", text.lower())


def ngrams(tokens: Sequence[str], n: int) -> Iterator[tuple[str, ...]]:
    """Each sequence of n tokens."""
    return zip(*(tokens[start:] for start in range(n)), strict=False)


def f_measure(matched: int, found: int, wanted: int) -> float:
    """F₁ = 2 P R / (P + R),   P = matched / found,   R = matched / wanted"""
    if not matched:
        return 0.0
    precision, recall = matched / found, matched / wanted
    return 2 * precision * recall / (precision + recall)


def common_subsequence(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence: one addition of long integers for each word (Hyyrö 2004)."""
    positions: dict[str, int] = {}
    for index, token in enumerate(first):
        positions[token] = positions.get(token, 0) | 1 << index
    full = (1 << len(first)) - 1
    row = full
    for token in second:
        used = row & positions.get(token, 0)
        row = ((row + used) | (row - used)) & full
    return len(first) - row.bit_count()


def rouge(output: str, reference: str) -> tuple[float, float, float]:
    """F₁ of common words, of common pairs of words, and of the longest common subsequence, from 0 to 1."""
    found, wanted = rouge_tokens(output), rouge_tokens(reference)
    scores = []
    for n in (1, 2):
        one, other = Counter(ngrams(found, n)), Counter(ngrams(wanted, n))
        scores.append(f_measure((one & other).total(), one.total(), other.total()))
    return scores[0], scores[1], f_measure(common_subsequence(wanted, found), len(found), len(wanted))


def copied_spans(output: Sequence[str], source: Sequence[str]) -> list[int]:
    """The lengths of the spans of at least two words that a summary has in common with its source: from the left, the longest first
    (the fragments of Grusky et al. 2018)."""
    starts: dict[tuple[str, ...], list[int]] = {}
    for index, pair in enumerate(ngrams(source, MIN_SPAN)):
        starts.setdefault(pair, []).append(index)
    spans = []
    position = 0
    while position < len(output):
        longest = 0
        for start in starts.get(tuple(output[position : position + MIN_SPAN]), ()):
            length = MIN_SPAN
            while (
                position + length < len(output)
                and start + length < len(source)
                and output[position + length] == source[start + length]
            ):
                length += 1
            longest = max(longest, length)
        if longest:
            spans.append(longest)
        position += longest or 1
    return spans


def lead(document: str, words: int) -> str:
    """The first words of a document."""
    return " ".join(document.split()[:words])


def first_sentence(document: str) -> str:
    """The first sentence of a document."""
    return SENTENCE_END.split(document.strip(), maxsplit=1)[0]


def mean_numbers(
    names: Sequence[str], titles: Sequence[str], values: np.ndarray, conditions: dict[str, object]
) -> list[Number]:
    """The mean of each column of values (N, k) in per cent, with its interval."""
    count = len(values)
    numbers = []
    for name, title, column in zip(names, titles, values.T, strict=True):
        statistics = np.stack([column, np.ones(count)], 1)
        interval = bootstrap(statistics, mean_percent)
        numbers.append(
            Number(name, 100 * column.mean(), make_signature(title, conditions), *interval, n=count)
        )
    return numbers


def mean_percent(sums: np.ndarray) -> np.ndarray:
    """Sums of scores and of summaries, (R, 2), as a mean in per cent."""
    return 100 * sums[:, 0] / sums[:, 1].clip(1)


def rouge_scores(outputs: Sequence[str], references: Sequence[str]) -> np.ndarray:
    """ROUGE-1, ROUGE-2 and ROUGE-L of each summary, (N, 3)."""
    return np.array([rouge(*pair) for pair in zip(outputs, references, strict=True)], np.float64).reshape(
        -1, 3
    )


def summarization(
    outputs: Sequence[str], references: Sequence[str], sources: Sequence[str], conditions: dict[str, object]
) -> list[Number]:
    """ROUGE of the outputs; ROUGE-L of two baselines, the first n words of each document, where n is the mean length of the references,
    and its first sentence; the share of new words and pairs of words, and of words in spans that were copied, and the mean length of
    these spans."""
    shared: dict[str, object] = {"records": len(outputs), "stem:no|case:lower|tokens": "a-z0-9", **conditions}
    numbers = mean_numbers(NAMES, list(TITLES.values()), rouge_scores(outputs, references), shared)
    words = max(1, round(sum(len(text.split()) for text in references) / max(len(references), 1)))
    baselines = {
        f"lead-{words}": [lead(source, words) for source in sources],
        "first sentence": [first_sentence(source) for source in sources],
    }
    for (title, texts), name in zip(
        baselines.items(), ("rouge_l_lead", "rouge_l_first_sentence"), strict=True
    ):
        scores = rouge_scores(texts, references)[:, 2:]
        numbers += mean_numbers([name], ["ROUGE-L"], scores, {"of": title, **shared})
    return numbers + novelty(outputs, sources, conditions)


def novelty(outputs: Sequence[str], sources: Sequence[str], conditions: dict[str, object]) -> list[Number]:
    """The share of n-grams of the summaries that are not in their sources (n = 1, 2), the share of words in copied spans of two words or
    more, and the mean length of a span."""
    rows = []
    for output, source in zip(outputs, sources, strict=True):
        found, given = rouge_tokens(output), rouge_tokens(source)
        row: list[float] = []
        for n in (1, 2):
            grams, there = list(ngrams(found, n)), set(ngrams(given, n))
            row += [sum(gram not in there for gram in grams), len(grams)]
        spans = copied_spans(found, given)
        rows.append([*row, sum(spans), len(spans)])
    table = np.array(rows, np.float64).reshape(-1, 6)
    shared: dict[str, object] = {"records": len(outputs), **conditions}

    def ratio(top: int, bottom: int, name: str, title: str, scale: float) -> Number:
        columns = table[:, [top, bottom]]
        value = scale * columns[:, 0].sum() / max(columns[:, 1].sum(), 1)
        interval = bootstrap(columns, lambda sums: scale * sums[:, 0] / sums[:, 1].clip(1))
        return Number(name, value, make_signature(title, shared), *interval, n=int(columns[:, 1].sum()))

    return [
        ratio(0, 1, "new_words", "new 1-grams", 100),
        ratio(2, 3, "new_pairs", "new 2-grams", 100),
        ratio(4, 1, "copied", f"words in copied spans of {MIN_SPAN} or more", 100),
        ratio(4, 5, "copied_span", "mean words of a copied span", 1),
    ]
