"""Numbers of labelled tasks equal their independent counters: seqeval, scikit-learn, scipy, SQuAD's own definition written out."""

import random

import numpy as np
import pytest

from seqloom.measure.classification import Calibration, Confusion, classification_metrics
from seqloom.measure.question_answering import AnswerMetrics, exact_match, f1
from seqloom.measure.regression import correlations
from seqloom.measure.spans import SpanCounts, has_span_tags, spans

LABELS = ["O", "B-PER", "I-PER", "E-PER", "S-PER", "B-LOC", "I-LOC", "E-LOC", "S-LOC"]


@pytest.mark.parametrize(
    "known", [LABELS[:3] + LABELS[5:7], LABELS, ["O", "I-PER", "I-LOC"]], ids=["BIO", "BIOES", "IO"]
)
def test_span_f1_equals_seqeval(known):
    """Any sequence of tags, sensible or not."""
    from seqeval.metrics import f1_score, precision_score, recall_score
    from seqeval.metrics.sequence_labeling import get_entities

    chance = random.Random(0)
    gold, predicted = (
        [[chance.choice(known) for _ in range(chance.randint(1, 12))] for _ in range(400)] for _ in range(2)
    )
    predicted = [
        [chance.choice([a, b]) for a, b in zip(x, (y * 12)[: len(x)], strict=True)]
        for x, y in zip(gold, predicted, strict=True)
    ]
    counted = SpanCounts()
    for one, other in zip(gold, predicted, strict=True):
        assert spans(one) == set(get_entities(one))
        counted.add(one, other)
    numbers = {number.name: number.value for number in counted.metrics({})}
    theirs = {"span_f1": f1_score, "span_precision": precision_score, "span_recall": recall_score}
    for name, measure in theirs.items():
        assert numbers[name] == pytest.approx(100 * measure(gold, predicted))
    assert 20 < numbers["span_f1"] < 90


def test_a_span_written_out():
    assert spans(["B-PER", "I-PER", "O", "B-LOC", "B-LOC"]) == {("PER", 0, 1), ("LOC", 3, 3), ("LOC", 4, 4)}
    assert (
        has_span_tags(["O", "B-X", "I-X"]) and not has_span_tags(["NOUN", "O"]) and not has_span_tags(["O"])
    )


def test_accuracy_and_f1_equal_scikit_learn():
    from sklearn.metrics import accuracy_score, confusion_matrix, f1_score

    chance = np.random.default_rng(0)
    gold, predicted = chance.integers(0, 4, 500), chance.integers(0, 5, 500)
    predicted = np.where(chance.random(500) < 0.5, gold, predicted)
    counted = Confusion("abcdef")
    for piece in np.array_split(np.arange(500), 7):
        counted.add(gold[piece], predicted[piece])
    assert counted.counts.tolist() == confusion_matrix(gold, predicted, labels=range(6)).tolist()
    assert counted.accuracy() == pytest.approx(accuracy_score(gold, predicted))
    assert counted.macro_f1() == pytest.approx(f1_score(gold, predicted, average="macro", zero_division=0))
    assert counted.f1()[:5] == pytest.approx(
        f1_score(gold, predicted, average=None, labels=range(5), zero_division=0)
    )
    assert len(counted.lines()) == 6


def test_calibration_is_its_definition():
    """|accuracy - confidence| in each bin by a literal loop."""
    chance = np.random.default_rng(1)
    probability = chance.random(1000)
    gold = chance.random(1000) < probability**2
    counted = Calibration()
    for piece in np.array_split(np.arange(1000), 3):
        counted.add(probability[piece], gold[piece])
    expected = 0.0
    for b in range(15):
        inside = [i for i in range(1000) if b / 15 < probability[i] <= (b + 1) / 15]
        if inside:
            expected += (
                len(inside)
                / 1000
                * abs(np.mean([gold[i] for i in inside]) - np.mean([probability[i] for i in inside]))
            )
    assert counted.error() == pytest.approx(expected) and 0.05 < expected < 0.4


def test_a_perfect_answer_is_a_hundred():
    counted, calibration = Confusion(["a", "b"]), Calibration()
    counted.add(np.array([0, 1]), np.array([0, 1]))
    calibration.add(np.array([1.0, 1.0]), np.array([True, True]))
    assert [number.value for number in classification_metrics(counted, calibration, "words", {})] == [
        100,
        100,
        0,
    ]


def test_answers_by_squads_rules():
    assert exact_match("The  Dog!", ["a dog", "cat"]) == 1 and exact_match("dogs", ["dog"]) == 0
    assert exact_match("", []) == 1 and exact_match("dog", []) == 0
    assert f1("the big dog", ["a dog", "cat"]) == pytest.approx(2 * 1 / (2 + 1))
    assert f1("dog dog", ["dog"]) == pytest.approx(2 * 1 / 3) and f1("", []) == 1 and f1("x", []) == 0
    counted = AnswerMetrics()
    counted.add("a dog", ["dog"])
    counted.add("big dog", ["dog"])
    numbers = {number.name: number.value for number in counted.metrics({})}
    assert numbers == {"exact_match": 50.0, "answer_f1": pytest.approx(100 * (1 + 2 / 3) / 2)}


def test_agreement_equals_scipy():
    from scipy.stats import pearsonr, spearmanr

    chance = np.random.default_rng(2)
    gold = chance.integers(0, 6, 200).astype(float)  # many ties
    predicted = gold + chance.normal(size=200).round(1)
    numbers = {number.name: number.value for number in correlations(predicted, gold, {})}
    assert numbers["spearman"] == pytest.approx(spearmanr(predicted, gold).statistic)
    assert numbers["pearson"] == pytest.approx(pearsonr(predicted, gold).statistic)
    assert numbers["rmse"] == pytest.approx(np.sqrt(np.mean((predicted - gold) ** 2)))
    assert [number.value for number in correlations(np.ones(3), np.arange(3.0), {})][:2] == [0, 0]
