"""The geometry of contextual vectors, layer by layer (Ethayarajh)   [K1]

For vectors of tokens in sentences:
- anisotropy: the mean cosine of vectors of different words; 0 if directions are spread evenly;
- self-similarity: the mean cosine of one word's vectors in different sentences, minus the anisotropy;
- intra-sentence similarity: the mean cosine of a sentence's token vectors with their mean, minus the anisotropy;
- variance explained: the share of the first component. About the mean, as principal component analysis has it, and about the origin,
  σ₁² / Σσ², which counts the mean itself: of anisotropic vectors the two differ by orders of magnitude.
"""

from __future__ import annotations

from collections import defaultdict
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


def layer_geometry(
    layer: str,
    sentences: Sequence[np.ndarray],
    words: Sequence[Sequence[str]],
    pairs: int = 1000,
    seed: int = 0,
) -> LayerGeometry:
    """The geometry of one layer: a matrix (T, D) for each sentence, and its words. Anisotropy is estimated from `pairs` pairs of words
    drawn with the seed."""
    if not sentences:
        raise DataError("no sentences: give at least one")
    vectors = np.concatenate(sentences).astype(np.float64)
    unit = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
    tokens = [word for sentence in words for word in sentence]
    baseline = mean_cosine_of_pairs(unit, np.array(tokens), pairs, seed)
    similar = self_similarity(unit, tokens, [len(sentence) for sentence in words])
    return LayerGeometry(
        layer,
        baseline,
        None if similar is None else similar - baseline,
        intra_sentence_similarity(unit, vectors, [len(matrix) for matrix in sentences]) - baseline,
        first_component(vectors - vectors.mean(0)),
        first_component(vectors),
    )


def mean_cosine_of_pairs(unit: np.ndarray, tokens: np.ndarray, pairs: int, seed: int) -> float:
    """The mean cosine of vectors of two different words."""
    random = np.random.default_rng(seed)
    first, second = random.integers(len(unit), size=(2, 4 * pairs))
    different = np.nonzero(tokens[first] != tokens[second])[0][:pairs]
    if not len(different):
        raise DataError("all tokens are the same word: give a text with different words")
    return float(np.einsum("nd,nd->n", unit[first[different]], unit[second[different]]).mean())


def self_similarity(unit: np.ndarray, tokens: Sequence[str], lengths: Sequence[int]) -> float | None:
    """The mean over words of the mean cosine of a word's vectors in different sentences.

    Σ over pairs of cosines is |Σ u|² minus the pairs within one sentence, so no pair is visited.
    """
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    positions: dict[str, list[int]] = defaultdict(list)
    for position, token in enumerate(tokens):
        positions[token].append(position)
    means = []
    for found in positions.values():
        groups = sentence[found]
        sums = np.array([unit[np.array(found)[groups == group]].sum(0) for group in np.unique(groups)])
        counts = np.array([(groups == group).sum() for group in np.unique(groups)])
        pairs = counts.sum() ** 2 - np.square(counts).sum()
        if pairs:
            means.append((np.square(sums.sum(0)).sum() - np.square(sums).sum()) / pairs)
    return float(np.mean(means)) if means else None


def intra_sentence_similarity(unit: np.ndarray, vectors: np.ndarray, lengths: Sequence[int]) -> float:
    """The mean over sentences of the mean cosine of its vectors with their mean."""
    means = []
    start = 0
    for length in lengths:
        centre = vectors[start : start + length].mean(0)
        means.append((unit[start : start + length] @ (centre / max(np.linalg.norm(centre), 1e-12))).mean())
        start += length
    return float(np.mean(means))


def first_component(matrix: np.ndarray) -> float:
    """σ₁² / Σσ²."""
    values = np.linalg.eigvalsh(matrix.T @ matrix)
    return float(values[-1] / max(values.sum(), 1e-30))
