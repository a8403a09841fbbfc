"""The vocabulary and the encoded corpus equal what a plain loop in Python gives."""

import gzip
from collections import Counter
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.text.corpus import Lines
from seqloom.vectors import vocabulary
from seqloom.vectors.vocabulary import Vocabulary, encode, sentences

TEXT = ["the cat saw the dog", "", "the dog ran", "a cat"]


def test_words_stand_by_falling_count_and_ties_by_appearance():
    vocab = Vocabulary.build(TEXT, min_count=1)
    assert vocab.words == ["the", "cat", "dog", "saw", "ran", "a"]
    assert vocab.counts.tolist() == [3, 2, 2, 1, 1, 1]
    assert vocab.index["dog"] == 2 and len(vocab) == 6 and vocab.total == vocab.corpus_words == 10


def test_minimum_and_most_cut_the_rare_words():
    assert Vocabulary.build(TEXT, min_count=2).words == ["the", "cat", "dog"]
    both = Vocabulary.build(TEXT, min_count=2, max_size=2)
    assert both.words == ["the", "cat"] and both.total == 5 and both.corpus_words == 10


@given(st.lists(st.lists(st.sampled_from("abcdefg"), max_size=6), min_size=1, max_size=40), st.integers(1, 4))
def test_ids_are_the_kept_words_of_each_sentence(corpus: list[list[str]], minimum: int):
    kept = {
        word for word, count in Counter(word for one in corpus for word in one).items() if count >= minimum
    }
    if not kept:
        return
    vocab = Vocabulary.build(corpus, minimum)
    ids, starts = encode(corpus, vocab)
    back = [[vocab.words[i] for i in ids[a:b]] for a, b in pairwise(starts)]
    assert set(vocab.words) == kept
    assert back == [rest for one in corpus if (rest := [word for word in one if word in kept])]


def test_files_readers_and_lists_are_the_same_corpus(tmp_path: Path):
    path, packed = tmp_path / "a.txt", tmp_path / "a.txt.gz"
    path.write_text("\n".join(TEXT), encoding="utf-8")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    lists = [line.split() for line in TEXT if line]
    for source in (path, str(path), [path], packed, Lines([path]), TEXT, [line.split() for line in TEXT]):
        assert list(sentences(source)) == lists
    assert list(sentences([path, packed])) == lists * 2


def test_a_large_corpus_lies_on_the_disk_and_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    corpus = [["a", "b", "c"][: 1 + i % 3] for i in range(5000)]
    vocab = Vocabulary.build(corpus, 1)
    plain = encode(corpus, vocab)
    monkeypatch.setattr(vocabulary, "IN_MEMORY", 100)
    monkeypatch.setattr(vocabulary, "GROUP", 64)
    mapped = encode(corpus, vocab, tmp_path / "cache")
    assert isinstance(mapped.ids, np.memmap) and isinstance(mapped.starts, np.memmap)
    assert np.array_equal(plain.ids, mapped.ids) and np.array_equal(plain.starts, mapped.starts)
    assert list((tmp_path / "cache").iterdir()) == []  # the file has no name


def test_a_line_without_end_is_read_in_pieces(tmp_path: Path):
    path = tmp_path / "long.txt"
    path.write_text("word " * 500_000, encoding="utf-8")
    pieces = list(sentences(path))
    assert (
        1 < len(pieces) < 5
        and sum(map(len, pieces)) == 500_000
        and {word for one in pieces for word in one} == {"word"}
    )


@pytest.mark.parametrize("corpus", [[], ["", "  "], [[]]])
def test_no_words_is_one_sentence(corpus: list):
    with pytest.raises(ValueError, match="the corpus has no words; give text"):
        Vocabulary.build(corpus)


def test_a_minimum_too_high_says_so():
    with pytest.raises(
        ValueError, match=r"no word occurs 4 times \(the most frequent, 'the', has 3\); lower --min-count"
    ):
        Vocabulary.build(TEXT, min_count=4)
    with pytest.raises(ValueError, match="give at least 1"):
        Vocabulary.build(TEXT, min_count=0)


def test_a_binary_file_says_so(tmp_path: Path):
    path = tmp_path / "image"
    path.write_bytes(b"\x00\x01\x02" * 100)
    with pytest.raises(ValueError, match="binary file"):
        Vocabulary.build(path)
