"""Texts as rows of numbers for a classifier: bags of words, TF-IDF, their SVD, mean word vectors.

[A4–A7, A9–A12 for B4]

All are the same computation: counts, optionally weighted and normalized, optionally times a table. So each
feature set is saved as a list of words and at most two arrays.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array, diags_array

from seqloom.vectors.vectors import Vectors

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


def bag_of_words_features(texts: Sequence[str], min_count: int = 1, ngrams: int = 1) -> Features:
    """Counts of every word (and n-gram of words) that occurs at least `min_count` times."""
    counter: Counter[str] = Counter()
    for text in texts:
        counter.update(tokens(text, ngrams))
    words = [word for word, count in counter.most_common() if count >= min_count]
    if not words:
        raise ValueError(
            f"no word of the training texts occurs {min_count} times; lower --minimum or give more text"
        )
    return Features("bag of words", words, ngrams)


def tfidf_features(bag: Features, texts: Sequence[str]) -> Features:
    """TF-IDF: idf_w = ln((1 + n) / (1 + n_w)) + 1, n_w of n texts contain w; rows have norm 1  [A5]."""
    x = counts(texts, bag.words, bag.ngrams)
    document_counts = np.bincount(x.indices, minlength=x.shape[1])
    return bag._replace(name="TF-IDF", idf=np.log((1 + x.shape[0]) / (1 + document_counts)) + 1)


def lsa_features(weighted: Features, texts: Sequence[str], dim: int = 100, seed: int = 0) -> Features:
    """The first `dim` latent features of TF-IDF: X ≈ U Σ Vᵀ, x ↦ x V  [A7]."""
    from sklearn.decomposition import TruncatedSVD

    x = weighted(texts)
    rank = min(dim, *(size - 1 for size in x.shape)) or 1
    svd = TruncatedSVD(rank, random_state=seed).fit(x)
    return _with_table(weighted._replace(name="SVD of TF-IDF"), svd.components_.T, texts)


def mean_vector_features(vectors: Vectors, texts: Sequence[str], name: str) -> Features:
    """The mean of the vectors of a text's words  [A9–A12]."""
    return _with_table(
        Features(name, list(vectors.words)), np.asarray(vectors.matrix, dtype=np.float64), texts
    )


def _with_table(features: Features, table: np.ndarray, texts: Sequence[str]) -> Features:
    """The features times a table, scaled to a root mean square of 1, so that one penalty suits all tables."""
    x = np.asarray(features._replace(table=table)(texts))
    scale = float(np.sqrt(np.mean(x**2))) or 1.0
    return features._replace(table=(table / scale).astype(np.float32))


def _scale_rows(x: csr_array, divisors: np.ndarray) -> csr_array:
    """x with each row divided by its divisor; rows with a divisor of 0 stay as they are."""
    divisors = np.asarray(divisors).reshape(-1)
    return diags_array(1 / np.where(divisors == 0, 1, divisors)) @ x
