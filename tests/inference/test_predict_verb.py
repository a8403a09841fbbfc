"""`predict` from the command line and from Python: one record in, one prediction out; texts, files and stdin."""

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main
from seqloom.inference import prediction
from seqloom.inference.predictions import Label, Span, Tags, Value
from seqloom.run import Run
from support.labelled_data import OPTIONS, put

PASSAGE = "the king sees the cat ."


@pytest.fixture(scope="module")
def headed(corpora: dict[str, tuple[str, str]], tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A classifier whose training file begins with a header."""
    place = tmp_path_factory.mktemp("headed")
    rows = Path(corpora["classifier"][0]).read_text("utf-8")
    path = put(place / "train.tsv", f"text\tlabel\n{rows}")
    options = [*OPTIONS["classifier"], "corpus.header=true", "train.steps=4", "train.eval_every=4"]
    return seqloom.fit("classifier", *options, data=[path], out=place / "run", progress=False)


def pipe(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """Puts a text on stdin, and forgets what was there before."""
    from seqloom.text import lines

    monkeypatch.setattr(lines, "_spooled", {})
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))


def fails(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_one_record_gives_one_prediction(trained: dict[str, Run]) -> None:
    """A str is one text, a tuple one pair or one sentence; a list gives a list, an iterator an iterator."""
    label = seqloom.predict(trained["classifier"], "the king sees a cat")
    assert isinstance(label, Label) and label.label == "king"
    assert label.probability == max(label.probabilities.values())
    assert seqloom.predict(trained["classifier"], ["the king sees a cat"]) == [label]
    tags = seqloom.predict(trained["tagger"], ("The", "dog"))
    assert isinstance(tags, Tags) and tags.words == ["The", "dog"] and tags.tags == ["DET", "NOUN"]
    assert seqloom.predict(trained["tagger"], "The dog") == tags
    assert seqloom.predict(trained["tagger"], [["The", "dog"], ("The", "dog"), "The dog"]) == [tags] * 3
    assert isinstance(seqloom.predict(trained["nli"], ("a dog", "a cat")), Label)
    assert isinstance(seqloom.predict(trained["similarity"], ("a dog", "a cat")), Value)
    span = seqloom.predict(trained["qa"], ("who sees the cat ?", PASSAGE))
    assert isinstance(span, Span) and PASSAGE[span.start : span.end] == span.text


def test_a_folder_is_as_good_as_a_run(trained: dict[str, Run]) -> None:
    run = trained["classifier"]
    assert seqloom.predict(run.folder, "the king") == seqloom.predict(run, "the king")
    assert seqloom.predict(str(run.folder), "the king") == seqloom.predict(run, "the king")


def test_an_iterator_is_read_as_its_results_are(
    trained: dict[str, Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In bounded memory: the source is at most two chunks ahead."""
    monkeypatch.setattr(prediction, "MAX_RECORDS", 4)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "the king" if taken % 2 else "a dog"

    found = seqloom.predict(trained["classifier"], endless())
    assert taken == 0 and iter(found) is found
    assert [next(found).label for _ in range(4)] == ["king", "none"] * 2 and taken <= 8


def test_json_is_what_to_dict_gives(trained: dict[str, Run], capsys: pytest.CaptureFixture) -> None:
    run = trained["classifier"]
    main(["predict", str(run.folder), "the king", "--json"])
    printed = json.loads(capsys.readouterr().out)
    assert printed == {"text": "the king", **seqloom.predict(run, "the king").to_dict()}
    main(["predict", str(trained["qa"].folder), f"who sees the cat ?\t{PASSAGE}", "--json"])
    answer = json.loads(capsys.readouterr().out)
    assert set(answer) == {"first", "second", "answer", "start", "end", "probability"}


def test_texts_are_printed_with_label_and_probability(
    trained: dict[str, Run], capsys: pytest.CaptureFixture
) -> None:
    run = trained["classifier"]
    found = seqloom.predict(run, "the king sees")
    main(["predict", str(run.folder), "the king sees"])
    assert capsys.readouterr().out == f"the king sees\tking\t{found.probability:.4f}\n"
    main(["predict", str(run.folder), "the king sees", "--top", "2"])
    low = found.probabilities["none"]
    assert capsys.readouterr().out == f"the king sees\tking\t{found.probability:.4f}\tnone\t{low:.4f}\n"
    main(["predict", str(trained["tagger"].folder), "The dog sees"])
    assert capsys.readouterr().out == "The dog sees\tDET NOUN VERB\n"
    value = seqloom.predict(trained["similarity"], ("a dog", "a cat")).value
    main(["predict", str(trained["similarity"].folder), "a dog\ta cat"])
    assert capsys.readouterr().out == f"a dog\ta cat\t{value:.4f}\n"
    assert "one text, but the run reads pairs" in fails(
        capsys, "predict", str(trained["nli"].folder), "a dog"
    )
    assert "only labels of texts" in fails(
        capsys, "predict", str(trained["tagger"].folder), "The dog", "--top", "2"
    )


def test_the_name_of_a_file_is_no_text(
    trained: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    path = put(tmp_path / "new.txt", "the king\n")
    said = fails(capsys, "predict", str(trained["classifier"].folder), path)
    assert said.count("\n") == 1 and f"read it with --file {path}" in said


@pytest.mark.parametrize("arguments", [["--file", "-"], [], ["-"]])
def test_the_first_sentence_of_stdin_is_no_header(
    headed: Run, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, arguments: list[str]
) -> None:
    for text in ("the king sees\na dog\n", "the king sees\n"):
        pipe(monkeypatch, text)
        main(["predict", str(headed.folder), *arguments])
        lines = capsys.readouterr().out.splitlines()
        assert [line.split("\t")[0] for line in lines] == text.splitlines()
        assert all(line.split("\t")[1] in headed.labels for line in lines)


def test_the_header_of_a_file_stays_one(headed: Run, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    main(["predict", str(headed.folder), "--file", put(tmp_path / "x.tsv", "text\tlabel\nthe king\tnone\n")])
    header, row = capsys.readouterr().out.splitlines()
    assert header.startswith("text\tlabel\t") and row.startswith("the king\tnone\t")
    main(["predict", str(headed.folder), "--file", str(tmp_path / "x.tsv"), "--top", "2"])
    header, row = capsys.readouterr().out.splitlines()
    assert len(header.split("\t")) == len(row.split("\t")) == 6


@pytest.fixture(scope="module", params=["by position", "by name"])
def reviews(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A classifier of a table with a header: its columns found, or named among others."""
    place = tmp_path_factory.mktemp("reviews")
    rows = [("a fine cat", "pos"), ("a dull dog", "neg")] * 30
    options, header, start = (
        ["corpus.columns=review,sentiment"],
        "id\ttitle\treview\tsentiment",
        "1\tfine dull\t",
    )
    if request.param == "by position":
        options, header, start = [], "review\tsentiment", ""
    text = "".join(f"{start}{review}\t{label}\n" for review, label in rows)
    path = put(place / "train.tsv", f"{header}\n{text}")
    return seqloom.fit("logistic", *options, data=[path], out=place / "run", progress=False)


@pytest.mark.parametrize(
    "header",
    [
        "title\treview",
        "id\treview",
        "sentiment\treview",
        "review",
        "review\tanswer\tprobability",
        "id\ttitle\treview\tsentiment",
        "Review\tsomething else",
    ],
)
@pytest.mark.parametrize("name", ["x.tsv", "x.txt", "x.csv"])
def test_a_header_names_the_text_to_predict(
    reviews: Run, tmp_path: Path, capsys: pytest.CaptureFixture, header: str, name: str
) -> None:
    columns = header.split("\t")
    other = {"a fine cat": "a dull dog", "a dull dog": "a fine cat"}  # in every other column
    rows = [[text if name.lower() == "review" else other[text] for name in columns] for text in other]
    table = [columns, *rows]
    separator = "," if name.endswith("csv") else "\t"
    path = put(tmp_path / name, "".join(separator.join(row) + "\n" for row in table))
    main(["predict", str(reviews.folder), "--file", path])
    lines = [line.split(separator) for line in capsys.readouterr().out.splitlines()]
    assert [line[: len(columns)] for line in lines] == table
    assert [line[len(columns)] for line in lines] == ["answer", "pos", "neg"]


@pytest.mark.parametrize("header", ["title\tsentiment", "id\ttext", "sentiment"])
def test_a_header_without_the_text_of_training_is_refused(
    reviews: Run, tmp_path: Path, capsys: pytest.CaptureFixture, header: str
) -> None:
    row = "\t".join("a fine cat" for _ in header.split("\t"))
    path = put(tmp_path / "x.tsv", f"{header}\n{row}\n")
    there = ", ".join(map(repr, header.split("\t")))
    for verb in (["predict", str(reviews.folder), "--file", path], ["evaluate", str(reviews.folder), path]):
        said = fails(capsys, *verb)
        assert (
            said.count("\n") == 1 and f"x.tsv:1: no column 'review'; the header has {there}; rename" in said
        )


def test_a_header_names_the_columns_to_evaluate(
    reviews: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    swapped = "sentiment\ttitle\treview\npos\ta dull dog\ta fine cat\nneg\ta fine cat\ta dull dog\n"
    report = seqloom.evaluate(reviews, put(tmp_path / "x.tsv", swapped))
    assert {number.name: number.value for number in report.numbers}["accuracy"] == 100
    path = put(tmp_path / "y.tsv", "title\treview\na fine cat\ta fine cat\n")
    said = fails(capsys, "evaluate", str(reviews.folder), path)
    assert "y.tsv:1: no column 'sentiment'; the header has 'title', 'review'" in said


def test_a_file_without_a_header_goes_by_position(
    reviews: Run, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    text = "a fine cat\na dull dog\n"
    main(["predict", str(reviews.folder), "--file", put(tmp_path / "x.tsv", text)])
    assert [line.split("\t")[1] for line in capsys.readouterr().out.splitlines()] == ["pos", "neg"]


def test_forms_have_one_list_of_names(
    trained: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """Those of `data`; the older names are read too, and the present one is printed."""
    from seqloom.inference.file_formats import FILLED
    from seqloom.text.formats import FORMATS

    run, path = str(trained["tagger"].folder), put(tmp_path / "x.dat", "The X\ndog X\n")
    main(["predict", run, "--file", path, "--format", "conll"])
    assert capsys.readouterr().out == "The X DET\ndog X NOUN\n"
    main(["predict", run, "--file", path, "--form", "Columns"])
    captured = capsys.readouterr()
    assert captured.out == "The X DET\ndog X NOUN\n" and "--form is now --format" in captured.err
    for name in ("xml", "pairs"):
        for given in (["--file", path], ["The dog"]):
            said = fails(capsys, "predict", run, *given, "--format", name)
            assert [form for form in FORMATS if form in said.partition(" forms ")[2]] == [
                form for form in FORMATS if form in FILLED
            ]


def test_out_is_whole_or_not_there(
    trained: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prediction, "MAX_RECORDS", 1)
    path = put(tmp_path / "x.jsonl", '{"text": "the king"}\n{"text": 3}\n')
    out = tmp_path / "labelled.jsonl"
    said = fails(capsys, "predict", str(trained["classifier"].folder), "--file", path, "--out", str(out))
    assert "x.jsonl:2" in said and not out.exists() and list(tmp_path.iterdir()) == [Path(path)]
    put(tmp_path / "x.jsonl", '{"text": "the king"}\n')
    main(["predict", str(trained["classifier"].folder), "--file", path, "--out", str(out)])
    assert json.loads(out.read_text())["label"] == "king" and capsys.readouterr().out == ""
