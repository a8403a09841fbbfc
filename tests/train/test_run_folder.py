"""Where a training writes, what it refuses to overwrite, and what it says when the user errs or the memory is used up."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main
from seqloom.errors import ConfigError, OutOfMemory, RunError, UserError
from seqloom.files import cache_folder
from seqloom.run_config import Config
from seqloom.train.loop import TrainLoop
from seqloom.train.run_folder import default_folder

TINY = ["model.dim=8", "model.stack.dim=8", "batches.width=9", "train.eval_every=4"]


def fit(text: Path, *changes, **options) -> seqloom.Run:
    return seqloom.fit("lstm-lm", *TINY, *changes, data=text, progress=False, **{"steps": 4, **options})


def refused(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_the_folder_is_named_after_preset_and_data(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert fit(text).folder == Path("runs/lstm-lm-text")
    monkeypatch.setenv("SEQLOOM_RUNS", str(tmp_path / "mine"))
    assert fit(text).folder == tmp_path / "mine" / "lstm-lm-text"


def test_another_config_is_refused_with_the_difference_and_a_free_name(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    first = fit(text)
    with pytest.raises(ConfigError, match=r"model\.dim: 8 → 12.*--out runs/lstm-lm-text-2.*--overwrite"):
        fit(text, {"model.dim": 12})
    second = fit(text, {"model.dim": 12}, overwrite=True)
    assert second.folder == first.folder and seqloom.load(second.folder).config.tree["model"]["dim"] == 12
    assert not list(Path("runs").glob(".*"))
    other = tmp_path / "other.txt"
    other.write_text(text.read_text("utf-8") * 2, "utf-8")
    with pytest.raises(
        ConfigError,
        match=r"config \(data: text\.txt → other\.txt; train\.steps: \d+ → train\.minutes: 1\); choose",
    ):
        fit(other, {"model.dim": 12}, out=first.folder, steps=None, minutes=1)


def test_the_built_in_world_names_its_run() -> None:
    world = str(cache_folder() / "world-pictures" / "train.captions.tsv")
    for data, name in ((world, "gpt-world"), ("/a/train.txt.gz", "gpt-train"), ("-", "gpt-stdin")):
        assert default_folder("gpt", Config.load("gpt").change({"files.train": [data]})).name == name


def test_only_runs_are_overwritten(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    with pytest.raises(ConfigError, match="not a run folder, so it is not overwritten"):
        fit(text, out=folder, overwrite=True)
    assert (folder / "thesis.txt").exists()


def test_what_a_killed_rotation_left_behind_is_removed_though_nothing_is_saved_any_more(
    text: Path, tmp_path: Path
) -> None:
    """As after a kill between the last checkpoint and the results."""
    run = fit(text, out=tmp_path / "run")
    (run.folder / "results.json").unlink()
    stale = run.folder / "checkpoints" / ".old-step-00000002-x"
    stale.mkdir()
    fit(text, out=run.folder)
    assert not stale.exists() and (run.folder / "results.json").exists()


def test_a_data_file_in_the_wrong_place_is_answered_with_data(
    text: Path, capsys: pytest.CaptureFixture
) -> None:
    assert f"seqloom train gpt --data {text}" in refused(capsys, "train", "gpt", str(text))
    assert f"seqloom train PRESET --data {text}" in refused(capsys, "train", str(text))


def test_the_command_line_has_the_budget_the_share_and_the_scores(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    out = tmp_path / "run"
    main(
        ["train", "lstm-lm", *TINY, "--data", str(text), "--valid", "0.25", "--steps", "4", "--out", str(out)]
    )
    captured = capsys.readouterr()
    config = seqloom.load(out).config
    assert config.files.valid_fraction == 0.25 and config.tree["train"]["steps"] == 4
    assert "promise: " in captured.err and " steps in " in captured.err
    first, last = captured.out.splitlines()
    assert first.startswith("bits per byte ") and " held-out bytes; promised " in first
    assert last == f"run: {out}"


def test_an_imported_run_is_not_resumed_but_begun_from(text: Path, tmp_path: Path) -> None:
    run = fit(text, out=tmp_path / "run")
    path = run.folder / "results.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "from": {"format": "gpt2", "source": "x"}}))
    with pytest.raises(RunError, match=r"imported run has no state to go on from.*--from"):
        seqloom.fit(str(run.folder), steps="+4", progress=False)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"),
    ],
)
def test_too_little_memory_is_said_with_the_remedy(
    error: Exception, text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_):
        raise error

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(OutOfMemory, match=r"batches\.batch_tokens.*train\.accumulate"):
        fit(text, out=tmp_path / "run")


def test_other_errors_stay_what_they_are(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_):
        raise RuntimeError("shapes differ")

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(RuntimeError, match="shapes differ"):
        fit(text, out=tmp_path / "run")


def test_other_data_for_a_finished_run_is_refused(
    text: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    """The run is finished, so nothing would be learnt from them."""
    run = str(fit(text, out=tmp_path / "run").folder)
    other, copy = tmp_path / "other.txt", tmp_path / "copy.txt"
    other.write_text(text.read_text("utf-8") * 2, "utf-8")
    copy.write_text(text.read_text("utf-8"), "utf-8")
    assert "not what the run began with" in refused(capsys, "train", run, "--data", str(other))
    assert "no such file" in refused(capsys, "train", run, "--data", str(tmp_path / "none.txt"))
    main(["train", run, "--data", str(copy)])
    text.unlink()
    main(["train", run])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epocs": 3}, "epocs: there is no such budget or option; did you mean epochs"),
        ({"steps": "many"}, "steps='many': give a number"),
        ({"steps": 4, "data": {"text": ["a", "b"]}}, "one dict; give the path of a file"),
    ],
)
def test_mistakes_in_python_are_named(text: Path, tmp_path: Path, options: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        seqloom.fit("lstm-lm", *TINY, **{"data": text, **options}, out=tmp_path / "run", progress=False)
