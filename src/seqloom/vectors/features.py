"""Texts as rows of numbers for a classifier: bags of words, TF-IDF, their SVD, averaged word vectors  [A4–A7, A9–A12 for B4].

All are one computation: counts, weighted and divided by their length, times a table or not. So any of them is saved as a list of words and
at most two arrays.
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
    """x = c   or   x = (c ∘ idf) / |c ∘ idf|   or   x = (those, or c / Σc) T, with c the counts of `words` in a text."""

    name: str
    words: list[str]
    ngrams: int = 1
    idf: np.ndarray | None = None  # (V,)
    table: np.ndarray | None = None  # (V, F)

    def __call__(self, texts: Sequence[str]) -> csr_array | np.ndarray:
        """(texts, F): a sparse array without a table, a dense one with it. A text without a known word is a row of zeros."""
        x = counts(texts, self.words, self.ngrams)
        if self.idf is not None:
            x = x * self.idf[None, :]
            x = _scale_rows(x, np.sqrt(x.multiply(x).sum(axis=1)))
        elif self.table is not None:
            x = _scale_rows(x, x.sum(axis=1))
        return x.tocsr() if self.table is None else (x @ self.table).astype(np.float64)


def tokens(text: str, ngrams: int = 1) -> list[str]:
    """The lower-cased words and marks of a text, and with `ngrams` above 1 also the runs of so many of them, joined by a space."""
    words = WORD.findall(text.lower())
    return words + [
        " ".join(words[at : at + n]) for n in range(2, ngrams + 1) for at in range(len(words) - n + 1)
    ]


def counts(texts: Sequence[str], words: Sequence[str], ngrams: int = 1) -> csr_array:
    """(texts, V): how often each word occurs in each text  [A4]."""
    from seqloom.vectors.counts import bag_of_words

    return bag_of_words([tokens(text, ngrams) for text in texts], words)


def bag_of_words_features(texts: Sequence[str], minimum: int = 1, ngrams: int = 1) -> Features:
    """Counts of every word (and run of words) that occurs `minimum` times or more."""
    found: Counter[str] = Counter()
    for text in texts:
        found.update(tokens(text, ngrams))
    words = [word for word, count in found.most_common() if count >= minimum]
    if not words:
        raise ValueError(
            f"no word of the training texts occurs {minimum} times; lower --minimum or give more text"
        )
    return Features("bag of words", words, ngrams)


def tfidf_features(plain: Features, texts: Sequence[str]) -> Features:
    """TF-IDF: idf_w = ln((1 + n) / (1 + n_w)) + 1 with n_w of the n texts holding w; rows have length 1  [A5]."""
    x = plain(texts)
    holding = np.bincount(x.indices, minlength=x.shape[1])
    return plain._replace(name="TF-IDF", idf=np.log((1 + x.shape[0]) / (1 + holding)) + 1)


def lsa_features(weighted: Features, texts: Sequence[str], dim: int = 100, seed: int = 0) -> Features:
    """The first `dim` latent features of TF-IDF: X ≈ U Σ Vᵀ, x ↦ x V  [A7]."""
    from sklearn.decomposition import TruncatedSVD

    x = weighted(texts)
    found = TruncatedSVD(min(dim, *(size - 1 for size in x.shape)) or 1, random_state=seed).fit(x)
    return _scaled(weighted._replace(name="SVD of TF-IDF", table=found.components_.T), texts)


def mean_vector_features(vectors: Vectors, texts: Sequence[str], name: str) -> Features:
    """The mean of the vectors of a text's words  [A9–A12]."""
    return _scaled(
        Features(name, list(vectors.words), table=np.asarray(vectors.matrix, dtype=np.float64)), texts
    )


def _scaled(features: Features, texts: Sequence[str]) -> Features:
    """The same with numbers about 1 in size, so that one penalty suits all tables."""
    size = float(np.sqrt(np.mean(features(texts) ** 2)))
    return features._replace(table=(features.table / (size or 1)).astype(np.float32))


def _scale_rows(x: csr_array, by: np.ndarray) -> csr_array:
    by = np.asarray(by).reshape(-1)
    return diags_array(1 / np.where(by == 0, 1, by)) @ x
