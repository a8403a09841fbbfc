"""Vectors from counts without training: PMI and its leading singular vectors [A6, A7].

Left out: the PMI of unseen pairs, which is −∞. The sparse matrix has 0 there, as positive PMI has.
"""

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.linalg import svds

from seqloom.errors import DataError


def pmi(counts: csr_array, smoothing: float = 1.0) -> csr_array:
    """PMI(w, c) = log P(w, c) / (P(w) P(c)) for each pair with a count; other cells are empty [A6].

    P(c) = n_c^α / Σ n^α with α = `smoothing`: below 1 (usually 0.75), rare contexts get a larger probability
    and their pairs a smaller PMI.
    """
    counts = csr_array(counts, dtype=np.float64)
    if not counts.nnz or counts.data.min() <= 0:
        raise DataError("PMI needs counts above 0; count a longer text, and eliminate stored zeros")
    pairs = counts.data / counts.data.sum()
    words = counts.sum(1) / counts.data.sum()
    contexts = counts.sum(0) ** smoothing
    contexts /= contexts.sum()
    rows = np.repeat(words, np.diff(counts.indptr))
    return csr_array(
        (np.log(pairs / (rows * contexts[counts.indices])), counts.indices, counts.indptr), counts.shape
    )


def ppmi(counts: csr_array, shift: float = 1.0, smoothing: float = 1.0) -> csr_array:
    """max(0, PMI(w, c) − log k), k = `shift`: the matrix that word2vec with k negatives factorizes [A6]."""
    if not shift > 0:
        raise DataError(
            f"a shift of {shift} has no logarithm; give 1 for no shift, or the number of negative samples"
        )
    positive = pmi(counts, smoothing).copy()  # the PMI shares its column indices with `counts`
    positive.data = np.maximum(positive.data - np.log(shift), 0)
    positive.eliminate_zeros()
    return positive


def svd(
    matrix: csr_array, dim: int = 100, power: float = 0.5, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """The best approximation of rank `dim`, M ≈ U Σ Vᵀ: word vectors U Σ^p and the singular values [A7].

    p = 1 preserves the products of M's rows, p = 0 weights all directions equally, p = 1/2 divides Σ between
    words and contexts. The entry of largest magnitude in each column is positive, so that equal matrices have
    equal vectors.
    """
    rank = min(matrix.shape)
    if not 0 < dim < rank:
        raise DataError(
            f"a matrix of {matrix.shape[0]} × {matrix.shape[1]} has no {dim} leading singular vectors; "
            f"give 1 to {rank - 1}"
        )
    start = np.random.default_rng(seed).normal(size=rank)
    left, values, _ = svds(matrix.astype(np.float64), dim, v0=start)
    order = np.argsort(-values)
    left, values = left[:, order], values[order]
    left *= np.sign(left[abs(left).argmax(0), np.arange(dim)])
    return left * values**power, values
