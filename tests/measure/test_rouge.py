"""ROUGE against the package rouge-score; copied spans and novelty by hand."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rouge_score import rouge_scorer

from seqloom.measure.rouge import (
    common_subsequence,
    copied_spans,
    first_sentence,
    rouge,
    rouge_scores,
    summarization,
)

WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "Mat's",
    "dog-house,",
    "é",
    "über",
    "12",
    "x9",
    ".",
    "!",
    "THE",
]
TEXTS = st.lists(st.sampled_from(WORDS), max_size=14).map(" ".join)


def published(output: str, reference: str) -> list[float]:
    scores = rouge_scorer.RougeScorer(["rouge1", "rouge2", "rougeL"]).score(reference, output)
    return [scores[name].fmeasure for name in ("rouge1", "rouge2", "rougeL")]


@given(TEXTS, TEXTS)
def test_rouge_is_that_of_rouge_score(output: str, reference: str):
    assert rouge(output, reference) == pytest.approx(published(output, reference), abs=1e-12)


def test_a_long_common_subsequence():
    chance = random.Random(0)
    first, second = ([str(chance.randrange(20)) for _ in range(300)] for _ in range(2))
    table = [[0] * 301 for _ in range(301)]
    for i in range(300):
        for j in range(300):
            table[i + 1][j + 1] = (
                table[i][j] + 1 if first[i] == second[j] else max(table[i][j + 1], table[i + 1][j])
            )
    assert common_subsequence(first, second) == table[300][300]


def test_copied_spans_are_the_longest_from_the_left():
    source = ["a", "b", "c", "d", "a", "b", "x", "y"]
    assert copied_spans(["a", "b", "x", "q", "c", "d", "z", "a"], source) == [3, 2]
    assert copied_spans(["q", "a"], source) == [] == copied_spans([], source)


def test_baselines_and_novelty():
    sources = ["The red cat sat here. It slept.", "Dogs bark at night. They stop."]
    references = ["red cat sat", "dogs bark"]
    outputs = ["red cat slept", "dogs bark"]
    numbers = {number.name: number for number in summarization(outputs, references, sources, {"seed": 0})}
    assert numbers["rouge_l"].value == pytest.approx(50 * (2 / 3 + 1))
    # two words on average: "The red" against "red cat sat", "Dogs bark" against "dogs bark"
    assert numbers["rouge_l_lead"].value == pytest.approx(50 * (2 * 1 / 5 + 1))
    assert "of:lead-2|" in numbers["rouge_l_lead"].signature
    expected = rouge_scores(["The red cat sat here.", "Dogs bark at night."], references)[:, 2].mean()
    assert numbers["rouge_l_first_sentence"].value == pytest.approx(100 * expected)
    assert numbers["new_words"].value == 0.0 and numbers["new_words"].n == 5
    assert numbers["new_pairs"].value == pytest.approx(100 / 3)  # cat slept
    assert numbers["copied"].value == pytest.approx(80.0) and numbers["copied_span"].value == 2.0
    assert first_sentence("Dr. who? Nobody. ") == "Dr. who?"
