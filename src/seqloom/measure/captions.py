"""Quality of captions against several references: BLEU-1 … 4 and CIDEr-D over words, and exact match.

Texts are compared in lower case and without punctuation, as `caption_words` gives them; the signature says so (`tok:words`).

    CIDEr-Dₙ(c, r) = 10 exp(-(|c| - |r|)² / 2σ²) Σ_w min(gₙ(c)_w, gₙ(r)_w) gₙ(r)_w / ‖gₙ(c)‖ ‖gₙ(r)‖,   σ = 6

gₙ is the vector of counts of n-grams, each multiplied by ln(pictures / pictures with the n-gram in a reference); the mean is
over n = 1 … 4, over the references, and over the pictures (Vedantam et al. 2015).
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seqloom.measure.number import Number, bootstrap, make_signature, percent, wilson

ORDER = 4
SIGMA = 6.0
WORDS = re.compile(r"\w+(?:['’]\w+)*")

NGram = tuple[str, ...]
Vector = dict[NGram, float]


def caption_words(text: str) -> list[str]:
    """The words of a caption in lower case, without punctuation."""
    return WORDS.findall(text.lower())


def caption_numbers(
    outputs: Sequence[str], references: Sequence[Sequence[str]], conditions: dict[str, object]
) -> list[Number]:
    """Exact match, BLEU-1 … 4 and CIDEr-D of a caption for each picture, against the captions of the picture."""
    words = [caption_words(output) for output in outputs]
    wanted = [[caption_words(text) for text in texts] for texts in references]
    most = max((len(texts) for texts in references), default=0)
    shared = {"nrefs": most, "case": "lower", "tok": "words", **conditions}
    exact = [found in texts for found, texts in zip(words, wanted, strict=True)]
    count = len(outputs)
    numbers = [
        Number(
            "exact_match",
            100 * sum(exact) / max(count, 1),
            make_signature("exact", shared),
            *percent(wilson(sum(exact), count)),
            n=count,
        )
    ]
    statistics = bleu_counts(words, wanted)
    for order in range(1, ORDER + 1):
        value = float(bleu_of_order(statistics.sum(0, keepdims=True), order)[0])
        interval = bootstrap(statistics, lambda sums, order=order: bleu_of_order(sums, order))  # type: ignore[misc]
        signature = make_signature(f"BLEU-{order}", {"smooth": "none", **shared})
        numbers.append(Number(f"bleu_{order}", value, signature, *interval, n=count))
    scores = cider_scores(words, wanted)
    interval = bootstrap(np.stack([scores, np.ones(count)], 1), lambda sums: sums[:, 0] / sums[:, 1].clip(1))
    signature = make_signature("CIDEr-D", {"n": ORDER, "sigma": SIGMA, "df": "references", **shared})
    return [*numbers, Number("cider", float(scores.mean()) if count else 0.0, signature, *interval, n=count)]


def ngrams(words: Sequence[str], order: int) -> Counter[NGram]:
    """How often each sequence of `order` words occurs."""
    return Counter(tuple(words[start : start + order]) for start in range(len(words) - order + 1))


def bleu_counts(outputs: Sequence[list[str]], references: Sequence[list[list[str]]]) -> np.ndarray:
    """Of each caption: its length, that of its closest reference, and for n = 1 … 4 the matched and all n-grams; (N, 10).

    An n-gram matches as often as it occurs in the reference that has it most often; of two references that are equally
    close, the shorter counts.
    """
    rows = []
    for words, texts in zip(outputs, references, strict=True):
        closest = min((abs(len(text) - len(words)), len(text)) for text in texts)[1]
        matched, total = [], []
        for order in range(1, ORDER + 1):
            found = ngrams(words, order)
            most: Counter[NGram] = Counter()
            for text in texts:
                most |= ngrams(text, order)
            matched.append((found & most).total())
            total.append(found.total())
        rows.append([len(words), closest, *matched, *total])
    return np.array(rows, np.float64).reshape(-1, 2 + 2 * ORDER)


def bleu_of_order(sums: np.ndarray, order: int) -> np.ndarray:
    """BLEU-n of each row of summed counts, (R, 10) → (R,): min(1, exp(1 - r/c)) · (p₁ … pₙ)^(1/n), in per cent; 0 if no n-gram matches."""
    lengths, closest = sums[:, 0], sums[:, 1]
    matched, total = sums[:, 2 : 2 + order], sums[:, 2 + ORDER : 2 + ORDER + order]
    with np.errstate(divide="ignore", invalid="ignore"):
        brevity = np.minimum(0.0, 1 - closest / lengths)
        scores = 100 * np.exp(brevity + np.log(matched / total).mean(1))
    return np.where((matched > 0).all(1), scores, 0.0)


def cider_scores(outputs: Sequence[list[str]], references: Sequence[list[list[str]]]) -> np.ndarray:
    """CIDEr-D of each picture's caption, (N,)."""
    documents: Counter[NGram] = Counter()
    for texts in references:
        documents.update(
            {gram for text in texts for order in range(1, ORDER + 1) for gram in ngrams(text, order)}
        )
    log_pictures = math.log(max(len(references), 1))

    def vectors(words: list[str]) -> list[Vector]:
        return [
            {
                gram: count * (log_pictures - math.log(max(documents[gram], 1)))
                for gram, count in ngrams(words, order).items()
            }
            for order in range(1, ORDER + 1)
        ]

    scores = []
    for words, texts in zip(outputs, references, strict=True):
        found = vectors(words)
        total = 0.0
        for text in texts:
            length = math.exp(-((len(words) - len(text)) ** 2) / (2 * SIGMA**2))
            pairs = zip(found, vectors(text), strict=True)
            total += 10 * length * sum(similarity(*pair) for pair in pairs) / ORDER
        scores.append(total / max(len(texts), 1))
    return np.array(scores, np.float64)


def similarity(found: Vector, wanted: Vector) -> float:
    """Σ min(f, w) w / ‖f‖ ‖w‖; 0 if one of them is 0."""
    product = sum(min(value, wanted[gram]) * wanted[gram] for gram, value in found.items() if gram in wanted)
    norms = math.hypot(*found.values()) * math.hypot(*wanted.values())
    return product / norms if norms else 0.0
