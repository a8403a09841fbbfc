"""The ledger: numbers with other signatures, data or tokenizers share no column without a mark, and only like numbers are ranked."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import seqloom
from seqloom import world
from seqloom.cli import main
from seqloom.evaluation import evaluate
from seqloom.measure.number import Number, letter
from seqloom.studies import compare, measuring
from seqloom.studies.likeness import (
    Conditions,
    comparable,
    letters,
    marks_of,
    ranked_rows,
    shared_signature,
    windows_text,
)

TINY = ("model.dim=8", "model.stack.layers=1", "model.stack.dim=8", "batches.batch=4", "batches.width=8")
LSTM = {"model.dim": 8, "model.stack.dim": 8, "batches.width": 8, "batches.batch": 4}


def test_only_like_signatures_are_ranked() -> None:
    beam, greedy, character = (
        Number("bleu", 1.0, f"BLEU|tok:{tok}|search:{search}|seed:0")
        for tok, search in (("13a", "beam5"), ("13a", "greedy"), ("char", "beam5"))
    )
    rows = [Conditions(comparable(one)) for one in (beam, greedy, beam, character)]
    assert ranked_rows(rows) == [True, False, True, False]
    assert marks_of(rows) == [
        (),
        ("no rank: measured with search:greedy, not search:beam5",),
        (),
        ("no rank: measured with tok:char, not tok:13a",),
    ]
    assert ranked_rows(rows[:2]) == [False, False] and ranked_rows(rows[:1]) == [True]
    assert ranked_rows(rows[::2][:1] * 2) == [True, True]


def test_scores_per_token_need_one_tokenizer() -> None:
    perplexities = [
        Number("perplexity", 1.0, f"perplexity|tokens:9|tokenizer:{name}|seed:0") for name in "ab"
    ]
    assert comparable(perplexities[0]) != comparable(perplexities[1])
    bits = [Number("bits_per_byte", 1.0, f"bits|bytes:9|tokenizer:{name}|seed:0") for name in "ab"]
    assert comparable(bits[0]) == comparable(bits[1])
    alike = [Number("bleu", 1.0, "BLEU|tok:13a|seed:0"), Number("bleu", 2.0, "BLEU|tok:13a|seed:12")]
    assert shared_signature(alike, "abc") == "BLEU|tok:13a|data:abc"


def test_other_conditions_are_marked() -> None:
    usual = Conditions("x", "t1", "width:8", "d1", "a.txt")
    rows = [usual, usual._replace(tokenizer="t2"), usual._replace(windows="width:4"), usual]
    rows += [
        usual._replace(training="d2", training_names="b.txt"),
        usual._replace(training="d3"),
        Conditions("x"),
    ]
    marks = marks_of(rows)
    assert marks[0] == marks[3] == marks[6] == () and all(ranked_rows(rows))
    assert marks[1] == ("tokenizer t2, not t1: no comparison per token",)
    assert marks[2] == (
        "reads blocks of 4 tokens and carries its state on, not blocks of 8 tokens and carries its state on; "
        "the scores may be compared: each model reads the same text as it was trained to",
    )
    assert windows_text("width:64|stride:64") == "separate windows of 64 tokens"
    assert windows_text("width:64|stride:32") == "separate windows of 64 tokens that begin every 32"
    assert marks[4] == ("trained on b.txt, not a.txt",)
    assert marks[5] == ("trained on a.txt (d3), not d1",)
    assert letters(marks) == {
        reason: name for (reason,), name in zip(marks[1:3] + marks[4:6], "abcd", strict=True)
    }
    assert [letter(number) for number in (0, 25, 26, 27, 26 * 27)] == ["a", "z", "aa", "ab", "aaa"]


def reviews(path: Path, seed: int, count: int = 60) -> Path:
    rng = np.random.default_rng(seed)
    words = [f"word{number}" for number in range(200)]
    rows = [
        f"{' '.join([*rng.choice(words, 8), 'good' if n % 2 else 'bad'])}\t{'pos' if n % 2 else 'neg'}"
        for n in range(count)
    ]
    path.write_text("\n".join(rows) + "\n", "utf-8")
    return path


def test_compare_counts_test_records_in_the_training_data(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, test = reviews(tmp_path / "train.tsv", 0), reviews(tmp_path / "test.tsv", 1, 20)
    copied = data.read_text("utf-8").splitlines()[:5]
    near = copied[0].replace(copied[0].split()[3], "other")
    test.write_text("\n".join([test.read_text("utf-8").strip(), *copied[1:], near]) + "\n", "utf-8")
    caplog.set_level("INFO")
    found = compare(
        "naive-bayes", "logistic", data=data, test=test, out=tmp_path / "s", threads=1, progress=False
    )
    sentence = "5 of 25 test records are in the training data exactly or nearly, 20.0 %: 4 exactly, 0 but for case and punctuation, 1 with"
    logged = [
        record.getMessage() for record in caplog.records if "test records are in" in record.getMessage()
    ]
    assert len(logged) == 1 and sentence in logged[0] and caplog.records[-1].levelname
    assert any(sentence in line for line in found.lines())
    assert sentence in found.page.read_text("utf-8")  # type: ignore[union-attr]
    assert [row.leaks.near for row in found.rows if row.leaks] == [5, 5]
    saved = json.loads((tmp_path / "s" / "table.json").read_text("utf-8"))
    assert saved["rows"][0]["leaks"]["exact"] == 4 and saved["rows"][0]["marks"] == []


def test_finished_runs_of_other_data_are_marked(tmp_path: Path) -> None:
    test = reviews(tmp_path / "test.tsv", 9, 20)
    runs = []
    for name, seed in (("one", 0), ("two", 0), ("three", 3)):
        data = reviews(tmp_path / f"data{seed}.tsv", seed)
        runs.append(str(seqloom.fit("logistic", data=data, out=tmp_path / name, progress=False).folder))
    found = compare(*runs, test=test, out=tmp_path / "s", progress=False)
    marks = {row.system: row.marks for row in found.rows}
    assert marks["one"] == marks["two"] == ()
    assert "trained on data3.tsv, not data0.tsv" in marks["three"]
    lines = found.lines()
    assert "note" in lines[0].split() and any("trained on data3.tsv, not data0.tsv" in line for line in lines)


def test_a_system_that_is_measured_in_another_way_gets_no_rank(tmp_path: Path, monkeypatch) -> None:
    data, test = reviews(tmp_path / "train.tsv", 0), reviews(tmp_path / "test.tsv", 1, 20)
    real = measuring.evaluate

    def measured_otherwise(run, *arguments):
        found = real(run, *arguments)
        if "logistic" not in str(run.folder):
            return found
        return replace(
            found, numbers=tuple(replace(one, signature=f"{one.signature}|search:other") for one in found)
        )

    monkeypatch.setattr(measuring, "evaluate", measured_otherwise)
    found = compare("naive-bayes", "logistic", data=data, test=test, out=tmp_path / "s", progress=False)
    assert [row.rank for row in found.rows] == [None, None] and found.recommended is None
    assert any("no rank: measured with" in line for line in found.lines())


def test_evaluate_says_what_it_was_trained_on(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    data, test = reviews(tmp_path / "train.tsv", 0), reviews(tmp_path / "test.tsv", 1, 20)
    run = seqloom.fit("naive-bayes", data=data, out=tmp_path / "run", progress=False)
    assert evaluate(run, str(test)).leaks.near == 0  # type: ignore[union-attr]
    whole = evaluate(run, str(data))
    assert whole.leaks is not None and whole.leaks.exact == whole.leaks.test_records == 60
    assert "60 of 60 test records are in the training data" in caplog.text
    record = ("word1 word2 word3 word4 word5 word6 word7 word8 good", "pos")
    assert evaluate(run, [record]).leaks.test_records == 1  # type: ignore[union-attr]
    data.unlink()
    caplog.clear()
    caplog.set_level("INFO")
    assert evaluate(run, str(test)).leaks is None and "was not checked" in caplog.text


def test_a_list_of_runs_marks_scores_on_other_data(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    world.write(tmp_path / "world", train=60, valid=10, test=10)
    for name, side in (("a", "train"), ("b", "train"), ("c", "valid")):
        seqloom.fit(
            "lstm-lm",
            LSTM,
            data=tmp_path / "world" / f"{side}.en",
            steps=2,
            out=tmp_path / "runs" / name,
            progress=False,
        )
    main(["runs", "list", str(tmp_path / "runs")])
    out = capsys.readouterr().out.splitlines()
    column = out[0].split().index("on")
    assert [line.split()[column + 1] for line in out[1:4]] == ["a", "a", "b"]  # the task has two words
    assert "do not compare them" in out[5] and out[6].startswith("a: data ") and "tokenizer" in out[7]
    main(["runs", "list", str(tmp_path / "runs"), "--json"])
    found = [json.loads(line)["measured_on"] for line in capsys.readouterr().out.splitlines()]
    assert found[0] == found[1] != found[2] and found[0].startswith("data:")
    main(["runs", "list", str(tmp_path / "runs" / "a")])
    assert "on" not in capsys.readouterr().out.split("\n")[0].split()
