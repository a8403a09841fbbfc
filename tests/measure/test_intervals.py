"""Intervals equal their definitions: closed forms of statsmodels' and scipy's kind, sacrebleu's own bootstrap, literal resampling."""

import math
import random

import numpy as np
import pytest
import sacrebleu
from sacrebleu.metrics import BLEU, CHRF

from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.measure.number import Number, RecordSums, bootstrap, fisher, likelihood, wilson
from seqloom.measure.pronunciation import pronunciation
from seqloom.measure.question_answering import AnswerMetrics
from seqloom.measure.regression import correlations
from seqloom.measure.spans import SpanCounts
from seqloom.measure.translation import (
    bleu_of,
    bleu_scores,
    bleu_statistics,
    chrf_scores,
    chrf_statistics,
    translation,
)

WORDS = [
    "the",
    "a",
    "old",
    "king",
    "queen",
    "dog",
    "cat",
    "river",
    "sees",
    "hears",
    "and",
    "but",
    "never",
    ".",
    ",",
]


def noisy_pairs(count: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """References, and outputs in which some words are others."""
    chance = random.Random(seed)
    references = [" ".join(chance.choices(WORDS, k=chance.randint(2, 14))) for _ in range(count)]
    outputs = [
        " ".join(chance.choice(WORDS) if chance.random() < 0.3 else word for word in line.split())
        for line in references
    ]
    return outputs, references


def bounds(number: Number) -> tuple[float, float]:
    assert number.low is not None and number.high is not None
    assert number.low <= number.value <= number.high
    return number.low, number.high


def test_wilson_equals_scipy() -> None:
    from scipy.stats import binomtest

    for hits, count in ((0, 10), (3, 10), (10, 10), (812, 1000), (1, 1)):
        expected = binomtest(hits, count).proportion_ci(method="wilson")
        assert wilson(hits, count) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert wilson(0, 0) == (None, None)


def test_fisher_equals_scipy() -> None:
    from scipy.stats import pearsonr

    chance = np.random.default_rng(0)
    x = chance.normal(size=60)
    y = x + chance.normal(size=60)
    result = pearsonr(x, y)
    expected = result.confidence_interval()
    assert fisher(result.statistic, 60) == pytest.approx((expected.low, expected.high), abs=1e-12)
    assert fisher(1.0, 60) == fisher(0.5, 3) == (None, None)


def test_spearmans_interval_holds_what_resampling_finds() -> None:
    from scipy.stats import spearmanr

    chance = np.random.default_rng(1)
    x = chance.normal(size=400)
    y = x + chance.normal(size=400)
    numbers = {number.name: number for number in correlations(x, y, {})}
    drawn = [spearmanr(x[chosen], y[chosen]).statistic for chosen in chance.integers(0, 400, (400, 400))]
    assert bounds(numbers["spearman"]) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.025)
    low, high = bounds(numbers["rmse"])
    drawn = [
        np.sqrt(np.mean((x[chosen] - y[chosen]) ** 2)) for chosen in chance.integers(0, 400, (2000, 400))
    ]
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)


def test_summed_statistics_give_sacrebleus_scores() -> None:
    """For whole corpora and for parts of them, with and without matches of long n-grams."""
    outputs, references = noisy_pairs(60)
    outputs[3] = ""
    bleu, chrf = bleu_statistics(outputs, references), chrf_statistics(outputs, references)
    for start, end in ((0, 60), (0, 1), (3, 4), (5, 7), (10, 30)):
        part = outputs[start:end], [references[start:end]]
        ours = bleu_scores(bleu[start:end].sum(0, keepdims=True))[0]
        assert ours == pytest.approx(BLEU().corpus_score(*part).score, abs=1e-9)
        ours = chrf_scores(chrf[start:end].sum(0, keepdims=True))[0]
        assert ours == pytest.approx(CHRF().corpus_score(*part).score, abs=1e-9)
    assert bleu_of(outputs, references) == pytest.approx(sacrebleu.corpus_bleu(outputs, [references]).score)


def test_intervals_of_bleu_and_chrf_are_sacrebleus() -> None:
    """Those of `sacrebleu --confidence`: 1,000 resamples, other random numbers."""
    outputs, references = noisy_pairs(300)
    for number, metric in zip(translation(outputs, references, {}), (BLEU(), CHRF()), strict=True):
        theirs = metric.corpus_score(outputs, [references], n_bootstrap=1000)
        low, high = bounds(number)
        assert (high - low) / 2 == pytest.approx(theirs._ci, rel=0.12)
        assert (high + low) / 2 == pytest.approx(theirs._mean, abs=0.2)
        assert number.n == 300


def test_the_same_records_have_the_same_interval() -> None:
    outputs, references = noisy_pairs(40)
    assert translation(outputs, references, {}) == translation(outputs, references, {})


def test_too_few_records_have_none() -> None:
    number = translation(["a b c d e"], ["a b c d e"], {})[0]
    assert number.value == pytest.approx(100) and number.low is None and number.high is None


