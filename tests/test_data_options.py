"""What depends on the data is decided once and written into a new config; an older run goes on as it began."""

import json

import pytest
import yaml

import seqloom
from seqloom.data.options import write_records
from seqloom.run_config import Config

ROWS = [(f"film number {i}", "pos" if i % 2 else "neg") for i in range(40)]


def table(path, rows=ROWS, header=True):
    path.write_text(("review\tlabel\n" if header else "") + "".join(f"{a}\t{b}\n" for a, b in rows), "utf-8")
    return str(path)


def test_a_new_config_is_explicit_and_that_of_a_run_stays(tmp_path):
    path = table(tmp_path / "t.tsv")
    config = Config.load("classifier", (), path)
    assert config.tree["corpus"]["header"] is True and config.labels() == ["neg", "pos"]
    assert config.tree["files"] == {"train": [path], "split": "content"}
    folder = tmp_path / "run"
    folder.mkdir()
    old = {**config.tree, "corpus": {"type": "Table", "columns": [0, 1], "kinds": ["text", "label"]}}
    old["files"] = {"train": [path]}
    (folder / "config.yaml").write_text(yaml.safe_dump(old))
    again = Config.load(str(folder))
    assert again.tree == old and again.labels() == ["label", "neg", "pos"]  # as it began
    assert config.continuing(folder).tree == old
    config.save(folder / "config.yaml")
    assert Config.load(str(folder)).tree == config.tree == config.continuing(folder).tree


def test_running_text_is_held_out_from_its_end(tmp_path, text):
    assert Config.load("gpt", (), str(text)).tree["files"]["split"] == "end"
    assert Config.load("lstm-words", (), str(text)).tree["files"]["split"] == "end"
    with pytest.raises(ValueError, match="running text has no records to choose from"):
        config = Config.load("gpt", ["files.split=content"], str(text))
        config.stores(config.tokenizer())


def test_a_given_validation_file_needs_no_split(tmp_path):
    path = table(tmp_path / "t.tsv")
    assert "split" not in Config.load("classifier", (), path, path).tree["files"]


@pytest.mark.parametrize("valid", [0.25, "0.25", ["0.25"]])
def test_a_share_to_hold_out(tmp_path, valid):
    config = Config.load("classifier", (), table(tmp_path / "t.tsv"), valid)
    assert config.files.valid_fraction == 0.25 and not config.files.valid
    train, held = config.stores(config.tokenizer(), labels=config.labels())
    assert (len(train), len(held)) == (30, 10)


@pytest.mark.parametrize("share", [0, 1, 1.5, -0.1])
def test_a_wrong_share(tmp_path, share):
    with pytest.raises(ValueError, match="a share to hold out is above 0 and below 1"):
        Config.load("classifier", (), table(tmp_path / "t.tsv"), share)


def test_options_that_the_user_gives_stay(tmp_path):
    path = table(tmp_path / "t.tsv")
    config = Config.load("classifier", ["corpus.header=false", "files.split=end"], path)
    assert config.labels() == ["label", "neg", "pos"] and config.files.split == "end"
    named = Config.load("classifier", ["corpus.columns=review,label"], path)
    assert named.tree["corpus"]["columns"] == ["review", "label"] and named.labels() == ["neg", "pos"]
    assert Config.load("classifier", ["corpus.header=auto"], path).tree["corpus"]["header"] is True


def test_a_preset_reads_the_form_of_its_file(tmp_path):
    lines = tmp_path / "t.jsonl"
    lines.write_text("".join(json.dumps({"id": 1, "text": a, "label": b}) + "\n" for a, b in ROWS))
    config = Config.load("classifier", (), str(lines))
    expected = {"type": "JSONLines", "kinds": ["text", "label"], "fields": ["text", "label"]}
    assert config.tree["corpus"] == expected and config.labels() == ["neg", "pos"]
    pairs = tmp_path / "p.tsv"
    pairs.write_text("one\tun\ntwo\tdeux\n")
    corpus = Config.load("transformer", (), str(pairs)).tree["corpus"]
    assert corpus == {
        "type": "Table",
        "columns": [0, 1],
        "kinds": ["text", "text"],
        "header": False,
        "drop_blank": True,
    }
    columns = tmp_path / "t.conll"
    columns.write_text("EU B-ORG\nleft O\n\n")
    assert Config.load("tagger", (), str(columns)).tree["corpus"] == {"type": "Columns"}
    with pytest.raises(
        ValueError, match="a word and its tag a line, but records of text and label are needed"
    ):
        Config.load("classifier", (), str(columns))


def test_fields_of_json_that_are_not_clear(tmp_path):
    path = tmp_path / "t.jsonl"
    path.write_text('{"a": "x", "b": "y", "c": "z"}\n')
    with pytest.raises(ValueError, match=r"which fields are text and label\? .*corpus.columns=a,b"):
        Config.load("classifier", (), str(path))
    config = Config.load("classifier", ["corpus.columns=c,a"], str(path))
    assert list(config.reader(config.files.train)) == [("z", "x")]
    config = Config.load("transformer", ["corpus.columns=b,c"], str(path))
    assert list(config.reader(config.files.train)) == [("y", "z")]


