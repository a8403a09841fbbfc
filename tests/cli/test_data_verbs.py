"""The verbs of data: lines on stdout, JSON, and one line for a mistake."""

import json

import pytest

from seqloom.cli import main


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.tsv"
    rows = [f"film {i} was long\t{'neg' if i < 30 else 'pos'}\n" for i in range(50)]
    path.write_text("review\tlabel\n" + "".join(rows), "utf-8")
    return path


def run(capsys, *words):
    main(list(map(str, words)))
    return capsys.readouterr().out


def test_show(capsys, reviews):
    out = run(capsys, "data", "show", reviews, "--limit", "1").splitlines()
    assert out == [
        "reviews.tsv: table with header, review (text), label (label); 50 records, 200 words",
        "labels: neg 30, pos 20; sorted by label: a held-out share is drawn by content",
        "longest 4 words",
        "film 0 was long | neg",
    ]
    report = json.loads(run(capsys, "data", "show", reviews, "--json"))
    assert report["labels"] == {"neg": 30, "pos": 20} and len(report["first"]) == 3
    assert "labels" not in run(capsys, "data", "show", reviews, "--columns", "review")


def test_split_leaks_and_tokenizer(capsys, reviews, tmp_path):
    out = run(
        capsys, "data", "split", reviews, "--out", tmp_path / "parts", "--valid", "0.1", "--test", "0.2"
    )
    assert [line.split(";")[0] for line in out.splitlines()] == [
        "train: 35 records: neg 21, pos 14",
        "valid: 5 records: neg 3, pos 2",
        "test: 10 records: neg 6, pos 4",
    ]
    out = run(capsys, "data", "leaks", tmp_path / "parts/train.tsv", tmp_path / "parts/test.tsv", "--json")
    assert json.loads(out)["exact"] == 0
    out = run(capsys, "data", "tokenizer", reviews, "--size", "300", "--out", tmp_path / "t.json")
    assert out.splitlines()[-1] == f"tokenizer: {tmp_path / 't.json'}"


def test_cache_and_world(capsys, tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    assert run(capsys, "data", "cache").startswith(f"{tmp_path / 'cache'}: 0 entries")
    assert "removed 0 entries" in run(capsys, "data", "cache", "--prune", "30d")
    assert len(run(capsys, "data", "world", "--limit", "2").split("\n\n")) == 3
    words = (
        "data",
        "world",
        "--out",
        tmp_path / "w",
        "--train",
        "30",
        "--valid",
        "5",
        "--test",
        "5",
        "--json",
    )
    report = json.loads(run(capsys, *words))
    assert {"train.en", "train.fr", "train.tags", "train.banks.tsv", "scenes.jsonl"} <= set(report["files"])


def test_older_names(capsys, tmp_path):
    main(["world", "--show-first", "1"])
    out, err = capsys.readouterr()
    assert (
        "log p(english)" in out
        and "world is now: seqloom data world" in err
        and "--show-first is now --limit" in err
    )


@pytest.mark.parametrize(
    "words, message",
    [
        (["show"], "no files"),
        (["show", "none.tsv"], "no such file"),
        (["show", "--format", "xml", "none.tsv"], "'xml' is not a form of a file"),
        (["split", "none.tsv", "--out", "x"], "no such file"),
        (["cache", "--prune", "soon"], "not a number"),
    ],
)
def test_mistakes_are_one_line(capsys, words, message):
    with pytest.raises(SystemExit) as stopped:
        main(["data", *words])
    out, err = capsys.readouterr()
    assert stopped.value.code == 2 and not out and message in err and err.count("\n") == 1
