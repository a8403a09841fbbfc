"""The functions of seqloom.data: what files hold, how they are divided, what they share."""

import csv
import io
import json
import os
import time

import pytest

import seqloom
from seqloom import data
from seqloom.run_config import Config
from seqloom.text.annotated import Columns, CoNLLU, SQuAD
from seqloom.text.corpus import JSONLines, Parallel, Table
from seqloom.text.tokenizer_file import load

ROWS = [(f"a film of {i} minutes", "neg") for i in range(60)] + [
    (f"a song of {i} minutes", "pos") for i in range(40)
]


def write(path, text):
    path.write_text(text, "utf-8")
    return path


def reviews(folder, rows=ROWS, name="reviews.tsv"):
    return write(folder / name, "review\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))


def test_a_table_sorted_by_label(tmp_path):
    summary = data.show(reviews(tmp_path, [*ROWS, ROWS[-1]]))
    assert summary.lines() == [
        "reviews.tsv: table with header, review (text), label (label); 101 records, 505 words",
        "labels: neg 60, pos 41; sorted by label: a held-out share is drawn by content",
        "1 text occurs twice; longest 5 words",
    ]
    assert summary.first == [list(row) for row in ROWS[:3]] and summary.warnings == []
    shuffled = [ROWS[37 * i % 100] for i in range(100)]
    assert not data.show(reviews(tmp_path, shuffled)).sorted_by_label


def test_every_form_is_shown(tmp_path):
    cases = {
        "t.txt": ("To be or not\nto be\n", "text", ["text"]),
        "t.jsonl": ('{"id": 1, "text": "a b", "label": "x"}\n' * 5, "jsonl", ["text", "label"]),
        "t.conllu": ("1\tTime\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n", "conllu", ["words", "tags"]),
        "t.conll": ("EU B-ORG\n\n", "conll", ["words", "tags"]),
        "t.dict": ("HELLO  HH AH0\n", "dictionary", ["text", "text"]),
        "p.tsv": ("one cat\tun chat\ntwo dogs\tdeux chiens\n", "table", ["text", "text"]),
    }
    for name, (content, form, kinds) in cases.items():
        summary = data.show(write(tmp_path / name, content))
        assert (summary.form, [field["kind"] for field in summary.fields]) == (form, kinds), name
        assert json.dumps(summary.to_dict())
    assert data.show(tmp_path / "t.conllu").labels == {"NOUN": 1}
    both = data.show([write(tmp_path / "a.en", "one\ntwo\n"), write(tmp_path / "a.fr", "un\ndeux\n")])
    assert both.form == "pairs" and both.records == 2
    assert data.show(tmp_path / "t.txt", format="lines").form == "lines"


def test_columns_may_be_chosen(tmp_path):
    path = reviews(tmp_path)
    assert data.show(path, columns="label").labels == {"neg": 60, "pos": 40}
    assert [field["name"] for field in data.show(path, columns=[1, 0]).fields] == ["label", "review"]
    with pytest.raises(ValueError, match="no column 'stars'; the header has 'review', 'label'"):
        data.show(path, columns="stars")
    with pytest.raises(ValueError, match="which has no columns"):
        data.show(write(tmp_path / "t.conll", "EU B-ORG\n\n"), columns="0")


def test_parts_of_a_table_are_those_of_training(tmp_path):
    path = reviews(tmp_path)
    result = data.split(path, tmp_path / "parts", valid=0.1, test=0)
    assert result.records == {"train": 90, "valid": 10} and result.labels["valid"] == {"neg": 6, "pos": 4}
    config = Config.load("classifier", (), path, 0.1)
    _, held = config.stores(config.tokenizer(), labels=config.labels())
    numbers = {held.fields[0].number(i) for i in range(len(held))}
    parts = {name: list(Table([files[0]], header=True)) for name, files in result.files.items()}
    assert parts["valid"] == [row for i, row in enumerate(ROWS) if i in numbers]
    assert parts["train"] == [row for i, row in enumerate(ROWS) if i not in numbers]
    with pytest.raises(ValueError, match="exists and is not an empty folder"):
        data.split(path, tmp_path / "parts")


def test_parts_have_the_form_of_their_file(tmp_path):
    rows = [f"text {i}, with a comma" for i in range(40)]
    output = io.StringIO()
    csv.writer(output).writerows([("review", "label"), *((row, "ab"[i % 2]) for i, row in enumerate(rows))])
    sentences = "".join(f"# {i}\n1\tw{i}\t_\tNOUN\t_\t_\t_\t_\t_\t_\n\n" for i in range(40))
    questions = [
        {"context": f"passage {i}", "qas": [{"id": str(i), "question": "what", "answers": []}]}
        for i in range(40)
    ]
    cases = {
        "t.csv": (output.getvalue(), lambda path: Table([path], header=True)),
        "t.jsonl": (
            "".join(json.dumps({"text": row, "label": "x"}) + "\n" for row in rows),
            lambda path: JSONLines([path]),
        ),
        "t.conllu": (sentences, lambda path: CoNLLU([path])),
        "t.conll": ("".join(f"w{i} O\n\n" for i in range(40)), lambda path: Columns([path])),
        "t.json": (json.dumps({"data": [{"paragraphs": questions}]}), lambda path: SQuAD([path])),
    }
    for name, (content, reader) in cases.items():
        path = write(tmp_path / name, content)
        result = data.split(path, tmp_path / f"parts-{name}", valid=0.2, test=0.2)
        parts = [list(reader(files[0])) for files in result.files.values()]
        assert sorted(record for part in parts for record in part) == sorted(reader(path)), name
        assert list(result.records) == ["train", "valid", "test"] and all(parts), name
        assert [len(part) for part in parts] == list(result.records.values())


def test_pairs_stay_together_and_running_text_is_cut_from_its_end(tmp_path):
    sources, targets = [f"one {i}" for i in range(50)], [f"un {i}" for i in range(50)]
    paths = [
        write(tmp_path / "a.en", "\n".join(sources) + "\n"),
        write(tmp_path / "a.fr", "\n".join(targets) + "\n"),
    ]
    result = data.split(paths, tmp_path / "parts", valid=0.2, test=0.2)
    parts = [pair for files in result.files.values() for pair in Parallel(files)]
    assert sorted(parts) == sorted(zip(sources, targets, strict=True))
    data.split(paths[0], tmp_path / "text", valid=0.1, test=0.1)
    texts = [(tmp_path / "text" / f"{name}.en").read_text() for name in ("train", "valid", "test")]
    assert "".join(texts) == paths[0].read_text() and all(texts)


def test_wrong_splits(tmp_path):
    path = reviews(tmp_path)
    with pytest.raises(ValueError, match="nothing to split off"):
        data.split(path, tmp_path / "a", valid=0, test=0)
    with pytest.raises(ValueError, match="not between 0 and 1"):
        data.split(path, tmp_path / "b", valid=0.6, test=0.6)
    with pytest.raises(ValueError, match="cannot be split"):
        data.split(reviews(tmp_path, ROWS[:1], "one.tsv"), tmp_path / "c")


def test_leaks(tmp_path):
    train = reviews(tmp_path, ROWS, "train.tsv")
    rows = [*ROWS[:2], ("A FILM of 2 minutes!", "pos"), ("something else", "pos")]
    report = data.leaks(train, reviews(tmp_path, rows, "test.tsv"))
    assert (report.train_records, report.test_records, report.exact, report.normalized) == (100, 4, 2, 3)
    assert (
        "3 of 4 test records are in the training data exactly or nearly, 75.0 %: 2 exactly, 1 but for case and punctuation"
        in report.lines()[0]
    )


def test_leaks_of_running_text_say_how_it_was_read(tmp_path):
    """Pieces of running text hide equal lines among other lines."""
    lines = [f"a film of {n} minutes in {2 * n} parts" for n in range(200)]
    train = write(tmp_path / "train.txt", "\n".join(lines) + "\n")
    test = write(tmp_path / "test.txt", "\n".join(lines[1::9]) + "\n")
    report = data.leaks(train, test)
    assert report.unit == "piece" and "test pieces are in" in report.lines()[0]
    assert "with --format lines, line by line" in report.lines()[1]
    by_line = data.leaks(train, test, format="lines")
    assert by_line.unit == "record" and by_line.exact == by_line.test_records == len(lines[1::9])
    assert "--format" not in "".join(by_line.lines())


def test_a_tokenizer_is_trained(tmp_path, text):
    trained = data.train_tokenizer(text, tmp_path / "t.json", type="BPE", size=300)
    assert trained.size <= 300 and trained.characters_per_token > 1
    assert load(tmp_path / "t.json").encode("the king").ids
    with pytest.raises(ValueError, match="is not a type of a tokenizer"):
        data.train_tokenizer(text, type="Letters")


def test_everything_that_commands_leave_in_the_cache_can_be_pruned(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    records = [(f"{'good' if n % 2 else 'bad'} film {n % 7}", "pos" if n % 2 else "neg") for n in range(60)]
    features = "model.features={type: MeanVectors, method: skip-gram, dim: 4, epochs: 1, min_count: 1}"
    run = seqloom.fit("logistic", features, data=records, out=tmp_path / "run", progress=False)
    seqloom.evaluate(run, records[:10])
    monkeypatch.setattr("seqloom.data.world_files.SIZES", {"train": 20, "valid": 5, "test": 5})
    data.show("world")
    text = tmp_path / "text.txt"
    text.write_text("".join(f"the film {n} is good\n" for n in range(50)), "utf-8")
    seqloom.fit(
        "lstm-lm", "model.dim=4", "model.stack.dim=4", data=text, out=tmp_path / "lm", steps=1, progress=False
    )
    for method in ("skip-gram", "glove", "ppmi-svd"):
        seqloom.vectors.train(str(text), method, dim=4, epochs=1, min_count=1, progress=False)
    assert data.cache().entries >= 5
    report = data.prune(-1)
    assert report.entries == 0, sorted(path.name for path in (tmp_path / "cache").iterdir())


def test_the_cache_is_pruned(tmp_path, monkeypatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    old, new, foreign = (tmp_path / "cache" / name for name in ("a" * 32, "b" * 32, "mine"))
    for folder in (old, new, foreign):
        folder.mkdir(parents=True)
        (folder / "file").write_bytes(b"x" * 100)
    for folder in (old, foreign):
        os.utime(folder, (time.time() - 1e7, time.time() - 1e7))
    assert data.cache().bytes == 300
    report = data.prune(30)
    assert (report.removed, report.freed, report.bytes) == (1, 100, 200)
    assert new.exists() and foreign.exists() and not old.exists()


def test_a_long_file_is_shown_with_progress(tmp_path):
    path = write(tmp_path / "words.dict", "WORD  W ER D\n" * 20_000)
    seen: list[tuple[str, float]] = []
    summary = data.show(path, format="dictionary", progress=lambda step: seen.append((step.what, step.done)))
    assert summary.records == 20_000
    assert {what for what, _ in seen} == {"reading", "checking"}
    assert max(done for what, done in seen if what == "reading") > 10_000
