"""Classifiers that older versions saved give the probabilities of scikit-learn's pipelines; labelled files of every shape are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.decomposition import TruncatedSVD
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from seqloom.vectors import classify, features, labelled_files
from support.words import OPINIONS


def some(count: int, labels: int, seed: int = 0) -> tuple[list[str], list[str]]:
    """Texts whose words lean towards their label."""
    rng = np.random.default_rng(seed)
    found = rng.integers(0, labels, count)
    lean = np.ones((labels, len(OPINIONS)))
    for label in range(labels):
        lean[label, 2 * label : 2 * label + 2] = 3
    texts = [
        " ".join(rng.choice(OPINIONS, rng.integers(2, 12), p=lean[label] / lean[label].sum()))
        for label in found
    ]
    return texts, [f"label {label}" for label in found]


def save(folder: Path, labels: list[str], words: list[str], ngrams: int, **arrays: Any) -> None:
    """Writes a classifier as older versions did; `each` is whether each label has a logistic regression of its own."""
    folder.mkdir()
    stored = {
        "format": "seqloom classifier 1",
        "labels": labels,
        "each": arrays.pop("each", False),
        "features": "any name",
        "ngrams": ngrams,
        "words": words,
        "about": {},
    }
    (folder / "classifier.json").write_text(json.dumps(stored), "utf-8")
    np.savez(folder / "classifier.npz", **arrays)


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


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("ngrams", [1, 2])
@pytest.mark.parametrize("labels", [2, 3])
def test_a_saved_classifier_over_words_is_scikit_learns(
    labels: int, ngrams: int, weighted: bool, tmp_path: Path
) -> None:
    (texts, said), new = some(200, labels), [*some(30, labels, 1)[0], "", "nothing known here"]
    vectorizer = TfidfVectorizer if weighted else CountVectorizer
    pipeline = vectorizer(
        tokenizer=features.tokens, token_pattern=None, lowercase=False, ngram_range=(1, ngrams)
    )
    x, z = pipeline.fit_transform(texts), pipeline.transform(new)
    words = pipeline.get_feature_names_out().tolist()
    idf = {"idf": pipeline.idf_} if weighted else {}
    bayes = MultinomialNB().fit(x, said)
    bayes_arrays = {"weights": bayes.feature_log_prob_, "bias": bayes.class_log_prior_}
    peers = [(bayes, bayes_arrays)]
    if labels > 2:
        softmax = LogisticRegression(max_iter=1000).fit(x, said)
        each = OneVsRestClassifier(LogisticRegression(max_iter=1000)).fit(x, said)
        rows = [np.concatenate([one.coef_ for one in each.estimators_])]
        rows += [np.concatenate([one.intercept_ for one in each.estimators_])]
        peers += [(softmax, {"weights": softmax.coef_, "bias": softmax.intercept_})]
        peers += [(each, {"weights": rows[0], "bias": rows[1], "each": True})]
    for number, (peer, arrays) in enumerate(peers):
        save(tmp_path / str(number), bayes.classes_.tolist(), words, ngrams, **arrays, **idf)
        loaded = classify.load(tmp_path / str(number))
        np.testing.assert_allclose(loaded.probabilities(new), peer.predict_proba(z), atol=1e-9)


def test_a_saved_classifier_over_latent_features_is_scikit_learns(tmp_path: Path) -> None:
    """Gaussian naive Bayes over the SVD of TF-IDF: a table after the idf, and squares."""
    (texts, said), new = some(200, 3), some(30, 3, 1)[0]
    tfidf = TfidfVectorizer(tokenizer=features.tokens, token_pattern=None, lowercase=False)
    svd = TruncatedSVD(5, random_state=0)
    x, z = svd.fit_transform(tfidf.fit_transform(texts)), svd.transform(tfidf.transform(new))
    peer = GaussianNB().fit(x, said)
    mean, variance = peer.theta_, peer.var_
    save(
        tmp_path / "c",
        peer.classes_.tolist(),
        tfidf.get_feature_names_out().tolist(),
        1,
        idf=tfidf.idf_,
        table=svd.components_.T,
        weights=mean / variance,
        squares=-0.5 / variance,
        bias=np.log(peer.class_prior_) - 0.5 * (np.log(2 * np.pi * variance) + mean**2 / variance).sum(1),
    )
    np.testing.assert_allclose(
        classify.load(tmp_path / "c").probabilities(new), peer.predict_proba(z), atol=1e-7
    )


def test_vectors_are_averaged() -> None:
    """Of the words that have one; a text without any is zeros."""
    table = np.random.default_rng(4).normal(size=(9, 6))
    made = features.Features("mine", OPINIONS[:9], table=table)
    expected = [(table[0] + 2 * table[2]) / 3, np.zeros(6)]
    np.testing.assert_allclose(made(["good bad, bad unknown", "unknown"]), expected, atol=1e-12)


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


def test_wrong_classifiers_are_sentences(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no classifier here"):
        classify.load(tmp_path)
    (tmp_path / "classifier.json").write_text('{"format": 1}', "utf-8")
    np.savez(tmp_path / "classifier.npz", weights=np.eye(2))
    with pytest.raises(ValueError, match="damaged"):
        classify.load(tmp_path)
