"""Counts equal counting by hand: dense loops over every pair of words, whatever memory and threads."""

import errno
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import NoRoom
from seqloom.vectors import counts
from seqloom.vectors.counts import (
    Cooccurrences,
    bag_of_words,
    cooccurrences,
    inverse_distance,
    one_hot,
    tf_idf,
    uniform_weight,
)
from seqloom.vectors.vocabulary import Corpus, Vocabulary, encode


def corpus(sentences: list[list[int]]) -> Corpus:
    starts = np.cumsum([0, *map(len, sentences)]).astype(np.int64)
    return Corpus(np.array([word for sentence in sentences for word in sentence], np.int32), starts)


def draw(words: int, size: int, longest: int, seed: int = 0) -> Corpus:
    """Sentences of 0 to `longest` words, low ids more frequent."""
    random = np.random.default_rng(seed)
    ids = (size * random.random(words) ** 3).astype(np.int32)
    lengths = random.integers(0, longest + 1, words)
    ends = np.cumsum(lengths)
    return Corpus(ids, np.concatenate([[0], ends[ends < words], [words]]).astype(np.int64))


def by_hand(corpus: Corpus, size: int, window: int, weight, side: str) -> np.ndarray:
    """Every pair of positions of every sentence, one at a time."""
    total = np.zeros((size, size))
    for begin, end in zip(corpus.starts, corpus.starts[1:], strict=False):
        for i in range(begin, end):
            for j in range(max(begin, i - window), min(end, i + window + 1)):
                if (j < i and side != "right") or (j > i and side != "left"):
                    total[corpus.ids[i], corpus.ids[j]] += weight(abs(i - j))
    return total


def test_x26_hello_in_one_hot_vectors():
    """[A1, X26]"""
    index = {letter: row for row, letter in enumerate("helo")}
    np.testing.assert_array_equal(one_hot(np.arange(4), 4).toarray(), np.eye(4))
    hello = one_hot(np.array([index[letter] for letter in "hello"]), 4).toarray()
    np.testing.assert_array_equal(
        hello, [[1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0], [0, 0, 1, 0], [0, 0, 0, 1]]
    )
    table = np.random.default_rng(0).random((4, 3))
    np.testing.assert_array_equal(hello @ table, table[[0, 1, 2, 2, 3]])  # [A2]
    with pytest.raises(ValueError, match="ids from 0 to 4 do not fit 4 words"):
        one_hot(np.array([0, 4]), 4)


def test_bag_of_words_counts_each_word_of_each_document():
    words = ["dog", "cat", "sees", "the"]
    documents = [["the", "dog", "sees", "the", "cat"], [], ["bird", "Dog", "cat", "cat"]]
    expected = [[document.count(word) for word in words] for document in documents]
    np.testing.assert_array_equal(bag_of_words(documents, words).toarray(), expected)


def test_tf_idf_equals_its_formula():
    count = np.array([[3, 0, 1, 0], [0, 0, 2, 0], [1, 1, 1, 0]])
    expected = np.zeros(count.shape)
    for d in range(3):
        for w in range(4):
            expected[d, w] = count[d, w] * (math.log((1 + 3) / (1 + (count[:, w] > 0).sum())) + 1)
        expected[d] /= math.sqrt((expected[d] ** 2).sum())
    np.testing.assert_allclose(tf_idf(counts.csr_array(count)).toarray(), expected, rtol=1e-12)


def test_a_window_of_the_lecture_is_clipped_at_the_sentence():
    """[A8] a b c | d: with a window of 1, b sees a and c, and nobody sees d."""
    cells = cooccurrences(corpus([[0, 1, 2], [3]]), 4, window=1, weight=uniform_weight)
    np.testing.assert_array_equal(
        cells.matrix().toarray(), [[0, 1, 0, 0], [1, 0, 1, 0], [0, 1, 0, 0], [0, 0, 0, 0]]
    )


@pytest.mark.parametrize("side", ["both", "left", "right"])
@pytest.mark.parametrize("weight", [uniform_weight, inverse_distance])
@pytest.mark.parametrize("longest", [0, 7, 100_000])
def test_equals_counting_by_hand_whatever_the_memory(side: str, weight, longest: int, tmp_path: Path):
    text = draw(9000, 70, longest or 1, seed=longest)
    expected = by_hand(text, 70, 4, weight, side)
    for memory, threads in ((1 << 30, 1), (56_000, 1), (80_000, 3)):
        cells = cooccurrences(text, 70, 4, weight, side, memory, threads, tmp_path / f"{memory}")
        np.testing.assert_allclose(
            cells.matrix().toarray(), expected, rtol=0 if weight is uniform_weight else 1e-12, atol=0
        )
        for row in range(70):
            assert (np.diff(cells.columns[cells.starts[row] : cells.starts[row + 1]]) > 0).all()
        assert (cells.values > 0).all()
        for ours, kept in zip(cells, Cooccurrences.open(tmp_path / f"{memory}"), strict=True):
            np.testing.assert_array_equal(ours, kept)


