"""Classical classifiers are runs: equal to scikit-learn's, fitted to the same bits every time, used by the same verbs as any run."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.feature_extraction.text import CountVectorizer, TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss
from sklearn.multiclass import OneVsRestClassifier
from sklearn.naive_bayes import GaussianNB, MultinomialNB

from seqloom.cli import main
from seqloom.inference.prediction import predict
from seqloom.models import SVD, TFIDF, Counts, MeanVectors
from seqloom.models.text_features import TextFeatures
from seqloom.run import Run, load
from seqloom.run_config import Config
from seqloom.train.fit import train
from seqloom.vectors import labelled_files
from support.words import OPINIONS

Labelled = tuple[list[str], list[str]]


def make_texts(count: int, labels: int, seed: int = 0) -> Labelled:
    """Texts whose words lean towards their label."""
    rng = np.random.default_rng(seed)
    indices = rng.integers(0, labels, count)
    weights = np.ones((labels, len(OPINIONS)))
    for label in range(labels):
        weights[label, 2 * label : 2 * label + 2] = 3
    weights /= weights.sum(1, keepdims=True)
    texts = [" ".join(rng.choice(OPINIONS, rng.integers(2, 12), p=weights[index])) for index in indices]
    return texts, [f"label {index}" for index in indices]


def write(path: Path, data: Labelled) -> str:
    path.write_text("".join(f"{text}\t{label}\n" for text, label in zip(*data, strict=True)), "utf-8")
    return str(path)


def split(text: str) -> list[str]:
    return re.findall(r"\w+(?:['’-]\w+)*|[^\w\s]+", text.lower())


def fit_run(preset: str, folder: Path, data: Labelled, valid: Labelled | None, *changes: str) -> Run:
    folder.mkdir(exist_ok=True)
    files = [write(folder / "data.tsv", data)]
    held_out = None if valid is None else [write(folder / "valid.tsv", valid)]
    return train(Config.load(preset, changes, files, held_out), folder / "run", 1)


def probabilities(run: Run, texts: list[str]) -> np.ndarray:
    return np.array([list(label.probabilities.values()) for label in predict(run, texts)])


@pytest.mark.parametrize("labels", [2, 3])
@pytest.mark.parametrize("features", ["Counts", "TFIDF"])
@pytest.mark.parametrize("preset", ["naive-bayes", "logistic", "softmax"])
def test_a_classical_run_equals_scikit_learn(preset: str, features: str, labels: int, tmp_path: Path) -> None:
    data, valid, new = make_texts(300, labels), make_texts(50, labels, 1), make_texts(60, labels, 2)[0]
    changes = [f"model.features.type={features}"]
    regression = LogisticRegression(C=0.5, max_iter=5000, tol=1e-10)
    peers = {
        "naive-bayes": MultinomialNB(),
        "logistic": regression if labels == 2 else OneVsRestClassifier(regression),
        "softmax": regression if labels > 2 else LogisticRegression(C=1.0, max_iter=5000, tol=1e-10),
    }  # softmax with two labels has half the penalty: |w₀|² + |w₁|² is least at w₁ = -w₀ = w/2
    if preset != "naive-bayes":
        changes += ["train.l2=2", "train.tolerance=1e-7"]
    run = fit_run(preset, tmp_path, data, valid, *changes)
    vectorizer = {"Counts": CountVectorizer, "TFIDF": TfidfVectorizer}[features]
    peer = vectorizer(tokenizer=split, token_pattern=None, lowercase=False).fit(data[0])
    expected = peers[preset].fit(peer.transform(data[0]), data[1]).predict_proba(peer.transform(new))
    np.testing.assert_allclose(
        probabilities(run, new), expected, atol=1e-5 if preset == "naive-bayes" else 1e-3
    )
    assert run.labels == sorted(set(data[1]))


def test_features_that_may_be_negative_have_a_gaussian_naive_bayes(tmp_path: Path) -> None:
    data, valid, new = make_texts(300, 3), make_texts(50, 3, 1), make_texts(60, 3, 2)[0]
    run = fit_run("naive-bayes", tmp_path, data, valid, "model.features.type=SVD", "model.features.dim=6")
    features = run.model.get_submodule("text_features")

    def rows(texts: list[str]) -> np.ndarray:
        ids, mask = run.encode(texts)
        return features(ids, mask).numpy().astype(np.float64)

    x = rows(data[0])
    assert (x**2).mean() == pytest.approx(1, abs=1e-4)
    expected = GaussianNB().fit(x, data[1]).predict_proba(rows(new))
    np.testing.assert_allclose(probabilities(run, new), expected, atol=1e-3)


CANDIDATES = [30.0, 3.0, 0.3, 0.03]
PENALTIES = ["train.l2=[30, 3, 0.3, 0.03]", "train.tolerance=1e-7"]


def tfidf(texts: list[str]) -> TfidfVectorizer:
    return TfidfVectorizer(tokenizer=split, token_pattern=None, lowercase=False).fit(texts)


def regressions(x, y) -> list[LogisticRegression]:
    return [LogisticRegression(C=1 / l2, max_iter=5000, tol=1e-10).fit(x, y) for l2 in CANDIDATES]


def test_the_penalty_that_is_most_often_right_on_the_users_held_out_files_is_chosen(tmp_path: Path) -> None:
    data, valid = make_texts(60, 2), make_texts(200, 2, 1)
    run = fit_run("logistic", tmp_path, data, valid, *PENALTIES)
    peer = tfidf(data[0])
    z = peer.transform(valid[0])
    fits = regressions(peer.transform(data[0]), data[1])
    scores = [fit.score(z, valid[1]) for fit in fits]
    best = fits[scores.index(max(scores))]
    assert scores.count(max(scores)) == 1 and best is not fits[0]
    np.testing.assert_allclose(probabilities(run, valid[0]), best.predict_proba(z), atol=2e-3)
    losses = {number["name"]: number["value"] for number in run_valid(run)}
    assert losses["nats_per_label"] == pytest.approx(log_loss(valid[1], best.predict_proba(z)), abs=2e-3)


def test_without_held_out_files_the_penalty_is_chosen_on_a_tenth_of_the_texts(tmp_path: Path) -> None:
    data = make_texts(400, 2)
    run = fit_run("logistic", tmp_path, data, None, *PENALTIES, "seed=3")
    peer = tfidf(data[0])
    x, y = peer.transform(data[0]), np.array(data[1])
    held_out = np.zeros(len(y), dtype=bool)
    held_out[np.random.default_rng(3).permutation(len(y))[: len(y) // 10]] = True
    scores = [fit.score(x[held_out], y[held_out]) for fit in regressions(x[~held_out], y[~held_out])]
    chosen = scores.index(max(scores))
    assert min(scores) < max(scores) and chosen > 0
    expected = regressions(x, y)[chosen].predict_proba(x)
    np.testing.assert_allclose(probabilities(run, data[0]), expected, atol=2e-3)


def test_a_refitted_model_reads_the_texts_in_the_order_of_the_file(tmp_path: Path) -> None:
    """Vectors that the texts are the means of are those of the file, however the held-out share is drawn."""
    data = make_texts(80, 2)
    features = "model.features={type: MeanVectors, method: skip-gram, dim: 6}"
    tables = [
        fit_run("naive-bayes", tmp_path / str(share), data, None, features, f"files.valid_fraction={share}")
        .model.get_submodule("text_features")
        .get_parameter("table")
        for share in (0.1, 0.3)
    ]
    assert torch.equal(tables[0], tables[1])


def run_valid(run: Run) -> list[dict]:
    import json

    results = json.loads((run.folder / "results.json").read_text("utf-8"))
    return results["valid"]


def test_a_held_out_share_is_learnt_from_after_it_was_measured(tmp_path: Path) -> None:
    """Naive Bayes of all texts; with refit off, of fewer."""
    data, new = make_texts(200, 2), make_texts(60, 2, 2)[0]
    both = fit_run("naive-bayes", tmp_path / "a", data, None)
    peer = CountVectorizer(tokenizer=split, token_pattern=None, lowercase=False).fit(data[0])
    expected = MultinomialNB().fit(peer.transform(data[0]), data[1]).predict_proba(peer.transform(new))
    np.testing.assert_allclose(probabilities(both, new), expected, atol=1e-5)
    first = fit_run("naive-bayes", tmp_path / "b", data, None, "train.refit=false")
    assert np.abs(probabilities(first, new) - expected).max() > 1e-3
    assert run_valid(first) == run_valid(both)


@pytest.mark.parametrize("preset", ["logistic", "naive-bayes"])
@pytest.mark.parametrize("method", ["skip-gram", "glove"])
def test_a_killed_run_begins_again_to_the_same_bits(preset: str, method: str, tmp_path: Path) -> None:
    data = make_texts(120, 3)
    changes = [f"model.features={{type: MeanVectors, method: {method}, dim: 6}}"]
    run = fit_run(preset, tmp_path, data, None, *changes)
    weights, metrics = run.folder / "model.safetensors", run.folder / "metrics.jsonl"
    before = weights.read_bytes(), metrics.read_bytes()
    weights.unlink()
    (run.folder / "results.json").unlink()
    train(run.config, run.folder, 1)
    assert (weights.read_bytes(), metrics.read_bytes()) == before
    files = {path.name for path in run.folder.iterdir()}
    assert {"config.yaml", "tokenizer.json", "labels.json", "model.safetensors", "results.json"} <= files


@pytest.mark.parametrize(
    "features",
    [
        Counts(20),
        Counts(20, ngrams=2, buckets=50),
        TFIDF(20),
        TFIDF(20, ngrams=3, buckets=1000),
        SVD(20, dim=5),
        SVD(20, dim=4, ngrams=2, buckets=30),
        MeanVectors(20, dim=3),
    ],
    ids=lambda features: f"{type(features).__name__}-{features.ngrams}",
)
def test_a_batch_has_the_features_of_the_matrix(features: TextFeatures) -> None:
    """The two forms of every feature set agree, for texts with unknown words and empty ones too."""
    rng = np.random.default_rng(0)
    texts = [rng.integers(5, 18, rng.integers(1, 9)) for _ in range(40)]
    offsets = np.cumsum([0, *map(len, texts)])
    with torch.no_grad():
        if isinstance(features, MeanVectors):
            features.set_vectors(np.arange(5, 15), rng.normal(size=(10, 3)))
        else:
            features.weight[:5] = 0
        features.fit(features.count_matrix(np.concatenate(texts), offsets))
        new = [np.array([6, 7, 8, 19, 6, 7]), np.array([19]), np.array([2, 9, 9, 3])]
        offsets = np.cumsum([0, *map(len, new)])
        matrix = features.matrix(features.count_matrix(np.concatenate(new), offsets))
        ids, mask = torch.zeros(3, 7, dtype=torch.long), torch.zeros(3, 7, dtype=torch.bool)
        for row, text in enumerate(new):
            ids[row, : len(text)], mask[row, : len(text)] = torch.from_numpy(text), True
        dense = matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
        np.testing.assert_allclose(features(ids, mask).numpy(), dense, atol=1e-5)
        assert np.abs(dense[0]).max() > 0 and dense.shape == (3, features.dim)


def test_n_grams_separate_what_words_cannot(tmp_path: Path) -> None:
    """The order of two words is the label."""
    rng = np.random.default_rng(0)
    fillers = ["film", "plot", "the", "odd"]
    rows = [
        (f"{rng.choice(fillers)} {'not bad' if label else 'bad not'} {rng.choice(fillers)}", str(label))
        for label in rng.integers(0, 2, 200)
    ]
    data: Labelled = ([text for text, _ in rows], [label for _, label in rows])
    run = fit_run("logistic", tmp_path, data, None, "model.features.ngrams=2", "model.features.buckets=5000")
    labels = [label.label for label in predict(run, ["plot bad not the", "plot not bad the"])]
    assert labels == ["0", "1"]


@pytest.mark.parametrize(
    "preset, changes, sentence",
    [
        ("naive-bayes", ["train.type=LBFGS"], "fits a Regression, not a NaiveBayes"),
        ("logistic", ["train.l2=0"], "must be above 0"),
        ("logistic", ["train.type=LBFGSS"], "LBFGS"),
        ("logistic", ["model.features={type: MeanVectors, method: skipgram}"], "skip-gram"),
        ("classifier", ["train.type=ClosedForm"], "fits a NaiveBayes, not a Classifier"),
    ],
)
def test_wrong_options_are_sentences(preset: str, changes: list[str], sentence: str, tmp_path: Path) -> None:
    if preset == "classifier":
        changes = [*changes, "train={type: ClosedForm}", "model.dim=8", "model.stack.dim=8"][1:]
    with pytest.raises(ValueError, match=sentence):
        fit_run(preset, tmp_path, make_texts(60, 2), None, *changes)


def test_one_label_is_refused(tmp_path: Path) -> None:
    texts, _ = make_texts(30, 2)
    with pytest.raises(ValueError, match="one label"):
        fit_run("softmax", tmp_path, (texts, ["x"] * 30), None)


@pytest.mark.parametrize("preset", ["naive-bayes", "logistic", "softmax"])
def test_the_verbs_work_on_classical_runs(preset: str, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    data, test = (
        write(tmp_path / "data.tsv", make_texts(200, 3)),
        write(tmp_path / "t.tsv", make_texts(50, 3, 1)),
    )
    run = str(tmp_path / "run")
    main(["train", preset, "--data", data, "--out", run])
    assert "accuracy" in capsys.readouterr().out
    main(["evaluate", run, test])
    assert "accuracy" in capsys.readouterr().out
    main(["explain", run])
    assert "P(" in capsys.readouterr().out
    main(["explain", preset])
    assert "[B" in capsys.readouterr().out
    assert load(run).labels == ["label 0", "label 1", "label 2"]


@pytest.mark.data
@pytest.mark.parametrize("preset", ["naive-bayes", "logistic"])
def test_real_sentences_are_labelled_right_four_times_of_five(
    preset: str, real_data: Path, tmp_path: Path
) -> None:
    names = [real_data / "sentiment" / f"stsa.binary.{part}.gz" for part in ("train", "dev", "test")]
    data, valid, (texts, labels) = map(labelled_files.read, names)
    assert (len(data[0]), len(texts)) == (6920, 1821)
    run = fit_run(preset, tmp_path, data, valid)
    found = [prediction.label for prediction in predict(run, texts)]
    assert sum(map(str.__eq__, found, labels)) > 0.79 * len(labels)
