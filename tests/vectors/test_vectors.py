"""Queries equal gensim's, and a plain loop's; a matrix on the disk gives the same as one in memory."""

from pathlib import Path

import numpy as np
import pytest
from gensim.models import KeyedVectors

from seqloom.vectors import vectors as module
from seqloom.vectors.vectors import Vectors, similar_spellings


def some(count: int = 300, dim: int = 12, seed: int = 0) -> Vectors:
    rng = np.random.default_rng(seed)
    return Vectors(
        [f"word{number}" for number in range(count)],
        (rng.normal(size=(count, dim)) + 0.4).astype(np.float32),
    )


def peer(vectors: Vectors) -> KeyedVectors:
    keyed = KeyedVectors(vectors.dim)
    keyed.add_vectors(list(vectors.words), np.array(vectors.matrix))
    return keyed


def same(ours: list[tuple[str, float]], theirs: list[tuple[str, float]]) -> None:
    assert [word for word, _ in ours] == [word for word, _ in theirs]
    np.testing.assert_allclose(
        [score for _, score in ours], [score for _, score in theirs], rtol=1e-5, atol=1e-6
    )


def test_neighbours_and_similarity_equal_gensim():
    vectors = some()
    theirs = peer(vectors)
    for word in ("word0", "word7", "word299"):
        same(vectors.nearest(word, 9), theirs.most_similar(word, topn=9))
    expected = np.random.default_rng(5).normal(size=12).astype(np.float32)
    same(vectors.nearest(expected, 9), theirs.similar_by_vector(expected, topn=9))
    assert vectors.similarity("word3", "word9") == pytest.approx(
        float(theirs.similarity("word3", "word9")), abs=1e-6
    )


def test_analogies_and_the_odd_one_out_equal_gensim():
    vectors = some()
    theirs = peer(vectors)
    for a, b, c in (("word1", "word2", "word3"), ("word40", "word5", "word299")):
        same(vectors.analogy(a, b, c, 6), theirs.most_similar(positive=[b, c], negative=[a], topn=6))
        same(
            vectors.analogy(a, b, c, 6, "mul"),
            theirs.most_similar_cosmul(positive=[b, c], negative=[a], topn=6),
        )
    for first in range(0, 40, 5):
        words = [f"word{number}" for number in range(first, first + 5)]
        assert vectors.odd_one_out(words) == theirs.doesnt_match(words)


def test_the_dot_product_is_a_similarity_too():
    """A long vector is nearer by the dot product than by the cosine; both orders are those of a plain loop."""
    vectors = Vectors(
        ["a", "long", "alike", "away"], np.array([[1, 0], [5, 5], [2, 0.1], [-1, 0]], dtype=np.float32)
    )
    assert [word for word, _ in vectors.nearest("a", by="dot")] == ["long", "alike", "away"]
    assert [word for word, _ in vectors.nearest("a")] == ["alike", "long", "away"]
    assert dict(vectors.nearest("a", by="dot"))["long"] == 5


@pytest.mark.parametrize("block", [12 * 7, 12 * 300, 1 << 22])
def test_blocks_and_many_queries_change_nothing(block: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The rows on a memory map, in blocks of any size, queries in several passes: what one product and a full sort give."""
    vectors = some()
    np.save(tmp_path / "m.npy", vectors.matrix)
    mapped = Vectors(vectors.words, np.load(tmp_path / "m.npy", mmap_mode="r"))
    monkeypatch.setattr(module, "BLOCK", block)
    monkeypatch.setattr(module, "MAX_QUERIES", 4)
    excluded = [[row, 299] for row in range(10)]
    rows, scores = mapped.neighbours(vectors.matrix[:10], 8, excluded)
    units = vectors.matrix.astype(np.float64) / np.linalg.norm(vectors.matrix, axis=1, keepdims=True)
    every = units[:10] @ units.T
    for query, hidden in enumerate(excluded):
        every[query, hidden] = -2
    np.testing.assert_array_equal(rows, np.argsort(-every, axis=1)[:, :8])
    np.testing.assert_allclose(scores, np.sort(every, axis=1)[:, ::-1][:, :8], atol=1e-6)
    for method in ("add", "mul"):
        same(
            mapped.analogy("word1", "word2", "word3", 5, method),
            vectors.analogy("word1", "word2", "word3", 5, method),
        )


def test_fewer_words_than_asked_for_come_all():
    vectors = some(4)
    assert sorted(word for word, _ in vectors.nearest("word1", 10)) == ["word0", "word2", "word3"]
    assert [word for word, _ in vectors.analogy("word0", "word1", "word2", 10)] == ["word3"]


def test_a_vector_of_zeros_is_like_nothing():
    vectors = Vectors(["zero", "one", "two"], np.array([[0, 0], [1, 0], [0.5, 0.5]], dtype=np.float32))
    assert vectors.similarity("zero", "one") == 0
    assert [score for _, score in vectors.nearest("zero")] == [0, 0]


@pytest.mark.parametrize("components", [0, 1, 3])
def test_centring_removes_the_mean_and_leading_components(components: int):
    vectors = some()
    x = vectors.matrix.astype(np.float64) - vectors.matrix.astype(np.float64).mean(0)
    _, _, directions = np.linalg.svd(x, full_matrices=False)
    leading = directions[:components]
    np.testing.assert_allclose(
        vectors.all_but_the_top(components).matrix, x - x @ leading.T @ leading, atol=1e-4
    )


def test_of_equal_words_the_first_counts():
    vectors = Vectors(["a", "b", "a"], np.eye(3, dtype=np.float32))
    assert vectors.row("a") == 0 and vectors["a"].tolist() == [1, 0, 0]


def test_an_unknown_word_gets_near_spellings():
    vectors = Vectors(["river", "rivers", "Paris", "bank"], np.eye(4, dtype=np.float32))
    with pytest.raises(ValueError, match=r"no vector for 'rivr'; near spellings: river, rivers"):
        vectors.nearest("rivr")
    with pytest.raises(ValueError, match="Paris"):
        vectors["paris"]
    with pytest.raises(ValueError, match="no word is spelt like it"):
        vectors.similarity("river", "xylophone")
    assert similar_spellings("bnak", vectors.words) == ["bank"]


@pytest.mark.parametrize(
    "wrong, sentence",
    [
        (lambda v: v.nearest("word1", 0), "one neighbour or more"),
        (lambda v: v.neighbours(np.zeros((2, 5))), "size 12"),
        (lambda v: v.all_but_the_top(12), "0 to 11"),
        (lambda v: v.odd_one_out(["word1", "word2"]), "three words"),
        (lambda v: Vectors(["a"], np.zeros((2, 3))), "as many rows"),
        (lambda v: Vectors([], np.zeros((0, 3))), "the list of words is empty"),
    ],
)
def test_mistakes_are_sentences(wrong, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        wrong(some())