def test_columns_of_a_table_of_pairs(tmp_path):
    path = tmp_path / "t.tsv"
    path.write_text("id\tenglish\tfrench\n1\tone\tun\n2\ttwo\tdeux\n")
    for columns in ("english,french", "1,2"):
        config = Config.load("transformer", [f"corpus.columns={columns}"], str(path))
        assert list(config.reader(config.files.train)) == [("one", "un"), ("two", "deux")]


def test_data_may_be_one_path_a_glob_or_records(tmp_path, monkeypatch):
    path = table(tmp_path / "a.tsv")
    table(tmp_path / "b.tsv", [("one more", "pos")])
    assert Config.load("classifier", (), str(path)).files.train == [path]
    assert Config.load("classifier", (), tmp_path / "a.tsv").files.train == [path]
    both = Config.load("classifier", (), [str(tmp_path / "*.tsv")])
    assert (
        both.files.train == [path, str(tmp_path / "b.tsv")] and len(list(both.reader(both.files.train))) == 41
    )
    with pytest.raises(ValueError, match="no file has such a name"):
        Config.load("classifier", (), str(tmp_path / "*.csv"))
    config = Config.load("classifier", (), ROWS)
    assert list(config.reader(config.files.train)) == ROWS
    records = [{"review": a, "label": b} for a, b in ROWS]
    config = Config.load("classifier", (), records)
    assert list(config.reader(config.files.train)) == ROWS
    with pytest.raises(ValueError, match="record 1: 1 fields, but 2 are needed"):
        Config.load("classifier", (), [("a",)])


def test_the_built_in_world_is_data(monkeypatch, tmp_path):
    from seqloom.data import world_files

    monkeypatch.setattr(world_files, "SIZES", {"train": 60, "valid": 20, "test": 20})
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    config = Config.load("transformer", (), "world")
    assert [path.rpartition(".")[2] for path in config.files.train] == ["en", "fr"]
    assert len(list(config.reader(config.files.valid))) == 20
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
    assert Config.load("gpt", (), "world").files.train == config.files.train[:1]
    tagger = Config.load("tagger", (), "world")
    assert len(list(tagger.reader(tagger.files.train))) == 60
    senses = Config.load("classifier", (), "world")
    assert set(senses.labels()) <= {"money", "river"}
    with pytest.raises(ValueError, match="the built-in world has no records of text and text and label"):
        Config.load("nli", (), "world")


@pytest.mark.parametrize(
    "name, content, message",
    [
        ("none.tsv", None, "no such file"),
        ("empty.tsv", "", "the file is empty"),
        ("head.tsv", "text\tlabel\n", "only a header"),
        ("blank.tsv", "\n\n", "no records"),
    ],
)
def test_files_that_hold_nothing(tmp_path, name, content, message):
    if content is not None:
        (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        Config.load("classifier", (), str(tmp_path / name))
    with pytest.raises(ValueError, match="a folder, not a file"):
        Config.load("classifier", (), str(tmp_path))


def test_too_few_different_records_to_hold_any_out(tmp_path, caplog):
    config = Config.load("classifier", (), table(tmp_path / "t.tsv", [("a", "pos")]))
    with pytest.raises(ValueError, match="one record cannot be split; give more data"):
        config.stores(config.tokenizer(), labels=config.labels())
    config = Config.load("classifier", (), table(tmp_path / "t.tsv", [("a", "pos")] * 20))
    train, held = config.stores(config.tokenizer(), labels=config.labels())
    assert (len(train), len(held)) == (18, 2) and "only 1 of 20 records differ" in caplog.text


def test_one_label_only(tmp_path):
    config = Config.load(
        "classifier", (), table(tmp_path / "t.tsv", [(f"text {i}", "pos") for i in range(20)])
    )
    train, held = config.stores(config.tokenizer(), labels=config.labels())
    assert (config.labels(), len(train), len(held)) == (["pos"], 18, 2)


def test_files_of_records_are_in_the_current_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for kinds, key in (
        (("image", "captions"), "file"),
        (("image", "captions"), "image"),
        (("audio", "text"), "audio"),
    ):
        path = write_records([{key: "a/one.png", kinds[1]: "a dog"}], kinds)
        assert json.loads(path.read_text("utf-8")) == {
            key: str(tmp_path / "a" / "one.png"),
            kinds[1]: "a dog",
        }
    path = write_records([("one.png", ["a dog"])], ("image", "captions"))
    assert json.loads(path.read_text("utf-8"))["file"] == str(tmp_path / "one.png")


@pytest.mark.parametrize(
    ("share", "texts", "held", "warned"),
    [
        (0.1, ["one text", "one text", "another text"], "a share of 0.33", True),
        (0.4, ["one text", "one text", "another text"], "a share of 0.4", False),
        (0.1, [f"text {index}" for index in range(200)], "a share of 0.1", False),
    ],
)
def test_a_share_that_equal_records_make_too_large_is_told(share, texts, held, warned, tmp_path, caplog):
    """Equal texts are held out together: of two different texts one is, however often it occurs."""
    rows = [
        f"{text}\t{label}\n" for text in texts for label in ("pos", "neg") for _ in range(600 // len(texts))
    ]
    (tmp_path / "table.tsv").write_text("".join(rows), "utf-8")
    with caplog.at_level("INFO"):
        seqloom.fit(
            "naive-bayes", data=tmp_path / "table.tsv", valid=share, out=tmp_path / "run", progress=False
        )
    said = next(record.message for record in caplog.records if record.message.startswith("held out:"))
    assert held in said
    assert ("equal records are held out together" in caplog.text) == warned
