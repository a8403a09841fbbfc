"""Labelled tasks from file to answer: what is evaluated is what is predicted, files come back filled, wrong ones are refused in one line."""

import csv
import json
import shutil
from pathlib import Path

import conllu
import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score

import seqloom
from seqloom.cli import main
from seqloom.evaluation import evaluate, evaluate_labels
from seqloom.files import sha256
from seqloom.inference import prediction
from seqloom.inference.file_formats import fill_file
from seqloom.inference.question_answering import TokenSpan, best_of_windows
from seqloom.text import lines
from seqloom.text.records import RecordSchema
from seqloom.text.store import build, in_memory_store
from seqloom.train.checkpoint import latest
from seqloom.train.loop import TrainLoop
from support.labelled_data import OPTIONS, put, squad


def numbers(run, path: str) -> dict[str, float]:
    return {number.name: number.value for number in evaluate(run, [path])}


def out(capsys: pytest.CaptureFixture) -> str:
    return capsys.readouterr().out


def fails(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    """The one line of a command that ends with 2."""
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    said = capsys.readouterr().err.strip().splitlines()
    assert ended.value.code == 2 and len(said) == 1, said
    return said[0]


@pytest.mark.parametrize(
    "name, measure, least",
    [
        ("tagger", "accuracy", 99),
        ("classifier", "accuracy", 97),
        ("nli", "accuracy", 90),
        ("similarity", "spearman", 0.6),
        ("qa", "exact_match", 60),
    ],
)
def test_each_task_is_learnt(name, measure, least, trained, corpora):
    found = numbers(trained[name], corpora[name][1])
    assert found[measure] >= least and "nats_per_label" in found
    assert measure in {number.name for number in trained[name].results.valid}


@pytest.mark.parametrize("name", OPTIONS)
def test_the_numbers_of_some_batches_are_those_of_their_records(name, trained, corpora):
    """Batches are of like length, so the records of the first do not follow each other in the file."""
    run = trained[name]

    def longer(record: tuple) -> tuple:
        first, *rest = record
        return (first * 2, rest[0] * 2) if isinstance(first, list) else (f"{first} {first}", *rest)

    records = [
        record if number % 2 else longer(record)
        for number, record in enumerate(run.config.reader([corpora[name][1]]))
    ]
    layout = RecordSchema(run.config.kinds(), [run.tokenizer], run.adds_eos, run.labels)
    store = in_memory_store(records, layout)
    chosen = sorted(next(run.config.data(store).ordered_groups())[0].tolist())
    assert chosen != list(range(len(chosen)))
    some, same = (
        evaluate_labels(run, store, 1).numbers,
        evaluate_labels(run, in_memory_store([records[number] for number in chosen], layout)).numbers,
    )
    assert [number.name for number in some] == [number.name for number in same]
    assert [number.value for number in some] == pytest.approx([number.value for number in same])
    if name == "classifier":
        hits = [
            one.label == records[number][1]
            for number, one in enumerate(seqloom.predict(run, [text for text, _ in records]))
            if number in chosen
        ]
        assert some[0].value == pytest.approx(100 * np.mean(hits))


def test_a_measurement_that_fails_does_not_cost_the_run(corpora, tmp_path):
    valid = put(tmp_path / "valid.tsv", "λόγος\tking\n")
    options = [*OPTIONS["classifier"], "train.steps=2", "train.eval_every=2"]
    with pytest.raises(ValueError, match="every token of these records is unknown"):
        seqloom.fit(
            "classifier",
            *options,
            data=[corpora["classifier"][0]],
            valid=[valid],
            out=tmp_path / "run",
            progress=False,
        )
    assert seqloom.predict(seqloom.load(tmp_path / "run"), ["the king"])


def test_a_tagger_is_worth_what_it_writes(trained, corpora, tmp_path):
    """The accuracy of the evaluation is that of the file that predict writes, counted by others."""
    run, path = trained["tagger"], corpora["tagger"][1]
    hidden = put(
        tmp_path / "x.conllu",
        Path(path).read_text("utf-8").replace("NOUN", "_").replace("VERB", "_").replace("DET", "_"),
    )
    written = put(tmp_path / "y.conllu", "".join(fill_file(run, hidden)))
    rows = [
        [
            token["upos"]
            for sentence in conllu.parse(Path(p).read_text("utf-8"))
            for token in sentence
            if isinstance(token["id"], int)
        ]
        for p in (path, written)
    ]
    assert numbers(run, path)["accuracy"] == pytest.approx(100 * accuracy_score(*rows))
    ours, theirs = Path(written).read_text("utf-8").splitlines(), Path(path).read_text("utf-8").splitlines()
    assert len(ours) == len(theirs) and "1-2\tthedog" in ours[1] and ours[0] == theirs[0]
    for one, other in zip(ours, theirs, strict=True):  # nothing but the column has changed
        a, b = one.split("\t"), other.split("\t")
        assert a[:3] == b[:3] and a[4:] == b[4:]


@pytest.mark.parametrize("name", ["classifier", "nli"])
def test_a_table_comes_back_with_label_and_probability(name, trained, corpora, tmp_path):
    run, path = trained[name], corpora[name][1]
    rows = [line.split("\t") for line in Path(path).read_text("utf-8").splitlines()]
    written = [line.split("\t") for line in "".join(fill_file(run, path)).splitlines()]
    assert [row[:-2] for row in written] == rows
    assert numbers(run, path)["accuracy"] == pytest.approx(
        100 * np.mean([row[-2] == own[-1] for row, own in zip(written, rows, strict=True)])
    )
    assert all(0.5 <= float(row[-1]) <= 1 for row in written)
    texts = [tuple(row[:-1]) if name == "nli" else row[0] for row in rows[:7]]
    found = seqloom.predict(run, texts)
    assert [one.label for one in found] == [row[-2] for row in written[:7]]
    assert all(
        sum(one.probabilities.values()) == pytest.approx(1)
        and one.probabilities[one.label] == one.probability
        for one in found
    )
    bare = put(
        tmp_path / "bare.csv", "".join(",".join(f'"{cell}"' for cell in row[:-1]) + "\n" for row in rows)
    )
    with_commas = list(csv.reader("".join(fill_file(run, bare)).splitlines()))
    assert [row[-2:] for row in with_commas] == [row[-2:] for row in written]


def test_the_order_of_the_file_and_its_neighbours_change_nothing(trained):
    run = trained["tagger"]
    sentences = [["The", "dog", "sees", "a", "cat", "."][:n] for n in (6, 1, 4, 2, 6, 3)]
    together = seqloom.predict(run, sentences)
    for words, one in zip(sentences, together, strict=True):
        (alone,) = seqloom.predict(run, [words])
        assert (
            one.words == words
            and one.tags == alone.tags
            and one.probabilities == pytest.approx(alone.probabilities, abs=1e-5)
        )


def test_answers_stand_in_their_passage(trained, corpora):
    run, path = trained["qa"], corpora["qa"][1]
    assert run.labels == ["none"]
    asked = [
        (q["question"], p["context"], [a["text"] for a in q["answers"]])
        for article in json.loads(Path(path).read_text())["data"]
        for p in article["paragraphs"]
        for q in p["qas"]
    ]
    found = seqloom.predict(run, [(question, passage) for question, passage, _ in asked])
    assert all(
        passage[one.start : one.end] == one.text for one, (_, passage, _) in zip(found, asked, strict=True)
    )
    assert all(one.text or 0.2 < one.probability < 1 for one in found) and not all(one.text for one in found)
    hits = [one.text == (right[0] if right else "") for one, (_, _, right) in zip(found, asked, strict=True)]
    assert numbers(run, path)["exact_match"] == pytest.approx(100 * np.mean(hits))
    lines = [json.loads(line) for line in "".join(fill_file(run, path)).splitlines()]
    assert [line["answer"] for line in lines] == [one.text for one in found] and lines[3]["id"] == "3"


def test_a_run_that_knows_only_questions_with_answers_can_be_opened(trained, tmp_path):
    """Its list of labels is empty; where the file is missing too, as in older runs. One that has learnt that there may be no answer needs it."""
    options = [*OPTIONS["qa"], "train.steps=2", "train.eval_every=2"]
    seqloom.fit(
        "qa",
        *options,
        data=[put(tmp_path / "x.json", squad(30, 0, False))],
        out=tmp_path / "run",
        progress=False,
    )
    assert seqloom.load(tmp_path / "run").labels == []
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    (tmp_path / "run" / "data.json").write_text(json.dumps(manifest["data"]))
    for name in ("labels.json", "manifest.json"):
        (tmp_path / "run" / name).unlink()
    assert seqloom.predict(
        seqloom.load(tmp_path / "run"), [("who sees the cat ?", "the king sees the cat .")]
    )[0].text
    folder = shutil.copytree(trained["qa"].folder, tmp_path / "other")
    (folder / "labels.json").unlink()
    with pytest.raises(ValueError, match=r"labels\.json: (missing|not the file)"):
        seqloom.load(folder)


def test_a_long_passage_is_read_in_parts(trained):
    run = trained["qa"]
    more = "the street finds the river . " * 200
    (one,) = seqloom.predict(run, [("who sees the cat ?", more + "the king sees the cat . " + more)])
    assert one.end > one.start >= 0 and one.text in more + "the king sees the cat . "


def test_json_lines_and_plain_lines(trained, corpora, tmp_path, capsys):
    run = str(trained["tagger"].folder)
    path = put(
        tmp_path / "x.jsonl", '{"words": ["The", "dog"], "id": 7}\n\n{"words": ["a", "cat", "sees"]}\n'
    )
    main(["predict", run, "--file", path])
    first, second = (json.loads(line) for line in out(capsys).split("\n\n"))
    assert first["id"] == 7 and first["tags"] == ["DET", "NOUN"] and second["tags"] == ["DET", "NOUN", "VERB"]
    main(["predict", run, "--file", put(tmp_path / "x.txt", "The dog sees a cat .\n")])
    assert out(capsys) == "The dog sees a cat .\tDET NOUN VERB DET NOUN PUNCT\n"
    main(["predict", run, "--file", put(tmp_path / "x.conll", "-DOCSTART- O\n\nThe X\ndog X\n")])
    assert out(capsys) == "-DOCSTART- O\n\nThe X DET\ndog X NOUN\n"
    target = tmp_path / "filled.tsv"
    main(
        [
            "predict",
            str(trained["classifier"].folder),
            "--file",
            corpora["classifier"][1],
            "--out",
            str(target),
        ]
    )
    assert len(target.read_text("utf-8").splitlines()) == 120 and out(capsys) == ""
    main(["predict", str(trained["similarity"].folder), "--file", corpora["similarity"][1], "--json"])
    lines = [json.loads(line) for line in out(capsys).splitlines()]
    assert len(lines) == 120 and set(lines[0]) == {"first", "second", "value"}


def test_evaluate_says_what_was_taken_for_what(trained, corpora, capsys):
    main(["evaluate", str(trained["classifier"].folder), corpora["classifier"][1], "--confusion", "--json"])
    report = json.loads(out(capsys))
    assert {"accuracy", "macro_f1", "calibration_error", "nats_per_label"} == {
        number["name"] for number in report["numbers"]
    }
    counts = np.array(report["confusion"]["counts"])
    assert report["confusion"]["labels"] == ["king", "none"] and counts.sum() == 120
    assert report["numbers"][0]["value"] == pytest.approx(100 * np.trace(counts) / 120)
    main(["evaluate", str(trained["classifier"].folder), corpora["classifier"][1], "--confusion"])
    assert "right" in out(capsys)


def test_the_labels_of_a_run_are_guarded(trained, tmp_path):
    folder = shutil.copytree(trained["classifier"].folder, tmp_path / "run")
    kept = json.loads((folder / "labels.json").read_text())
    assert kept["labels"] == ["king", "none"]
    for change in (kept | {"labels": ["none", "king"]}, [], kept | {"labels": [1, 2]}):
        (folder / "labels.json").write_text(json.dumps(change))
        with pytest.raises(ValueError, match=r"labels\.json: (missing|not the file)"):
            seqloom.load(folder)
    (folder / "labels.json").unlink()
    with pytest.raises(ValueError, match=r"labels\.json: (missing|not the file)"):
        seqloom.load(folder)


WRONG = {
    "label": ("classifier", "x.tsv", "the dog\tking\na cat\tqueen\n", "x.tsv:2: the label 'queen' is not in the training data (king, none)"),
    "cells": ("classifier", "x.tsv", "the dog\tking\na cat\n", "x.tsv:2: 1 cells, but the first row has 2"),
    "empty": ("classifier", "x.tsv", "the dog\tking\n \tnone\n", "x.tsv:2: an empty text"),
    "unknown": ("classifier", "x.tsv", "λόγος\tking\n", "every token of these records is unknown to the run"),
    "tags": ("tagger", "x.conllu", "1\tthe\t_\tZZZ\t_\t_\t_\t_\t_\t_\n\n", "x.conllu:1: the label 'ZZZ' is not in"),
    "row": ("tagger", "x.conllu", "1\tthe\t_\n\n", "x.conllu:1: the sentence that starts here is not CoNLL-U"),
    "number": ("similarity", "x.tsv", "a dog\ta cat\tmuch\n", "x.tsv:1: 'much' is not a number"),
    "span": ("qa", "x.json", '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": 1, "question": "q", '
             '"answers": [{"answer_start": 1, "text": "b"}]}]}]}]}', "question 1: the answer 'b' is not at character 1"),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_file_is_one_line(case, trained, tmp_path, capsys):
    name, file, text, sentence = WRONG[case]
    assert sentence in fails(capsys, "evaluate", str(trained[name].folder), put(tmp_path / file, text))


@pytest.mark.parametrize(
    "name, file, text, sentence",
    [
        ("classifier", "x.tsv", "the dog\n\na\tb\n", "x.tsv:3: 2 cells, but the first row has 1"),
        ("classifier", "x.txt", "\n\n", "x.txt: the file has no records"),
        ("classifier", "x.jsonl", '{"txt": "a"}\n', "x.jsonl:1: not a JSON object with text"),
        ("classifier", "x.txt", "λόγος\n", "every token of these records is unknown"),
        (
            "classifier",
            "x.conllu",
            "1\tthe\t_\t_\t_\t_\t_\t_\t_\t_\n",
            "the run reads text, but such a file has words",
        ),
        ("nli", "x.txt", "one text\n", "the run reads text and text, but such a file has text"),
        ("nli", "x.tsv", "one text\n", "x.tsv:1: 1 cells, but 2 are read"),
        ("tagger", "x.jsonl", '{"words": []}\n', "x.jsonl:1: a sentence without words"),
        ("tagger", "x.jsonl", '{"words": 5}\n', "x.jsonl:1: a int instead of words"),
        ("qa", "x.jsonl", '{"question": "q", "context": " "}\n', "x.jsonl:1: the passage is empty"),
        (
            "classifier",
            "x.jsonl",
            '{"text": "good"}\n{"text": "\\ud800 good"}\n',
            "x.jsonl:2: half a surrogate pair",
        ),
        ("tagger", "x.jsonl", '{"words": ["the", "\\udc00"]}\n', "x.jsonl:1: half a surrogate pair"),
        (
            "tagger",
            "x.jsonl",
            '{"words": ["the", "d\\u0000g"]}\n',
            "x.jsonl:1: the word 'd\\x00g' contains a NUL",
        ),
        ("qa", "x.jsonl", '{"question": "\\ud800", "context": "a"}\n', "x.jsonl:1: half a surrogate pair"),
        ("qa", "x.jsonl", '{"question": "q", "context": "\\ud800"}\n', "x.jsonl:1: half a surrogate pair"),
    ],
)
def test_a_file_that_cannot_be_filled_is_one_line(name, file, text, sentence, trained, tmp_path, capsys):
    assert sentence in fails(
        capsys, "predict", str(trained[name].folder), "--file", put(tmp_path / file, text)
    )


def test_half_a_character_is_refused_before_training(tmp_path):
    path = put(tmp_path / "x.json", squad(3, 0, True).replace("who", "\\ud800", 1))
    with pytest.raises(ValueError, match="question 0: half a surrogate pair"):
        seqloom.fit("qa", *OPTIONS["qa"], data=[path], out=tmp_path / "run", progress=False)


def test_a_run_that_writes_gives_no_labels_and_the_other_way_round(trained, text, tmp_path, capsys):
    options = ["model.dim=8", "model.stack.dim=8", "train.steps=2", "train.eval_every=2"]
    run = seqloom.fit("lstm-lm", *options, data=[str(text)], out=tmp_path / "lm", progress=False)
    assert "predict does not fit this run, which continues text; use: seqloom generate" in fails(
        capsys, "predict", str(run.folder), "--file", str(text)
    )
    options = [
        "model.dim=8",
        "model.stack.layers=1",
        "model.stack.heads=1",
        "train.steps=1",
        "train.eval_every=1",
        "batches.width=16",
        "tokenizer.size=300",
    ]
    run = seqloom.fit("bert-small", *options, data=[str(text)], out=tmp_path / "masked", progress=False)
    assert "use: seqloom fill" in fails(capsys, "predict", str(run.folder), "--file", str(text))
    assert "seqloom predict" in fails(capsys, "generate", str(trained["tagger"].folder), "the dog")


def test_a_record_of_unknown_words_is_answered_like_any_other(trained, tmp_path, monkeypatch):
    """A file is refused where none of its records is known, not some that are in memory together."""
    run = trained["classifier"]
    monkeypatch.setattr(prediction, "MAX_RECORDS", 1)
    for text in ("λόγος\nthe king\n", "the king\nλόγος\n", "λόγος\nλόγος\nthe king\nλόγος\n"):
        assert len(list(fill_file(run, put(tmp_path / "x.txt", text)))) == text.count("\n") + 1
    with pytest.raises(ValueError, match="every token of these records is unknown"):
        list(fill_file(run, put(tmp_path / "x.txt", "λόγος\nλόγος\n")))
    assert seqloom.predict(run, ["λόγος"])[0].probability == pytest.approx(
        seqloom.predict(run, ["λόγος", "the king"])[0].probability
    )
    assert seqloom.predict(run, []) == []


def test_a_text_is_no_pair(trained):
    with pytest.raises(ValueError, match="record 2: one text, but the run reads pairs; give two"):
        seqloom.predict(trained["nli"], [("a", "b"), "ab"])


def test_no_answer_is_as_probable_as_the_part_that_doubts_it_most():
    parts = [TokenSpan(3, 4, -5.0, -0.1), TokenSpan(0, 0, -2.0, -0.5)]
    assert (
        best_of_windows(parts, True) == TokenSpan(None, None, -0.5, -0.5)
        and best_of_windows(parts, False) == parts[1]
    )
    assert best_of_windows([*parts, TokenSpan(7, 7, -0.7, -0.9)], True).first == 7


def test_half_written_output_is_no_output(trained, tmp_path, capsys):
    path = put(tmp_path / "x.tsv", "the dog\n" * 3000 + "too\tmany\n")
    fails(
        capsys, "predict", str(trained["classifier"].folder), "--file", path, "--out", str(tmp_path / "y.tsv")
    )
    assert sorted(one.name for one in tmp_path.iterdir()) == ["x.tsv"]


@pytest.mark.parametrize("name", OPTIONS)
def test_a_cut_run_ends_with_the_same_bits(name, corpora, tmp_path, monkeypatch):
    options = [
        *OPTIONS[name],
        "train.steps=12",
        "train.eval_every=4",
        "train.save_every=3",
        "model.word_dropout=0.1",
        "model.dropout=0.1",
    ]
    seqloom.fit(name, *options, data=[corpora[name][0]], out=tmp_path / "whole", progress=False)
    advance = TrainLoop.train_step
    for cut in (2, 7):
        steps = iter(range(cut))

        def failing(self, *arguments, steps=steps):
            if next(steps, None) is None:
                raise InterruptedError
            return advance(self, *arguments)

        monkeypatch.setattr(TrainLoop, "train_step", failing)
        with pytest.raises(InterruptedError):
            seqloom.fit(name, *options, data=[corpora[name][0]], out=tmp_path / str(cut), progress=False)
        monkeypatch.setattr(TrainLoop, "train_step", advance)
        seqloom.fit(name, *options, data=[corpora[name][0]], out=tmp_path / str(cut), progress=False)
        for file in ("model.safetensors", "metrics.jsonl", "labels.json"):
            if (tmp_path / "whole" / file).exists():
                assert sha256(tmp_path / "whole" / file) == sha256(tmp_path / str(cut) / file)
        last = [latest(tmp_path / run / "checkpoints", print).path for run in ("whole", str(cut))]
        assert all(
            sha256(last[0] / f"{part}.safetensors") == sha256(last[1] / f"{part}.safetensors")
            for part in ("model", "optim", "rank-0")
        )


def test_held_out_tags_that_training_lacks_are_said_before_training(corpora, tmp_path):
    odd = put(tmp_path / "odd.conllu", "1\tdog\t_\tODD\t_\t_\t_\t_\t_\t_\n\n")
    with pytest.raises(ValueError, match="the label 'ODD' is not in the training data"):
        seqloom.fit(
            "tagger",
            *OPTIONS["tagger"],
            data=[corpora["tagger"][0]],
            valid=[odd],
            out=tmp_path / "run",
            progress=False,
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("head", ["SoftmaxHead", "CRF"])
@pytest.mark.parametrize("tokenizer", ["{type: BPE, size: 300}", "{type: Characters}"])
def test_any_tokenizer_and_head_tags_words(head, tokenizer, corpora, tmp_path):
    options = [
        *OPTIONS["tagger"],
        f"tokenizer={tokenizer}",
        f"model.head={head}",
        "train.steps=40",
        "train.eval_every=40",
    ]
    run = seqloom.fit("tagger", *options, data=[corpora["tagger"][0]], out=tmp_path / "run", progress=False)
    assert numbers(run, corpora["tagger"][1])["accuracy"] > 95


def test_spans_are_measured_where_tags_mark_them(corpora, tmp_path):
    """Names in columns: span F1 equals seqeval's on what predict writes."""
    from seqeval.metrics import f1_score

    def columns(path: str) -> str:
        rows = [
            line.split("\t")
            for line in Path(path).read_text("utf-8").splitlines()
            if "\t" in line or not line
        ]
        marks = {"DET": "B-NP", "NOUN": "I-NP", "VERB": "O", "PUNCT": "O"}
        return "\n".join(
            "" if len(row) == 1 else f"{row[1]} {marks[row[3]]}"
            for row in rows
            if len(row) == 1 or row[0].isdigit()
        )

    train, test = (
        put(tmp_path / f"{side}.conll", columns(path))
        for side, path in zip(("train", "test"), corpora["tagger"], strict=True)
    )
    options = [*OPTIONS["tagger"], "corpus={type: Columns}", "train.steps=8", "train.eval_every=8"]
    run = seqloom.fit("tagger", *options, data=[train], out=tmp_path / "run", progress=False)
    right, said = [[]], [[]]
    for line in "".join(fill_file(run, test)).splitlines():
        if line:
            right[-1].append(line.split()[1]), said[-1].append(line.split()[2])
        elif right[-1]:
            right.append([]), said.append([])
    found = numbers(run, test)
    assert found["span_f1"] == pytest.approx(100 * f1_score(right, said)) and 0 < found["span_f1"] < 100


def test_memory_does_not_grow_with_the_file(trained, tmp_path, monkeypatch):
    """A file eighteen times as long needs no more memory to be filled: less than 35 bytes a line, whatever garbage waits to be collected."""
    import gc
    import tracemalloc

    monkeypatch.setattr(lines, "BLOCK_BYTES", 4096)
    monkeypatch.setattr(prediction, "MAX_RECORDS", 200)
    peaks = []
    for times in (500, 9000):
        path = put(tmp_path / f"{times}.tsv", "the dog sees a cat .\n" * times)
        gc.collect()
        tracemalloc.start()
        count = sum(1 for _ in fill_file(trained["classifier"], path))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert count == times + 1
    assert peaks[1] < peaks[0] + 300_000


def test_the_confusion_of_a_store_is_that_of_its_files(trained, corpora):
    run, path = trained["nli"], corpora["nli"][1]
    store = build(run.config.reader([path]), run.tokenizer, labels=run.labels)
    found = evaluate_labels(run, store)
    assert found.confusion.counts.sum() == 120 and found.numbers[0].value == numbers(run, path)["accuracy"]
    torch.testing.assert_close(
        torch.tensor(found.confusion.accuracy() * 100), torch.tensor(found.numbers[0].value)
    )
