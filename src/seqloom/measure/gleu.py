"""Sentence GLEU (Wu et al. 2016): a score for one sentence,
symmetric in output and reference, designed as a reward."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def gleu(output: Sequence[Hashable], reference: Sequence[Hashable], max_n: int = 4) -> float:
    """min(precision, recall) = matches / max(n-grams of the output,
    n-grams of the reference), over n-grams of 1 to `max_n` tokens."""
    output_ngrams = _ngrams(output, max_n)
    reference_ngrams = _ngrams(reference, max_n)
    count = max(output_ngrams.total(), reference_ngrams.total())
    return (output_ngrams & reference_ngrams).total() / count if count else 1.0


def _ngrams(text: Sequence[Hashable], max_n: int) -> Counter[tuple[Hashable, ...]]:
    return Counter(tuple(text[i : i + n]) for n in range(1, max_n + 1) for i in range(len(text) - n + 1))
