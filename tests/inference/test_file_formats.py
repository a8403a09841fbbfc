"""Files filled in the form they came in: which form a file has, and that nothing else in it changes."""

import gzip
import json
from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main
from seqloom.inference.file_formats import choose_format, fill_file
from seqloom.run import Run
from support.labelled_data import OPTIONS, conllu, put

QUICK = ["train.steps=4", "train.eval_every=4"]
ROW = "\t_\tX\t_\t_\t0\tdep\t_\t_"


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A tagger of columns, whose files are called .txt."""
    place = tmp_path_factory.mktemp("names")
    text = "the X O\nking X B-PER\nsees X O\n\n" * 40
    options = [*OPTIONS["tagger"], *QUICK, "corpus={type: Columns}"]
    run = seqloom.fit(
        "tagger", *options, data=[put(place / "a.txt", text)], out=place / "run", progress=False
    )
    return seqloom.load(run.folder)


def written(run: Run, path: Path, text: str, form: str = "auto") -> str:
    """What comes out of a file with this text, its bytes as they are."""
    path.write_bytes(text.encode())
    return "".join(fill_file(run, path, form=form))


@pytest.mark.parametrize(
    "text, form",
    [
        ("the X O\nking X B-PER\n", "Columns"),
        ("the\nking\n", "Columns"),
        ("#tag\n", "Columns"),
        ("# a comment\n\n", "Lines"),
        ("# id 1 of many\nthe X\nking X\n", "Columns"),
        ("king X B-PER\n\nthe X O\n", "Columns"),
        ("the king sees the queen .\nthe queen sees .\n", "Lines"),
        ("the king sees\n", "Lines"),
    ],
)
@pytest.mark.parametrize("ending", ["txt", "train", "tsv"])
def test_what_is_called_txt_is_read_as_in_training_where_it_can_be(
    names: Run, tmp_path: Path, text: str, form: str, ending: str
):
    found = type(choose_format(names, put(tmp_path / f"x.{ending}", text))).__name__
    assert found.removesuffix("File") == ("Table" if (form, ending) == ("Lines", "tsv") else form)


@pytest.mark.parametrize(
    "name, text, form",
    [
        ("tagger", conllu(1, 0), "CoNLLU"),
        ("tagger", "The dog sees a cat .\n", "Lines"),
        ("classifier", "the dog\tking\n", "Table"),
        ("classifier", "\n\nthe dog sees a cat .\n", "Lines"),
        ("nli", "the dog\ta cat\n", "Table"),
        (
            "qa",
            '{"data": [{"paragraphs": [{"context": "a b", "qas": [{"id": 1, "question": "q"}]}]}]}',
            "SQuAD",
        ),
    ],
)
def test_each_task_knows_its_own_files_whatever_they_are_called(
    trained: dict[str, Run], tmp_path: Path, name: str, text: str, form: str
):
    path = put(tmp_path / "x.txt", text)
    assert type(choose_format(trained[name], path)).__name__ == f"{form}File"
    assert type(choose_format(trained[name], path, "jsonl")).__name__ == "JSONLinesFile"
    with pytest.raises(ValueError, match="--format xml: predict reads files of the forms conllu, conll"):
        choose_format(trained[name], path, "xml")


def test_the_form_can_be_said(trained: dict[str, Run], tmp_path: Path, capsys: pytest.CaptureFixture):
    path = put(tmp_path / "x.dat", "The X\ndog X\n")
    main(["predict", str(trained["tagger"].folder), "--file", path, "--form", "Columns"])
    assert capsys.readouterr().out == "The X DET\ndog X NOUN\n"


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("begun", ["", "\ufeff"])
@pytest.mark.parametrize(
    "file, text",
    [
        ("x.conllu", f"# newdoc\n\n\n# a\n1\tThe{ROW}\n\n\n2.1\tghost{ROW}\n\n1\tdog{ROW}\n\n# last\n"),
        ("x.conll", "\n-DOCSTART- X\n\n# id 1 of 2\nThe X\ndog X\n\n\n# only a comment\n\nsees\tX\n"),
        ("x.txt", "\nThe dog\n\n\nsees\n \n"),
    ],
)
def test_everything_else_is_as_it_was(
    trained: dict[str, Run], tmp_path: Path, file: str, text: str, begun: str, end: str
):
    """Without the tags, what comes out is what went in; packed or not, with or without a last newline."""
    for own in (text, text.removesuffix("\n")):
        own = begun + own.replace("\n", end)
        found = written(trained["tagger"], tmp_path / file, own)
        bare = found.replace(ROW.replace("X", "DET"), ROW).replace(ROW.replace("X", "NOUN"), ROW)
        for said in ("\tDET NOUN", " DET", " NOUN", "\tVERB"):
            bare = bare.replace(said, "") if file != "x.conllu" else bare
        assert bare == own != found
    (tmp_path / f"{file}.gz").write_bytes(gzip.compress(own.encode()))
    assert "".join(fill_file(trained["tagger"], tmp_path / f"{file}.gz")) == found


@pytest.mark.parametrize("ending", ["tsv", "csv"])
def test_rows_of_a_table_line_up(trained: dict[str, Run], tmp_path: Path, ending: str):
    text = (
        "\r\nthe dog\tking\r\n\r\n\r\na cat\tnone\r\n"
        if ending == "tsv"
        else '\n"the dog\n\nsees, ""a"" cat",\'king\'\n\n"a cat","none"'
    )
    found = written(trained["classifier"], tmp_path / f"x.{ending}", text)
    assert found.count("\n") == text.count("\n") and found.count("\r") == text.count("\r")
    separator, ours = "\t" if ending == "tsv" else ",", found.split("\n")
    for own, other in zip(text.split("\n"), ours, strict=True):
        assert other == own or (
            other.startswith(own.rstrip("\r") + separator)
            and other.count(separator) == own.count(separator) + 2
        )
    assert ours != text.split("\n") and [bool(row.strip()) for row in ours] == [
        bool(row.strip()) for row in text.split("\n")
    ]


def test_fields_of_json_lines_stay_and_answers_stand_after_them(trained: dict[str, Run], tmp_path: Path):
    text = (
        '{"text":"the dog", "label":"0", "n": 1e400, "predicted_label": 1.10 }\n\n{"text": "a \\u0063at"}\r\n'
    )
    first, blank, second = written(trained["classifier"], tmp_path / "x.jsonl", text).split("\n")[:3]
    assert (
        first.startswith('{"text":"the dog", "label":"0", "n": 1e400, "predicted_label": 1.10, ')
        and "Infinity" not in first
    )
    found = json.loads(first)
    assert (
        found["label"] == "0"
        and found["predicted_predicted_label"] in ("king", "none")
        and 0 < found["probability"] <= 1
    )
    assert blank == "" and second.startswith('{"text": "a \\u0063at", "label": ') and second.endswith("}\r")
    (only,) = written(
        trained["tagger"], tmp_path / "x.jsonl", '{"words": ["The", "dog"], "tags": ["X", "X"]}\n'
    ).splitlines()
    assert list(json.loads(only)) == ["words", "tags", "predicted_tags", "probabilities"]


def test_json_lines_for_a_run_whose_label_comes_first(tmp_path: Path):
    path = put(tmp_path / "a.tsv", "king\tthe king sees\nnone\tthe dog sees\n" * 30)
    options = [*OPTIONS["classifier"], *QUICK, "corpus={type: Table, kinds: [label, text]}"]
    run = seqloom.fit("classifier", *options, data=[path], out=tmp_path / "run", progress=False)
    assert json.loads(written(run, tmp_path / "x.jsonl", '{"text": "the dog"}\n'))["label"] in (
        "king",
        "none",
    )
    assert written(run, tmp_path / "x.txt", "none\tthe dog\n").startswith("none\tthe dog\t")


def test_a_header_has_a_name_for_each_cell(corpora: dict[str, tuple[str, str]], tmp_path: Path):
    text = "first\tsecond\tscore\n" + Path(corpora["similarity"][0]).read_text("utf-8")
    options = [*OPTIONS["similarity"], *QUICK, "corpus.header=true"]
    run = seqloom.fit(
        "similarity", *options, data=[put(tmp_path / "a.tsv", text)], out=tmp_path / "run", progress=False
    )
    head, row = written(run, tmp_path / "x.txt", "\n".join(text.splitlines()[:2])).splitlines()
    assert head == "first\tsecond\tscore\tanswer" and row.count("\t") == 3


def test_a_damaged_gzip_is_one_line(trained: dict[str, Run], tmp_path: Path):
    path = tmp_path / "x.txt.gz"
    path.write_bytes(gzip.compress(b"The dog sees a cat .\n" * 100_000)[:-2000])
    with pytest.raises(ValueError, match="damaged gzip file"):
        list(fill_file(trained["tagger"], path))
