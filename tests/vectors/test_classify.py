"""Classifiers and features equal scikit-learn's pipelines; what is saved and read again says the same; files of every shape are read."""

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from seqloom.vectors import classify, features, labelled_files
from seqloom.vectors.vectors import Vectors

WORDS = [
    "good",
    "fine",
    "bad",
    "dull",
    "odd",
    "plain",
    "film",
    "plot",
    "the",
    "a",
    "n't",
    "so",
    "so-so",
    ",",
    ".",
]


def some(count: int, labels: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts whose words lean towards their label."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, labels, count)
    lean = np.ones((labels, len(WORDS)))
    for label in range(labels):
        lean[label, 2 * label : 2 * label + 2] = 3
    texts = [
        " ".join(rng.choice(WORDS, rng.integers(2, 12), p=lean[label] / lean[label].sum())) for label in found
    ]
    return texts, [f"label {label}" for label in found]


def vectors() -> Vectors:
    return Vectors(WORDS[:9], np.random.default_rng(4).normal(size=(9, 6)).astype(np.float32))


def split(text: str) -> list[str]:
    return features.tokens(text)


def test_words_and_marks_are_told_apart():
    assert features.tokens("Don't stop-gap it... naïve, ÉTÉ!") == [
        "don't",
        "stop-gap",
        "it",
        "...",
        "naïve",
        ",",
        "été",
        "!",
    ]
    assert features.tokens("a b c", 3) == ["a", "b", "c", "a b", "b c", "a b c"]


@pytest.mark.parametrize("ngrams", [1, 2])
def test_counts_and_tf_idf_equal_scikit_learn(ngrams: int):
    texts, new = some(50, 2)[0], [*some(20, 2, 1)[0], "", "nothing known here"]
    bag = features.bag_of_words_features(texts, 1, ngrams)
    for ours, theirs in ((bag, CountVectorizer), (features.tfidf_features(bag, texts), TfidfVectorizer)):
        peer = theirs(tokenizer=split, token_pattern=None, lowercase=False, ngram_range=(1, ngrams)).fit(
            texts
        )
        columns = [peer.vocabulary_[word] for word in bag.words]
        np.testing.assert_allclose(ours(new).toarray(), peer.transform(new).toarray()[:, columns], atol=1e-12)


def test_vectors_are_averaged_and_latent_features_keep_the_products():
    texts = some(40, 2)[0]
    known = vectors()
    ours = features.mean_vector_features(known, texts, "mine")
    rows = [
        np.mean([known[word] for word in split(text) if word in known] or [np.zeros(6)], axis=0)
        for text in texts
    ]
    scale = ours(texts)[0][0] / rows[0][0]
    np.testing.assert_allclose(ours(texts), np.array(rows) * scale, rtol=1e-4, atol=1e-6)
    assert np.mean(ours(texts) ** 2) == pytest.approx(1, rel=1e-4)
    weighted = features.tfidf_features(features.bag_of_words_features(texts), texts)
    x, full = (
        weighted(texts).toarray(),
        features.lsa_features(weighted, texts, len(weighted.words) - 1)(texts),
    )
    _, _, directions = np.linalg.svd(x, full_matrices=False)
    expected = x @ directions[: full.shape[1]].T
    products = full @ full.T
    np.testing.assert_allclose(
        products / products[0, 0], (expected @ expected.T) / (expected @ expected.T)[0, 0], atol=1e-4
    )


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("dense", [False, True])
def test_classifiers_equal_scikit_learn(labels: int, dense: bool):
    (texts, said), new = some(300, labels), some(60, labels, 1)[0]
    made = (
        features.mean_vector_features(vectors(), texts, "v")
        if dense
        else features.bag_of_words_features(texts)
    )
    x, z, names = made(texts), made(new), sorted(set(said))
    y = np.array([names.index(label) for label in said])
    regression = LogisticRegression(C=0.7, max_iter=5000, tol=1e-10)
    peers = {
        "naive Bayes": GaussianNB() if dense else MultinomialNB(),
        "logistic regression": regression if labels == 2 else OneVsRestClassifier(regression),
    }
    if labels > 2:
        peers["softmax"] = regression
    for name, peer in peers.items():
        ours = classify.CLASSIFIERS[name](x, y, names, made, 0.7)
        theirs = peer.fit(x, y).predict_proba(z)
        np.testing.assert_allclose(ours.probabilities(new), theirs, atol=2e-3)
        assert ours.predict(new) == [names[row] for row in ours.probabilities(new).argmax(1)]
        if name == "naive Bayes":
            np.testing.assert_allclose(ours.probabilities(new), theirs, atol=1e-9)


def test_softmax_of_two_labels_is_the_minimum_of_its_own_loss():
    """Cross-entropy plus ½|W|² over both rows: no small change of the weights makes it smaller."""
    texts, said = some(200, 2)
    made = features.bag_of_words_features(texts)
    x, y = made(texts).toarray(), np.array([label == "label 1" for label in said]).astype(int)
    found = classify.softmax(x, y, ["label 0", "label 1"], made, 0.5)

    def loss(weights: np.ndarray, bias: np.ndarray) -> float:
        scores = x @ weights.T + bias
        top = scores.max(1, keepdims=True)
        logs = scores - top - np.log(np.exp(scores - top).sum(1, keepdims=True))
        return -0.5 * logs[np.arange(len(y)), y].sum() + 0.5 * (weights**2).sum()

    least, rng = loss(found.weights, found.bias), np.random.default_rng(0)
    for _ in range(40):
        step = 0.05 * rng.normal(size=found.weights.shape)
        assert loss(found.weights + step, found.bias + 0.05 * rng.normal(size=2)) > least - 1e-4


@pytest.mark.parametrize("labels", [2, 3])
def test_a_saved_classifier_says_the_same(labels: int, tmp_path: Path):
    (texts, said), new = some(120, labels), some(20, labels, 1)[0]
    bag = features.bag_of_words_features(texts, 1, 2)
    sets = [bag, features.tfidf_features(bag, texts), features.mean_vector_features(vectors(), texts, "v")]
    for number, cell in enumerate(classify.compare(sets, (texts, said), (texts, said), {})):
        classify.save(cell.fitted, tmp_path / str(number))
        again = classify.load(tmp_path / str(number))
        np.testing.assert_array_equal(again.probabilities(new), cell.fitted.probabilities(new))
        np.testing.assert_allclose(again.probabilities(new).sum(1), 1)
        assert sorted(os.listdir(tmp_path / str(number))) == ["classifier.json", "classifier.npz"]


def test_the_table_counts_what_is_right():
    train, test = some(300, 3), some(100, 3, 1)
    sets = [features.bag_of_words_features(train[0])]
    for cell in classify.compare(sets, train, (test[0], [*test[1][:-1], "never seen"]), {"train": "abc"}):
        right = sum(a == b for a, b in zip(cell.fitted.predict(test[0])[:-1], test[1], strict=False))
        assert cell.score.number.value == right / 100 and cell.score.low < right / 100 < cell.score.high
        assert "train:abc" in cell.score.number.signature and cell.classifier in cell.score.number.signature
        assert right > 50


@pytest.mark.parametrize(
    "name, content",
    [
        ("a.tsv", "yes\ta fine, film\nno\ta dull film\nyes\tfine\n"),
        ("a.tsv", "sentence\tid\tlabel\na fine, film\t1\tyes\na dull film\t2\tno\nfine\t3\tyes\n"),
        ("a.csv", 'label,text\nyes,"a fine, film"\nno,a dull film\nyes,fine\n'),
        ("a.csv", '"a fine, film",yes\na dull film,no\nfine,yes\n'),
        (
            "a.jsonl",
            '{"label": "yes", "text": "a fine, film"}\n{"text": "a dull film", "label": "no"}\n{"text": "fine", "label": "yes"}\n',
        ),
        ("a.txt", "yes a fine, film\nno a dull film\n\nyes fine\n"),
        ("a.txt", "__label__yes a fine, film\n__label__no a dull film\n__label__yes fine\n"),
    ],
)
def test_labelled_texts_are_read_in_every_shape(name: str, content: str, tmp_path: Path):
    (tmp_path / name).write_text(content, "utf-8")
    assert labelled_files.read(tmp_path / name) == (
        ["a fine, film", "a dull film", "fine"],
        ["yes", "no", "yes"],
    )


@pytest.mark.parametrize(
    "content, parts",
    [
        ("", ["empty"]),
        ("yes fine\nno\n", [":2", "one word"]),
        ('{"words": "x"}\n', [":1", "'text'", "'words'"]),
        ("yes\ta\nno\n", [":2", "cells"]),
        ("\n".join(f"w{number} is a text without a label" for number in range(99)), ["a different label"]),
    ],
)
def test_wrong_files_are_sentences(content: str, parts: list[str], tmp_path: Path):
    (tmp_path / "f").write_text(content, "utf-8")
    with pytest.raises(ValueError) as caught:
        labelled_files.read(tmp_path / "f")
    for part in [str(tmp_path / "f"), *parts]:
        assert part in str(caught.value)


def test_wrong_classifiers_are_sentences(tmp_path: Path):
    with pytest.raises(ValueError, match="no classifier here"):
        classify.load(tmp_path)
    (tmp_path / "classifier.json").write_text('{"format": 1}', "utf-8")
    np.savez(tmp_path / "classifier.npz", weights=np.eye(2))
    with pytest.raises(ValueError, match="damaged"):
        classify.load(tmp_path)
    texts, _ = some(20, 2)
    with pytest.raises(ValueError, match="one label"):
        classify.compare(
            [features.bag_of_words_features(texts)], (texts, ["x"] * 20), (texts, ["x"] * 20), {}
        )
    with pytest.raises(ValueError, match="occurs 99 times"):
        features.bag_of_words_features(texts, 99)


@pytest.mark.data
def test_the_best_on_real_sentences_is_right_four_times_of_five(real_data: Path):
    train, test = (
        labelled_files.read(real_data / "sentiment" / f"stsa.binary.{part}.gz") for part in ("train", "test")
    )
    assert (len(train[0]), len(test[0])) == (6920, 1821)
    cells = classify.compare([features.bag_of_words_features(train[0])], train, test, {})
    assert max(cell.score.number.value for cell in cells) >= 0.8
    assert all(cell.score.number.value > 0.79 for cell in cells)
