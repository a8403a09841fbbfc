"""A training tells which labels it found, what is held out, and what looks wrong with its files."""

import json
import logging

import pytest

import seqloom
from seqloom import world
from seqloom.errors import ConfigError
from seqloom.evaluation import evaluate

QUICK = ["train.steps=2", "train.eval_every=2", "train.log_every=2", "train.schedule.warmup=1", "model.dim=8"]
SMALL = [
    *QUICK,
    "tokenizer={type: Words}",
    "model.encoder.dim=4",
    "model.decoder.dim=4",
    "model.decoder.attention.dim=4",
]


@pytest.fixture
def pairs(tmp_path):
    """Two parallel files of the world, with a blank line, and the target shifted from line 150 on."""
    scenes = list(world.scenes(300))
    paths = [tmp_path / "a.en", tmp_path / "a.fr"]
    targets = [scene.french for scene in scenes]
    targets[20] = ""
    paths[0].write_text("".join(f"{scene.english}\n" for scene in scenes[:-1]), "utf-8")
    paths[1].write_text("".join(f"{line}\n" for line in targets[:150] + targets[151:]), "utf-8")
    return paths


def test_labels_and_the_held_out_share_are_told(tmp_path, caplog):
    caplog.set_level(logging.INFO, "seqloom")
    path = tmp_path / "reviews.tsv"
    rows = [f"film {i} was long\t{'neg' if i < 60 else 'pos'}\n" for i in range(100)]
    path.write_text("review\tlabel\n" + "".join(rows), "utf-8")
    run = seqloom.fit(
        "classifier", *QUICK, "model.stack.dim=4", data=str(path), out=tmp_path / "run", progress=False
    )
    assert run.labels == ["neg", "pos"]
    for line in (
        "reviews.tsv: header found: review (text), label (label)",
        "labels: neg 60, pos 40; sorted by label: a held-out share is drawn by content",
        "held out: 10 records, a share of 0.1, drawn by content: neg 6, pos 4",
    ):
        assert line in caplog.messages
    config = (tmp_path / "run/config.yaml").read_text("utf-8")
    assert "header: true" in config and "split: content" in config
    caplog.clear()
    again = seqloom.fit(
        "classifier", *QUICK, "model.stack.dim=4", data=str(path), out=tmp_path / "run", progress=False
    )
    assert again.labels == run.labels and not any("labels:" in line for line in caplog.messages)


def test_pairs_that_do_not_line_up_are_told(pairs, tmp_path, caplog):
    caplog.set_level(logging.INFO, "seqloom")
    paths = list(map(str, pairs))
    run = seqloom.fit("rnnsearch", *SMALL, data=paths, out=tmp_path / "run", progress=False)
    assert f"1 pair with a blank side is left out: {paths[0]}:21" in caplog.messages
    (warning,) = [
        r.getMessage() for r in caplog.records if r.levelno == logging.WARNING and "line up" in r.getMessage()
    ]
    assert abs(int(warning.split(":")[1]) - 151) <= 4
    assert "drop_blank: true" in (tmp_path / "run/config.yaml").read_text("utf-8")
    assert len(json.loads((tmp_path / "run/profile.json").read_text("utf-8"))) == 2
    caplog.clear()
    short = [tmp_path / "t.fr", tmp_path / "t.en"]
    for path, side in zip(short, ("french", "english"), strict=True):
        path.write_text("".join(f"{getattr(scene, side)}\n" for scene in world.scenes(20, 5)), "utf-8")
    evaluate(run, list(map(str, short)), beam=1, max_tokens=5, progress=False)
    assert any("the source looks like the target language" in line for line in caplog.messages)
    caplog.clear()
    evaluate(run, list(map(str, short[::-1])), beam=1, max_tokens=5, progress=False)
    assert not any("looks like the target language" in line for line in caplog.messages)


def test_swapped_held_out_files_are_told_before_the_training(tmp_path, caplog):
    for name, count, seed in (("train", 200, 0), ("valid", 20, 5)):
        for side in ("english", "french"):
            lines = "".join(f"{getattr(scene, side)}\n" for scene in world.scenes(count, seed))
            (tmp_path / f"{name}.{side[:2]}").write_text(lines, "utf-8")
    train, valid = (
        [str(tmp_path / f"{name}.{side}") for side in ("en", "fr")] for name in ("train", "valid")
    )
    options: dict = {"data": train, "out": tmp_path / "run", "overwrite": True, "progress": False}
    seqloom.fit("rnnsearch", *SMALL, valid=valid, **options)
    assert not any("held-out source" in line for line in caplog.messages)
    seqloom.fit("rnnsearch", *SMALL, valid=valid[::-1], **options)
    (warning,) = [line for line in caplog.messages if "held-out source looks like the target" in line]
    assert warning.startswith(f"{valid[1]}: ") and "--valid" in warning


def test_chats_longer_than_the_positions_are_refused_before_the_training(tmp_path, caplog):
    data = tmp_path / "chats.jsonl"
    turns = [{"role": "user", "content": "how is it?"}, {"role": "assistant", "content": "fine"}]
    data.write_text("".join(json.dumps({"messages": turns * count}) + "\n" for count in (1, 1, 3)), "utf-8")
    small = [*QUICK, "model.stack.layers=1", "model.stack.heads=2", "model.stack.position.length=40"]
    options: dict = {"data": str(data), "valid": str(data), "progress": False}
    with pytest.raises(ConfigError, match=r"the longest chat has \d+ tokens.*batches\.max_length=40"):
        seqloom.fit("sft", *small, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()
    caplog.clear()
    run = seqloom.fit("sft", *small, "batches.max_length=40", out=tmp_path / "run", **options)
    assert sum("random weights" in line and "--from RUN" in line for line in caplog.messages) == 1
    caplog.clear()
    seqloom.fit("sft", "batches.max_length=40", *QUICK, base=run.folder, out=tmp_path / "b", **options)
    assert not any("random weights" in line for line in caplog.messages)
