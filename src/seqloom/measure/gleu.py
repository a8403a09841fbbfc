"""Sentence GLEU (Wu et al. 2016): a score for one sentence that is symmetric in output and reference, made for rewards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence


def gleu(output: Sequence[Hashable], reference: Sequence[Hashable], longest: int = 4) -> float:
    """min(precision, recall) = matches / max(n-grams of the output, n-grams of the reference), over all n-grams of 1 to `longest` tokens."""
    ours, theirs = (
        Counter(tuple(text[i : i + n]) for n in range(1, longest + 1) for i in range(len(text) - n + 1))
        for text in (output, reference)
    )
    most = max(ours.total(), theirs.total())
    return (ours & theirs).total() / most if most else 1.0
