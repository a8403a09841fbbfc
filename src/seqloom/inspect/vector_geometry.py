"""The geometry of contextual vectors, layer by layer (Ethayarajh)   [K1, Q11]

For vectors of tokens in sentences:
- anisotropy: the mean cosine of vectors of different words; 0 if directions are spread evenly;
- self-similarity: the mean cosine of one word's vectors in different sentences, minus the anisotropy;
- intra-sentence similarity: the mean cosine of a sentence's token vectors with their mean, minus the anisotropy;
- variance explained: the share of the first component. About the mean, as principal component analysis has it, and about the origin,
  σ₁² / Σσ², which counts the mean itself: of anisotropic vectors the two differ by orders of magnitude.

All are exact, over every pair: Σ u·v over the pairs of two sets is the product of their sums. So what is kept of the text is a sum of unit vectors
for each word and a matrix (D, D): memory grows with the number of different words, not with the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from seqloom.errors import DataError
from seqloom.results import Result


@dataclass(frozen=True)
class LayerGeometry(Result):
    """The numbers of one layer."""

    layer: str
    anisotropy: float
    self_similarity: float | None  # None if no word occurs in two sentences
    intra_sentence_similarity: float
    variance_explained: float  # of the first component, about the mean
    origin_variance_explained: float  # σ₁² / Σσ², about the origin


class WordTable:
    """The row of each word that occurs, in the order of first occurrence."""

    def __init__(self) -> None:
        self.rows = np.full(0, -1)
        self.count = 0

    def find(self, words: np.ndarray) -> np.ndarray:
        """The rows of words, which are numbers from 0; new ones get new rows."""
        most = int(words.max(initial=-1)) + 1
        if most > len(self.rows):
            self.rows = np.concatenate([self.rows, np.full(most - len(self.rows), -1)])
        new = np.unique(words[self.rows[words] < 0])
        self.rows[new] = self.count + np.arange(len(new))
        self.count += len(new)
        return self.rows[words]


class LayerSums:
    """What the geometry of a layer needs of the vectors so far."""

    def __init__(self, layer: str):
        self.layer = layer
        self.word_sums = np.zeros((0, 0))  # Σ u of each word
        self.word_counts = np.zeros(0)
        self.same_sentence = np.zeros((0, 2))  # of each word: Σ over sentences of |Σ u|² and of n²
        self.similarities: list[float] = []  # of each sentence: the mean cosine with its mean
        self.total = np.zeros(0)  # Σ x
        self.products = np.zeros((0, 0))  # Σ x xᵀ

    def add(self, vectors: np.ndarray, rows: np.ndarray, sentences: np.ndarray) -> None:
        """Adds vectors (N, D) of whole sentences: the row of each one's word, and the number of its sentence, from 0, in order."""
        if not self.products.size:
            dim = vectors.shape[1]
            self.word_sums, self.total, self.products = (
                np.zeros((0, dim), vectors.dtype),
                np.zeros(dim),
                np.zeros((dim, dim)),
            )
        self.grow(int(rows.max()) + 1)
        self.total += vectors.sum(0, dtype=np.float64)
        self.products += vectors.T @ vectors
        unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        words, sums, counts = group_sums(rows, unit)
        self.word_sums[words] += sums
        self.word_counts[words] += counts
        pairs, sums, counts = group_sums(rows * (int(sentences.max()) + 1) + sentences, unit)
        words = pairs // (int(sentences.max()) + 1)
        np.add.at(
            self.same_sentence, words, np.column_stack([np.square(sums, dtype=np.float64).sum(1), counts**2])
        )
        _, unit_sums, lengths = group_sums(sentences, unit)
        centres = group_sums(sentences, vectors)[1]
        norms = np.maximum(np.linalg.norm(centres, axis=1), 1e-12)
        self.similarities += (np.einsum("sd,sd->s", unit_sums, centres) / norms / lengths).tolist()

    def grow(self, words: int) -> None:
        """Makes space for the sums of so many words."""
        if words > len(self.word_counts):
            more = max(words, 2 * len(self.word_counts)) - len(self.word_counts)
            self.word_sums = np.concatenate(
                [self.word_sums, np.zeros((more, len(self.total)), self.word_sums.dtype)]
            )
            self.word_counts = np.concatenate([self.word_counts, np.zeros(more)])
            self.same_sentence = np.concatenate([self.same_sentence, np.zeros((more, 2))])

    def geometry(self) -> LayerGeometry:
        """The numbers over all vectors."""
        squares = np.square(self.word_sums, dtype=np.float64).sum(1)  # |Σ u|² of each word
        count = self.word_counts.sum()
        different = count**2 - np.square(self.word_counts).sum()
        if not different:
            raise DataError("all tokens are the same word: give a text with different words")
        everything = np.square(self.word_sums.sum(0, dtype=np.float64)).sum()
        anisotropy = float((everything - squares.sum()) / different)
        apart = (
            np.square(self.word_counts) - self.same_sentence[:, 1]
        )  # pairs of one word in different sentences
        some = apart > 0
        similar = (squares - self.same_sentence[:, 0])[some] / apart[some]
        centred = self.products - np.outer(self.total, self.total) / count
        return LayerGeometry(
            self.layer,
            anisotropy,
            float(similar.mean()) - anisotropy if some.any() else None,
            float(np.mean(self.similarities)) - anisotropy,
            first_share(centred),
            first_share(self.products),
        )


def group_sums(groups: np.ndarray, vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different groups in order, the sum of each one's vectors, and how many they are."""
    from scipy.sparse import csr_array

    names, which, counts = np.unique(groups, return_inverse=True, return_counts=True)
    ones = np.ones(len(groups), vectors.dtype)
    chosen = csr_array((ones, (which, np.arange(len(groups)))), shape=(len(names), len(groups)))
    return names, np.asarray(chosen @ vectors), counts.astype(np.float64)


def layer_geometry(
    layer: str, sentences: Sequence[np.ndarray], words: Sequence[Sequence[str]]
) -> LayerGeometry:
    """The geometry of one layer: a matrix (T, D) for each sentence, and its words."""
    if not sentences:
        raise DataError("no sentences: give at least one")
    numbers = {
        word: number
        for number, word in enumerate(dict.fromkeys(word for sentence in words for word in sentence))
    }
    sums = LayerSums(layer)
    sums.add(
        np.concatenate(sentences),
        np.array([numbers[word] for sentence in words for word in sentence]),
        np.repeat(np.arange(len(sentences)), [len(matrix) for matrix in sentences]),
    )
    return sums.geometry()


def first_share(products: np.ndarray) -> float:
    """σ₁² / Σσ² of a matrix, from its products Xᵀ X."""
    values = np.linalg.eigvalsh(products)
    return float(values[-1] / max(values.sum(), 1e-30))
