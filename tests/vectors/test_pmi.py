"""PMI and SVD equal their definitions, computed densely."""

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import csr_array

from seqloom.vectors.counts import cooccurrences, uniform_weight
from seqloom.vectors.pmi import pmi, ppmi, svd
from seqloom.vectors.vocabulary import Vocabulary, encode


@pytest.fixture
def counts(text: Path) -> csr_array:
    vocabulary = Vocabulary.build(text, min_count=1)
    return cooccurrences(
        encode(text, vocabulary), len(vocabulary), 1, uniform_weight, side="left"
    ).matrix()  # directed: rows differ from columns


def by_hand(counts: np.ndarray, smoothing: float) -> np.ndarray:
    """Cell by cell from probabilities."""
    n = counts.sum()
    contexts = [column.sum() ** smoothing for column in counts.T]
    found = np.full(counts.shape, -math.inf)
    for w in range(len(counts)):
        for c in range(len(counts)):
            if counts[w, c]:
                found[w, c] = math.log(
                    (counts[w, c] / n) / ((counts[w].sum() / n) * (contexts[c] / sum(contexts)))
                )
    return found


@pytest.mark.parametrize("smoothing", [1.0, 0.75])
def test_pmi(counts: csr_array, smoothing: float):
    dense = counts.toarray()
    assert not np.array_equal(dense, dense.T)
    expected = by_hand(dense, smoothing)
    np.testing.assert_allclose(
        pmi(counts, smoothing).toarray(), np.where(np.isinf(expected), 0, expected), rtol=1e-10, atol=1e-12
    )


@pytest.mark.parametrize("shift, smoothing", [(1.0, 1.0), (2.0, 0.75), (0.5, 1.0)])
def test_positive_pmi_cuts_at_zero(counts: csr_array, shift: float, smoothing: float):
    before = counts.toarray()
    found = ppmi(counts, shift, smoothing)
    np.testing.assert_allclose(
        found.toarray(), np.maximum(by_hand(before, smoothing) - math.log(shift), 0), rtol=1e-10, atol=1e-12
    )
    assert (found.data > 0).all() and 0 < found.nnz < counts.nnz + (shift <= 1)
    np.testing.assert_array_equal(counts.toarray(), before)


def test_independent_words_have_no_information():
    """P(w, c) = P(w) P(c): PMI is 0 everywhere."""
    np.testing.assert_allclose(pmi(csr_array(np.outer([1.0, 2, 5], [3.0, 1, 2]))).toarray(), 0, atol=1e-12)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
def test_svd(counts: csr_array, power: float):
    matrix = ppmi(counts)
    vectors, values = svd(matrix, 6, power)
    left, expected, _ = np.linalg.svd(matrix.toarray())
    np.testing.assert_allclose(values, expected[:6], rtol=1e-9)
    np.testing.assert_allclose(
        abs(vectors), abs(left[:, :6] * expected[:6] ** power), atol=1e-8
    )  # up to signs
    assert (vectors[abs(vectors).argmax(0), np.arange(6)] > 0).all()
    np.testing.assert_allclose(svd(matrix, 6, power, seed=1)[0], vectors, atol=1e-8)


def test_words_of_one_kind_come_close(tmp_path: Path):
    """The distributional hypothesis on a text of two kinds: nouns meet articles, verbs meet adverbs."""
    kinds = {"the a this": "dog cat king queen", "often never soon": "sees hears finds meets"}
    random = np.random.default_rng(0)
    lines = []
    for _ in range(500):
        before, after = list(kinds.items())[random.integers(2)]
        lines.append(f"{random.choice(before.split())} {random.choice(after.split())}".split())
    vocabulary = Vocabulary.build(lines, min_count=1)
    vectors, _ = svd(
        ppmi(cooccurrences(encode(lines, vocabulary), len(vocabulary), 1, uniform_weight).matrix()), 4
    )
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    dog, cat, sees = (vectors[vocabulary.index[word]] for word in ("dog", "cat", "sees"))
    assert dog @ cat > 0.9 > 0.1 > abs(dog @ sees)


def test_what_cannot_be_computed_is_a_sentence(counts: csr_array):
    with pytest.raises(ValueError, match="PMI needs counts above 0"):
        pmi(csr_array((3, 3)))
    with pytest.raises(ValueError, match="a shift of 0 has no logarithm"):
        ppmi(counts, shift=0)
    with pytest.raises(ValueError, match="has no 17 leading singular vectors; give 1 to 16"):
        svd(counts, 17)
