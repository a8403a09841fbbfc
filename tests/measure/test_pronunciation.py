"""Error rates against the definition of edit distance, word by word, and against jiwer."""

import random
from functools import cache

import jiwer
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seqloom.measure.pronunciation import distance, pronunciation

PHONEMES = st.lists(st.sampled_from(["AH0", "L", "OW1", "K"]), max_size=6)


def literal(a: list[str], b: list[str]) -> int:
    """The fewest edits by trying each: drop a's first, put b's first, or go on with both."""

    @cache
    def walk(i: int, j: int) -> int:
        if i == len(a) or j == len(b):
            return len(a) - i + len(b) - j
        return min(1 + walk(i + 1, j), 1 + walk(i, j + 1), (a[i] != b[j]) + walk(i + 1, j + 1))

    return walk(0, 0)


@given(PHONEMES, PHONEMES)
def test_the_distance_is_the_fewest_edits(a: list[str], b: list[str]) -> None:
    assert distance(a, b) == literal(a, b) == distance(b, a)


def test_the_rates_by_hand() -> None:
    """read: 2 of its 3 phonemes right against the closer of two; cat right; dog with one too many."""
    sources = ["read", "cat", "read", "dog"]
    outputs = ["R EH1 K", "K AE1 T", "R EH1 K", "D AO1 G Z"]
    references = ["R IY1 D", "K AE1 T", "R EH1 D", "D AO1 G"]
    phonemes, words = pronunciation(sources, outputs, references, {"data": "x"})
    assert phonemes.value == pytest.approx(100 * 2 / 9) and words.value == pytest.approx(100 * 2 / 3)
    assert (
        phonemes.signature == "PER|phonemes:9|words:3|references:closest|data:x"
        and words.signature == "WER|words:3|references:closest|data:x"
    )


def test_with_one_reference_each_it_is_jiwers() -> None:
    chance = random.Random(0)
    texts = [[" ".join(chance.choices("ABCDE", k=chance.randint(1, 7))) for _ in range(50)] for _ in range(2)]
    phonemes, words = pronunciation([str(n) for n in range(50)], *texts, {})
    assert phonemes.value == pytest.approx(100 * jiwer.wer(texts[1], texts[0]))
    assert words.value == pytest.approx(100 * sum(a != b for a, b in zip(*texts, strict=True)) / 50)


def test_an_empty_output_misses_every_phoneme() -> None:
    assert [number.value for number in pronunciation(["a"], [""], ["EY1"], {})] == [100, 100]
