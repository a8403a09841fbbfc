"""Answers to questions, as SQuAD counts them: the same words, or how many words are the same; and numbers against numbers."""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence

import numpy as np

from seqloom.measure.number import Number, sign

ARTICLES = re.compile(r"\b(a|an|the)\b", re.UNICODE)
PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(text: str) -> list[str]:
    """The words of an answer in lower case, without punctuation and articles."""
    return ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split()


def exact(said: str, right: Sequence[str]) -> float:
    """1 where the words are those of one of the right answers; without a right answer, where nothing is said."""
    return float(any(plain(said) == plain(one) for one in right or [""]))


def f1(said: str, right: Sequence[str]) -> float:
    """The best over the right answers of 2 · common / (words said + words right)."""

    def one(text: str) -> float:
        ours, theirs = plain(said), plain(text)
        if not ours or not theirs:
            return float(ours == theirs)
        return 2 * (Counter(ours) & Counter(theirs)).total() / (len(ours) + len(theirs))

    return max(one(text) for text in right or [""])


class Answers:
    """Adds up exact matches and F1."""

    def __init__(self) -> None:
        self.count, self.exact, self.f1 = 0, 0.0, 0.0

    def add(self, said: str, right: Sequence[str]) -> None:
        self.count, self.exact, self.f1 = (
            self.count + 1,
            self.exact + exact(said, right),
            self.f1 + f1(said, right),
        )

    def numbers(self, facts: dict[str, object]) -> list[Number]:
        """Both in per cent."""
        each = 100 / max(self.count, 1)
        return [
            Number(name, total * each, sign(name.replace(" ", "-"), {"questions": self.count, **facts}))
            for name, total in (("exact match", self.exact), ("answer F1", self.f1))
        ]


def agreement(said: np.ndarray, right: np.ndarray, facts: dict[str, object]) -> list[Number]:
    """Spearman's ρ (the correlation of ranks, equal values sharing theirs), Pearson's r, and √mean (ŷ - y)²."""
    from scipy.stats import rankdata

    def correlation(x: np.ndarray, y: np.ndarray) -> float:
        x, y = x - x.mean(), y - y.mean()
        size = np.sqrt((x**2).sum() * (y**2).sum())
        return float((x * y).sum() / size) if size > 0 else 0.0

    values = {
        "Spearman": correlation(rankdata(said), rankdata(right)),
        "Pearson": correlation(said, right),
        "RMSE": float(np.sqrt(((said - right) ** 2).mean())),
    }
    return [
        Number(name, value, sign(name, {"records": len(said), **facts})) for name, value in values.items()
    ]
