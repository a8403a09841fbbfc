"""Answers to questions, as SQuAD counts them: the same words, or how many words are the same; and numbers against numbers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

from seqloom.measure.number import Number, make_signature

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize_answer(text: str) -> list[str]:
    """The words of an answer in lower case, without punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact_match(said: str, right: Sequence[str]) -> float:
    """1 where the words are those of one of the right answers; without a right answer, where nothing is said."""
    return float(any(normalize_answer(said) == normalize_answer(one) for one in right or [""]))


def f1(said: str, right: Sequence[str]) -> float:
    """The best over the right answers of 2 · common / (words said + words right)."""

    def one(text: str) -> float:
        ours, theirs = normalize_answer(said), normalize_answer(text)
        if not ours or not theirs:
            return float(ours == theirs)
        return 2 * (Counter(ours) & Counter(theirs)).total() / (len(ours) + len(theirs))

    return max(one(text) for text in right or [""])


class AnswerMetrics:
    """Adds up exact matches and F1."""

    def __init__(self) -> None:
        self.count, self.exact, self.f1 = 0, 0.0, 0.0

    def add(self, said: str, right: Sequence[str]) -> None:
        self.count, self.exact, self.f1 = (
            self.count + 1,
            self.exact + exact_match(said, right),
            self.f1 + f1(said, right),
        )

    def numbers(self, facts: dict[str, object]) -> list[Number]:
        """Both in per cent."""
        each = 100 / max(self.count, 1)
        return [
            Number(
                name, total * each, make_signature(name.replace(" ", "-"), {"questions": self.count, **facts})
            )
            for name, total in (("exact match", self.exact), ("answer F1", self.f1))
        ]
