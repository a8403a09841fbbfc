"""`seqloom.vectors` as a user calls it: what `train` takes, what the calls return, and one sentence for what is wrong."""

from __future__ import annotations

import doctest
import json
import logging
import subprocess
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from seqloom import vectors
from seqloom.results import Progress
from seqloom.vectors import BenchmarkScore, Neighbor, Vectors
from seqloom.vectors.word2vec import Word2VecOptions
from seqloom.vectors.word2vec import train as train_word2vec

FAST = {"dim": 6, "epochs": 2, "threads": 1, "progress": False}


def some() -> Vectors:
    rows = [[1, 0, 0], [1, 1, 0], [1, 0, 1], [1, 1, 1], [-1, 0.2, 0.1], [-1, 0, 0.3]]
    return Vectors(
        ["man", "king", "woman", "queen", "river", "bank"],
        np.array(rows, dtype=np.float32),
        {"method": "by hand"},
    )


@pytest.mark.parametrize(
    "data",
    [
        lambda path: str(path),
        lambda path: path,
        lambda path: [str(path)],
        lambda path: (path,),
        lambda path: [line.split() for line in path.read_text("utf-8").splitlines()],
        lambda path: tuple(tuple(line.split()) for line in path.read_text("utf-8").splitlines()),
    ],
    ids=["str", "path", "list of str", "tuple of paths", "sentences", "tuple of tuples"],
)
def test_data_are_a_path_paths_or_sentences(text: Path, data: Callable):
    """A str is a path, never letters; every form of the same text gives the same bits as word2vec on the file."""
    found = vectors.train(data(text), **FAST)
    own = train_word2vec(text, Word2VecOptions(dim=6, epochs=2), threads=1)
    assert list(found.words) == own.vocabulary.words and found.meta["losses"] == own.losses
    np.testing.assert_array_equal(found.matrix, own.vectors)


def test_several_files_are_one_text(text: Path):
    found = vectors.train([text, text], **FAST)
    once = vectors.train(text, **FAST)
    assert found.meta["corpus_words"] == 2 * once.meta["corpus_words"]
    assert (found.meta["source"], once.meta["source"]) == ("text+text", "text")


def test_the_world_is_data_unless_a_file_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert "bank" in vectors.train("world", method="ppmi-svd", dim=5, progress=False)
    Path("world").write_text("a b c d\n" * 9, "utf-8")
    assert len(vectors.train("world", **FAST)) == 4


@pytest.mark.parametrize(
    "data, options, sentence",
    [
        ("no such file", {}, "no such file"),
        (
            ["the cat sat", "the dog"],
            {},
            "the cat sat: no such file; if this is a sentence, give it as a list",
        ),
        ((line for line in [["a", "b"]]), {}, "a generator can be read only once"),
        ([], {}, "empty"),
        ([["a", "b"]] * 9, {"method": "elmo"}, "no method 'elmo'; choose one of skip-gram"),
        ([["a", "b"]] * 9, {"window": 0}, "--window is 0; give more than 0"),
        ([["a", "b"]] * 9, {"epochs": -1}, "--epochs is -1"),
        ([["a", "b"]] * 9, {"lr": float("nan")}, "--lr is nan"),
        ([["a", "b"]] * 9, {"subsample": -0.1}, "--subsample is -0.1; give 0 or more"),
        ([["a", "b"]] * 9, {"threads": -1}, "threads -1"),
        ([["a", "b"]] * 9, {"method": "glove", "subwords": True}, "glove has no subwords"),
        ([["a"] * 20], {}, "only one word, 'a': lower --min-count"),
        ([["a", "b"]] * 2, {}, "no word occurs 5 times .* lower --min-count"),
    ],
)
def test_mistakes_of_training_are_one_sentence(data: object, options: dict, sentence: str):
    with pytest.raises(ValueError, match=sentence):
        vectors.train(data, **{**FAST, **options})


def test_an_unknown_option_is_refused(text: Path):
    with pytest.raises(TypeError, match="vector_size"):
        vectors.train(text, vector_size=100)


@pytest.mark.parametrize("method", ["skip-gram", "cbow", "glove"])
def test_progress_goes_to_a_function(text: Path, method: str):
    seen: list[Progress] = []
    found = vectors.train(text, method, dim=6, epochs=3, threads=1, progress=seen.append)
    assert seen[-1].done == seen[-1].total and seen[-1].numbers["loss"] == found.meta["losses"][-1]
    assert [one.done for one in seen] == sorted(one.done for one in seen) and len(seen) >= 3


def test_nothing_is_printed_and_the_log_tells_what_is_read(
    text: Path, capsys: pytest.CaptureFixture, caplog: pytest.LogCaptureFixture
):
    with caplog.at_level(logging.INFO, "seqloom"):
        vectors.train(text, "ppmi-svd", dim=4, progress=True)
    assert capsys.readouterr() == ("", "") and caplog.records[0].name == "seqloom.vectors"
    assert caplog.messages[0] == "text: 2,380 words, vocabulary 17"


