"""CKA against its definition, and the geometry of vectors against plain loops."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.decomposition import PCA

from seqloom.errors import UserError
from seqloom.inspect.representation_similarity import compare_layers, kernel_cka, linear_cka, rbf_gram
from seqloom.inspect.vector_geometry import LayerSums, WordTable, layer_geometry

RANDOM = np.random.RandomState(1337)
X = RANDOM.randn(100, 10)
Y = RANDOM.randn(100, 10) + X


def biased_by_definition(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
    n = len(k)
    h = np.eye(n) - 1 / n

    def hsic(a: np.ndarray, b: np.ndarray) -> float:
        return np.trace(a @ h @ b @ h) / (n - 1) ** 2

    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def debiased_by_definition(k: np.ndarray, l: np.ndarray) -> float:  # noqa: E741
    """The unbiased HSIC of Song et al., by sums over tuples of distinct examples, as its definition has it."""
    n = len(k)

    def hsic(a: np.ndarray, b: np.ndarray) -> float:
        total = 0.0
        for i in range(n):
            for j in range(n):
                if i != j:
                    total += a[i, j] * b[i, j] / (n * (n - 1))
                    for q in range(n):
                        if q not in (i, j):
                            total -= 2 * a[i, j] * b[i, q] / (n * (n - 1) * (n - 2))
                            for r in range(n):
                                if r not in (i, j, q):
                                    total += a[i, j] * b[q, r] / (n * (n - 1) * (n - 2) * (n - 3))
        return total

    return hsic(k, l) / np.sqrt(hsic(k, k) * hsic(l, l))


def test_biased_cka_is_its_definition():
    assert linear_cka(X, Y, "biased") == pytest.approx(biased_by_definition(X @ X.T, Y @ Y.T), abs=1e-10)
    assert kernel_cka(X @ X.T, Y @ Y.T, "biased") == pytest.approx(linear_cka(X, Y, "biased"), abs=1e-10)
    assert kernel_cka(rbf_gram(X), rbf_gram(Y), "biased") == pytest.approx(
        biased_by_definition(rbf_gram(X), rbf_gram(Y)), abs=1e-10
    )


def test_cka_is_that_of_the_authors_demo():
    """The numbers that the demo of Kornblith et al. prints for these two matrices (representation_similarity/Demo.ipynb)."""
    assert round(linear_cka(X, Y, "biased"), 5) == 0.55761
    assert round(kernel_cka(rbf_gram(X), rbf_gram(Y), "biased"), 5) == 0.65483
    assert round(linear_cka(X, Y, "debiased"), 5) == 0.51346
    assert round(kernel_cka(X @ X.T, Y @ Y.T, "debiased"), 5) == 0.51346


def test_debiased_cka_is_the_unbiased_estimate():
    x, y = X[:9], Y[:9]
    assert kernel_cka(x @ x.T, y @ y.T) == pytest.approx(debiased_by_definition(x @ x.T, y @ y.T), abs=1e-10)
    assert linear_cka(X, Y) == pytest.approx(kernel_cka(X @ X.T, Y @ Y.T), abs=1e-10)


def test_debiased_and_biased_are_different_numbers():
    """Of unrelated vectors with more features than examples the biased number is high, the debiased one near 0."""
    random = np.random.default_rng(0)
    x, y = random.normal(size=(50, 500)), random.normal(size=(50, 500))
    assert linear_cka(x, y, "biased") > 0.85 and abs(linear_cka(x, y)) < 0.1


@pytest.mark.parametrize("estimate", ["biased", "debiased"])
def test_rotation_and_scale_change_nothing(estimate):
    rotation, _ = np.linalg.qr(np.random.default_rng(1).normal(size=(10, 10)))
    assert linear_cka(7 * X @ rotation, Y, estimate) == pytest.approx(linear_cka(X, Y, estimate), abs=1e-6)
    assert linear_cka(X, X, estimate) == pytest.approx(1)
    stretched = X * np.arange(1, 11)
    assert abs(linear_cka(stretched, Y, estimate) - linear_cka(X, Y, estimate)) > 1e-3  # other linear maps do


def test_geometry_is_that_of_plain_loops():
    random = np.random.default_rng(2)
    words = [["a", "b", "a", "c"], ["b", "c"], ["a", "d", "b"]]
    sentences = [random.normal(size=(len(sentence), 6)) + 1 for sentence in words]
    found = layer_geometry("x", sentences, words)

    def cosine(u: np.ndarray, v: np.ndarray) -> float:
        return u @ v / np.linalg.norm(u) / np.linalg.norm(v)

    where = [(s, t) for s, sentence in enumerate(words) for t in range(len(sentence))]
    pairs = [
        cosine(sentences[a][i], sentences[b][j])
        for a, i in where
        for b, j in where
        if words[a][i] != words[b][j]
    ]
    assert found.anisotropy == pytest.approx(np.mean(pairs), abs=1e-9)
    same = {
        word: [
            cosine(sentences[a][i], sentences[b][j])
            for a, i in where
            for b, j in where
            if words[a][i] == words[b][j] == word and a != b
        ]
        for word in "abcd"
    }
    expected = np.mean([np.mean(cosines) for cosines in same.values() if cosines])
    assert found.self_similarity + found.anisotropy == pytest.approx(expected, abs=1e-9)
    intra = np.mean([np.mean([cosine(row, matrix.mean(0)) for row in matrix]) for matrix in sentences])
    assert found.intra_sentence_similarity + found.anisotropy == pytest.approx(intra, abs=1e-9)
    everything = np.concatenate(sentences)
    assert found.variance_explained == pytest.approx(PCA(1).fit(everything).explained_variance_ratio_[0])
    singular = np.linalg.svd(everything, compute_uv=False)
    assert found.origin_variance_explained == pytest.approx(singular[0] ** 2 / np.square(singular).sum())


def test_geometry_of_blocks_is_that_of_the_text_and_keeps_no_vectors():
    random = np.random.default_rng(3)
    words = [random.integers(0, 40, random.integers(2, 9)) for _ in range(300)]
    sentences = [random.normal(size=(len(sentence), 5)) + sentence[:, None] / 30 for sentence in words]
    whole = layer_geometry("x", sentences, [list(map(str, sentence)) for sentence in words])
    table, sums = WordTable(), LayerSums("x")
    for start in range(0, 300, 7):
        part = slice(start, start + 7)
        rows = table.find(np.concatenate(words[part]) * 3)  # ids need not be dense
        sums.add(
            np.concatenate(sentences[part]),
            rows,
            np.repeat(np.arange(len(words[part])), [len(one) for one in words[part]]),
        )
    found = sums.geometry()
    for name, value in whole.to_dict().items():
        assert found.to_dict()[name] == (value if name == "layer" else pytest.approx(value, abs=1e-10))
    assert table.count == 40 and sums.word_sums.shape[0] < 80  # by words, not by tokens


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
@pytest.mark.parametrize("estimate", ["biased", "debiased"])
def test_layers_are_compared_by_the_named_kernel_and_estimate(kernel, estimate):
    found = compare_layers({"x": X, "y": Y}, {"y": 3 * Y[:, ::-1]}, estimate, kernel)
    grams = [rbf_gram(one) if kernel == "rbf" else one @ one.T for one in (X, Y)]
    assert found.cka[0, 0] == pytest.approx(kernel_cka(grams[0], grams[1], estimate), abs=1e-9)
    assert found.cka[1, 0] == pytest.approx(1, abs=1e-6)  # a permutation of coordinates is a rotation
    assert (found.kernel, found.estimate, found.examples) == (kernel, estimate, 100)


def test_the_rbf_kernel_has_a_limit():
    with pytest.raises(UserError, match="all pairs of texts"):
        compare_layers({"x": np.zeros((2001, 2))}, {"x": np.zeros((2001, 2))}, "biased", "rbf")