def test_accuracy_of_texts_is_wilsons_of_words_that_of_sentences() -> None:
    """Sentences whose words are all right or all wrong: words are not independent, so the interval over words would be too narrow."""
    chance = np.random.default_rng(0)
    right = chance.random(200) < 0.7
    texts, sentences, calibration = Confusion("ab"), Confusion("ab"), Calibration()
    for is_right in right:
        gold = chance.integers(0, 2, 20)
        sentences.add(gold, gold if is_right else 1 - gold)
        texts.add(gold[:1], gold[:1] if is_right else 1 - gold[:1])
    hits = int(right.sum())
    of_texts = classification_metrics(texts, calibration, "records", {})[0]
    of_words = classification_metrics(sentences, calibration, "words", {})[0]
    assert bounds(of_texts) == pytest.approx([100 * bound for bound in wilson(hits, 200)])
    assert of_texts.n == 200 and of_words.n == 4000
    assert bounds(of_words) == pytest.approx(bounds(of_texts), abs=1.0)


def test_macro_f1s_interval_is_that_of_literal_resampling() -> None:
    from sklearn.metrics import f1_score

    chance = np.random.default_rng(2)
    gold = chance.integers(0, 3, 200)
    predicted = np.where(chance.random(200) < 0.6, gold, chance.integers(0, 3, 200))
    counted, calibration = Confusion("abc"), Calibration()
    for one, other in zip(gold, predicted, strict=True):
        counted.add(np.array([one]), np.array([other]))
    drawn = [
        100 * f1_score(gold[chosen], predicted[chosen], average="macro")
        for chosen in chance.integers(0, 200, (400, 200))
    ]
    number = classification_metrics(counted, calibration, "records", {})[1]
    assert bounds(number) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=1.5)


def test_spans_answers_and_sounds_have_intervals() -> None:
    chance = random.Random(0)
    spans, answers = SpanCounts(), AnswerMetrics()
    words, sounds, heard = [], [], []
    for index in range(80):
        gold = [chance.choice(["O", "B-X"]) for _ in range(6)]
        spans.add(gold, [tag if chance.random() < 0.8 else "O" for tag in gold])
        answers.add("a dog" if chance.random() < 0.5 else "big cat", ["dog", "cat"])
        words.append(f"word{index}")
        sounds.append("AH B K")
        heard.append("AH B K" if chance.random() < 0.5 else "AH B")
    numbers = [*spans.metrics({}), *answers.metrics({}), *pronunciation(words, heard, sounds, {})]
    assert [number.name for number in numbers] == [
        "span_precision", "span_recall", "span_f1", "exact_match", "answer_f1", "per", "wer",
    ]  # fmt: skip
    for number in numbers:
        low, high = bounds(number)
        assert number.value in (0, 100) or 0 < high - low < 40
    by_name = {number.name: number for number in numbers}
    hits = round(by_name["exact_match"].value * 80 / 100)
    assert bounds(by_name["exact_match"]) == pytest.approx([100 * bound for bound in wilson(hits, 80)])


def test_likelihood_has_one_interval_in_three_units() -> None:
    chance = np.random.default_rng(3)
    blocks = RecordSums(2)
    tokens = chance.integers(50, 100, 120)
    nats = tokens * chance.normal(2.0, 0.3, 120)
    for block in zip(nats, tokens, strict=True):
        blocks.add(*block)
    total, count = float(nats.sum()), int(tokens.sum())
    each, perplexity, bits = likelihood(total, count, 4 * count, {}, blocks)
    low, high = bounds(each)
    drawn = [nats[chosen].sum() / tokens[chosen].sum() for chosen in chance.integers(0, 120, (2000, 120))]
    assert (low, high) == pytest.approx(np.quantile(drawn, [0.025, 0.975]), abs=0.01)
    assert bounds(perplexity) == pytest.approx((math.exp(low), math.exp(high)))
    assert bounds(bits) == pytest.approx((low / math.log(2) / 4, high / math.log(2) / 4))


def test_many_records_are_summed_into_rows_of_equal_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neighbours that are added resample like the records: the interval stays, memory does not grow."""
    monkeypatch.setattr("seqloom.measure.number.MAX_ROWS", 300)
    values = np.random.default_rng(4).normal(1.0, 1.0, 5003)
    sums = RecordSums(2)
    for value in values:
        sums.add(value, 1)
    rows = sums.array()
    assert len(rows) <= 600 and rows.sum(0) == pytest.approx([values.sum(), 5003])
    everything = np.stack([values, np.ones(5003)], 1)

    def mean(sums: np.ndarray) -> np.ndarray:
        return sums[:, 0] / sums[:, 1]

    exact, summed = bootstrap(everything, mean), sums.interval(mean)
    assert exact == pytest.approx((1.96 / math.sqrt(5003)) * np.array([-1, 1]) + values.mean(), abs=0.005)
    assert summed == pytest.approx(exact, abs=0.006)
