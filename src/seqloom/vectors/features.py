"""The words of a text, and the features of classifiers that older versions saved: bags of words, TF-IDF, its SVD, mean word vectors.

[A4–A7, A9–A12 for B4]

All are the same computation: counts, optionally weighted and normalized, optionally times a table. So each
feature set was saved as a list of words and at most two arrays.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

WORD = re.compile(r"\w+(?:['’-]\w+)*|[^\w\s]+")


class Features(NamedTuple):
    """x = c   or   x = (c ∘ idf) / |c ∘ idf|   or   x = (those, or c / Σc) T,   c = counts of `words`."""

    name: str
    words: list[str]
    ngrams: int = 1
    idf: np.ndarray | None = None  # (V,)
    table: np.ndarray | None = None  # (V, F)

    def __call__(self, texts: Sequence[str]) -> csr_array | np.ndarray:
        """(texts, F): sparse without a table, dense with one.

        A text without a word of `words` is a row of zeros.
        """
        x = counts(texts, self.words, self.ngrams)
        if self.idf is not None:
            x = x * self.idf[None, :]
            x = _scale_rows(x, np.sqrt(x.multiply(x).sum(axis=1)))
        elif self.table is not None:
            x = _scale_rows(x, x.sum(axis=1))
        return x.tocsr() if self.table is None else (x @ self.table).astype(np.float64)


def tokens(text: str, ngrams: int = 1) -> list[str]:
    """The lower-cased words and punctuation of a text, and their n-grams up to `ngrams`, joined by spaces."""
    words = WORD.findall(text.lower())
    return words + [
        " ".join(words[start : start + n])
        for n in range(2, ngrams + 1)
        for start in range(len(words) - n + 1)
    ]


def counts(texts: Sequence[str], words: Sequence[str], ngrams: int = 1) -> csr_array:
    """(texts, V): how often each word occurs in each text  [A4]."""
    from seqloom.vectors.counts import bag_of_words

    return bag_of_words([tokens(text, ngrams) for text in texts], words)


def _scale_rows(x: csr_array, divisors: np.ndarray) -> csr_array:
    """x with each row divided by its divisor; rows with a divisor of 0 stay as they are."""
    divisors = np.asarray(divisors).reshape(-1)
    return diags_array(1 / np.where(divisors == 0, 1, divisors)) @ x