def test_neighbours_are_named_values():
    found = some()
    near = found.nearest("king", n=2)
    assert near[0] == Neighbor("queen", near[0].score) and near[0].to_dict() == {
        "word": "queen",
        "score": near[0].score,
    }
    word, score = near[0]
    assert (word, score) == (near[0].word, near[0].score)
    assert found.nearest(["king", "bank"], n=2) == [near, found.nearest("bank", n=2)]
    assert found.nearest(("king",), n=2) == [near] and found.nearest([]) == []
    assert found.nearest(found["king"], n=1)[0].word == "king"
    assert [one.word for one in found.analogy("man", "king", "woman", n=1)] == ["queen"]
    assert len(found.nearest("king")) == 5 and len(found.analogy("man", "king", "woman")) == 3


def test_one_word_is_not_taken_letter_by_letter():
    with pytest.raises(ValueError, match="give a list of words"):
        some().odd_one_out("king")
    assert some().odd_one_out(["king", "queen", "river"]) == "river"


@pytest.mark.parametrize("name", ["v", "v.txt", "v.vec.gz", "v.bin", "v.npz"])
def test_saved_vectors_are_loaded_and_nothing_is_overwritten_unasked(name: str, tmp_path: Path):
    some().save(tmp_path / name)
    found = vectors.load(str(tmp_path / name))
    assert list(found.words) == list(some().words)
    np.testing.assert_array_equal(found.matrix, some().matrix)
    with pytest.raises(ValueError, match="exists already; choose another --out, such as ") as caught:
        some().save(tmp_path / name)
    assert f"{tmp_path / name.replace('v', 'v-2', 1)}, or" in str(caught.value)
    some().first(2).save(tmp_path / name, overwrite=True)
    assert len(vectors.load(tmp_path / name)) == 2


def test_an_interrupted_overwrite_leaves_the_old_vectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    some().save(tmp_path / "v")
    broken = Vectors(["a", "b\nc"], np.eye(2, dtype=np.float32))
    with pytest.raises(ValueError, match="contains a line end"):
        broken.save(tmp_path / "v", overwrite=True)
    assert len(vectors.load(tmp_path / "v")) == 6 and [one.name for one in tmp_path.iterdir()] == ["v"]


def test_benchmarks_take_vectors_or_a_path_and_one_file_or_several(tmp_path: Path):
    (tmp_path / "pairs.tsv").write_text(
        "man\tking\t8\nking\tqueen\t9\nriver\tking\t1\nman\tbank\t2\nno\tone\t1\n"
    )
    (tmp_path / "questions.txt").write_text(": royal\nman king woman queen\n: unknown\na b c d\n", "utf-8")
    some().save(tmp_path / "v")
    files = [tmp_path / "pairs.tsv", tmp_path / "questions.txt"]
    scores = vectors.evaluate(tmp_path / "v", files)
    assert [score.section for score in scores] == ["pairs", "royal", "unknown", "total"]
    assert vectors.evaluate(some(), str(files[0])) == scores[:1]
    assert isinstance(scores[0], BenchmarkScore) and (scores[0].n, scores[0].total) == (4, 5)
    records = [score.to_dict() for score in scores]
    assert (
        records[2]["value"] is None and records[2]["low"] is None
    )  # no question has vectors: no number, and no NaN
    json.dumps(records, allow_nan=False)


def test_a_notebook_shows_the_first_words_without_running_their_text():
    odd = Vectors(["<script>", "b", "c"], np.array([[1.0, 0], [1, 0.1], [0, 1]]))
    shown = odd._repr_html_()
    assert "<script>" not in shown and "&lt;script&gt;" in shown and "Vectors(3 words × 2)" in shown
    assert "b 1.00" in shown and repr(some()) == "Vectors(6 words × 3, by hand)"
    assert "<table>" in Vectors(["alone"], np.eye(1))._repr_html_()


@pytest.mark.parametrize(
    "module", ["benchmarks", "formats", "projection", "training", "vector_writer", "vectors"]
)
def test_examples_in_docstrings_run(module: str):
    results = doctest.testmod(import_module(f"seqloom.vectors.{module}"))
    assert results.attempted and not results.failed


def test_the_module_is_there_without_numpy_until_it_is_used():
    code = (
        "import sys, seqloom\n"
        "names = dir(seqloom.vectors)\n"
        "print(sorted({'numpy', 'numba', 'torch'} & set(sys.modules)), names)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"[] {sorted(vectors.__all__)}"


@pytest.mark.parametrize("place", [".", "..", "/"])
@pytest.mark.parametrize("overwrite", [False, True])
def test_a_place_without_a_name_is_refused(place: str, overwrite: bool, tmp_path: Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="give --out a name"):
        some().save(place, overwrite=overwrite)


def test_a_minimum_count_that_leaves_little_is_told(caplog: pytest.LogCaptureFixture):
    """A short text has few words that occur five times; a long one is not told."""
    few = [[f"word{i}", "the", "a"] for i in range(40)]
    for options, said in (({}, True), ({"min_count": 1}, False), ({"max_vocab": 2}, False)):
        caplog.clear()
        vectors.train(few, dim=4, epochs=1, threads=1, progress=False, **options)  # type: ignore[arg-type]
        told = [message for message in caplog.messages if "--min-count 1" in message]
        assert bool(told) == said
    caplog.clear()
    vectors.train(
        [[f"word{i % 30}", "the"] for i in range(600)] + [["once"]],
        dim=4,
        epochs=1,
        threads=1,
        progress=False,
    )
    assert not any("--min-count 1" in message for message in caplog.messages)