def test_small_memory_really_cuts_the_corpus(monkeypatch: pytest.MonkeyPatch):
    pieces = []
    count = counts._count
    monkeypatch.setattr(
        counts,
        "_count",
        lambda corpus, begin, end, *rest: pieces.append(end - begin) or count(corpus, begin, end, *rest),
    )
    cooccurrences(draw(9000, 70, 7), 70, 4, memory=56_000, threads=1)
    assert len(pieces) > 1 and sum(pieces) == 9000 and max(pieces) * 12 < 56_000


@given(
    st.lists(st.lists(st.integers(0, 4), max_size=8), max_size=12),
    st.integers(1, 10),
    st.sampled_from(["both", "left", "right"]),
)
@settings(max_examples=60, deadline=None)
def test_any_small_corpus(sentences: list[list[int]], window: int, side: str):
    text = corpus(sentences)
    np.testing.assert_array_equal(
        cooccurrences(text, 5, window, uniform_weight, side).matrix().toarray(),
        by_hand(text, 5, window, uniform_weight, side),
    )


def test_a_large_vocabulary_keeps_its_columns_apart():
    """Columns beyond 64 · 64 use every level of the index."""
    text = draw(20_000, 9000, 30, seed=1)
    expected: Counter[tuple[int, int]] = Counter()
    for begin, end in zip(text.starts, text.starts[1:], strict=False):
        sentence = text.ids[begin:end].tolist()
        for i, word in enumerate(sentence):
            expected.update((word, other) for other in sentence[max(0, i - 3) : i] + sentence[i + 1 : i + 4])
    found = cooccurrences(text, 9000, 3, uniform_weight, memory=1_500_000).matrix().tocoo()
    assert (
        dict(zip(zip(found.row.tolist(), found.col.tolist(), strict=True), found.data.tolist(), strict=True))
        == expected
    )


def test_the_matrix_is_no_copy():
    cells = cooccurrences(draw(500, 70, 7), 70)
    assert np.shares_memory(cells.matrix().indices, cells.columns) and np.shares_memory(
        cells.matrix().data, cells.values
    )


def test_from_text(text: Path):
    vocabulary = Vocabulary.build(text, min_count=1)
    counted = cooccurrences(encode(text, vocabulary), len(vocabulary), 2, uniform_weight).matrix().toarray()
    lines = [line.split() for line in text.read_text("utf-8").splitlines()]
    near = sum(
        1
        for line in lines
        for i, word in enumerate(line)
        if word == "king"
        for other in line[max(0, i - 2) : i + 3]
        if other == "queen"
    )
    assert counted[vocabulary.index["king"], vocabulary.index["queen"]] == near > 0


@pytest.mark.parametrize(
    "options, sentence",
    [
        ({"memory": 10_000}, "10,000 bytes of memory are too few to count 70 words; give at least"),
        ({"window": 0}, "give a window of 1 or more"),
        ({"weight": lambda d: 2 - d}, "weights above 0"),
        ({"side": "up"}, "give 'both', 'left' or 'right'"),
        ({"threads": 0}, "give at least 1"),
        ({"size": 60}, "do not fit 60 words"),
    ],
)
def test_what_cannot_be_counted_is_a_sentence(options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        cooccurrences(draw(5000, 70, 7), **{"size": 70, "window": 4} | options)


def test_the_least_memory_it_asks_for_suffices():
    text = draw(5000, 70, 7)
    with pytest.raises(ValueError, match="give at least") as error:
        cooccurrences(text, 70, 4, memory=1)
    least = int(str(error.value).split()[-1].replace(",", ""))
    np.testing.assert_allclose(
        cooccurrences(text, 70, 4, memory=least).matrix().toarray(),
        by_hand(text, 70, 4, inverse_distance, "both"),
        rtol=1e-12,
    )


def test_a_full_disk_is_a_sentence_and_leaves_no_finished_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    cooccurrences(draw(500, 70, 7), 70, folder=tmp_path)

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("seqloom.vectors.count_writer.append", full)
    with pytest.raises(NoRoom, match="the counts cannot be written: the disk is full"):
        cooccurrences(draw(500, 70, 7), 70, folder=tmp_path)
    with pytest.raises(ValueError, match="no finished counts here"):
        Cooccurrences.open(tmp_path)


def test_counts_of_a_broken_folder_are_refused(tmp_path: Path):
    cooccurrences(draw(500, 70, 7), 70, folder=tmp_path)
    with open(tmp_path / counts.VALUES, "r+b") as file:
        file.truncate(80)
    with pytest.raises(ValueError, match="do not fit each other; count again"):
        Cooccurrences.open(tmp_path)
