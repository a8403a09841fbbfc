"""The world on disk: aligned files, CoNLL-U that its reader accepts, disjoint splits, whole or not at all."""

import importlib
import json

import conllu
import pytest

from seqloom.world import Scene, scenes, write
from seqloom.world.write import splits

FILES = {f"{split}.{kind}" for split in ("train", "valid", "test") for kind in ("en", "fr", "tags")} | {
    "scenes.jsonl"
}


def test_files_are_aligned(tmp_path):
    write(tmp_path / "w", 120, 30, 20, seed=4)
    assert {path.name for path in (tmp_path / "w").iterdir()} == FILES
    records = [json.loads(line) for line in (tmp_path / "w" / "scenes.jsonl").read_text("utf-8").splitlines()]
    for split, size in (("train", 120), ("valid", 30), ("test", 20)):
        mine = [record for record in records if record["split"] == split]
        english, french = (
            (tmp_path / "w" / f"{split}.{kind}").read_text("utf-8").splitlines() for kind in ("en", "fr")
        )
        assert [record["english"] for record in mine] == english
        assert [record["french"] for record in mine] == french
        tagged = conllu.parse((tmp_path / "w" / f"{split}.tags").read_text("utf-8"))
        assert len(english) == len(french) == len(tagged) == size
        for text, sentence, record in zip(english, tagged, mine, strict=True):
            assert sentence.metadata["text"] == text
            assert [token["upos"] for token in sentence] == record["tags"]
            spaced = "".join(
                token["form"] + ("" if (token["misc"] or {}).get("SpaceAfter") == "No" else " ")
                for token in sentence
            )
            assert spaced.strip() == text


def test_train_is_the_beginning_of_the_seed_and_held_out_sentences_are_new():
    names, english = [], []
    for name, found in splits(4000, 500, 500, seed=9):
        names.append(name)
        english.append([one.english for one in found])
    assert names == ["train", "valid", "test"]
    train, valid, test = english
    assert train == [one.english for one in scenes(4000, seed=9)]
    assert len(set(train)) < len(train), "without repeats in train this test shows nothing"
    assert [len(valid), len(test)] == [len(set(valid)), len(set(test))] == [500, 500]
    assert not set(train) & set(valid) and not (set(train) | set(valid)) & set(test)
    natural = [one.english for one in scenes(1000, seed=9, start=4000)]
    assert valid + test != natural, "nothing was dropped"


def test_same_seed_same_bytes(tmp_path):
    write(tmp_path / "a", 50, 10, 10, seed=1)
    write(tmp_path / "b", 50, 10, 10, seed=1)
    assert all((tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes() for name in FILES)


def test_a_failure_leaves_nothing(tmp_path, monkeypatch):
    module = importlib.import_module("seqloom.world.write")  # the package's `write` is the function
    real, calls = module.scene, []

    def failing(seed: int, index: int) -> Scene:
        calls.append(index)
        if index == 40:
            raise OSError("disk full")
        return real(seed, index)

    monkeypatch.setattr(module, "scene", failing)
    with pytest.raises(OSError, match="disk full"):
        write(tmp_path / "w", 100, 5, 5)
    assert calls and list(tmp_path.iterdir()) == []


def test_mistakes_are_told(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").write_text("mine")
    with pytest.raises(ValueError, match=r"full: exists .* give a new folder"):
        write(tmp_path / "full", 1, 1, 1)
    with pytest.raises(ValueError, match="negative"):
        write(tmp_path / "w", -1, 1, 1)
    assert (tmp_path / "full" / "notes.txt").read_text() == "mine"
