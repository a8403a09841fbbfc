"""The list of runs, the facts of one, and the removal of checkpoints, from Python and from the command line."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom import runs
from seqloom.cli import main
from seqloom.config_source import is_run
from seqloom.errors import UserError
from seqloom.run import load

GOLDEN = Path(__file__).parent / "golden" / "v1"
NAMES = ("classifier", "gpt", "imported", "stopped-gpt")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Runs of older versions, one of them deep inside, beside a folder that is not a run."""
    for name in NAMES:
        shutil.copytree(GOLDEN / name, tmp_path / "runs" / name)
    shutil.copytree(GOLDEN / "gpt", tmp_path / "runs" / "study" / "runs" / "b" / "seed-0")
    (tmp_path / "runs" / "page").mkdir()
    (tmp_path / "runs" / "page" / "config.yaml").write_text("title: my page\n", "utf-8")
    return tmp_path / "runs"


def test_the_list_holds_each_run_with_its_facts(folder: Path):
    found = {run.name: run for run in runs.list(folder)}
    assert list(found) == [*NAMES[:3], "seed-0", "stopped-gpt"]
    expected = json.loads((GOLDEN / "gpt" / "results.json").read_text("utf-8"))
    gpt = found["gpt"]
    assert (gpt.task, gpt.state, gpt.step, gpt.steps) == ("language modelling", "finished", 40, 40)
    assert gpt.parameters == sum(expected["parameters"].values())
    assert gpt.numbers["perplexity"] == expected["held out"][1]["value"]
    assert gpt.size == sum(path.stat().st_size for path in (folder / "gpt").rglob("*") if path.is_file())
    stopped = found["stopped-gpt"]
    assert (stopped.state, stopped.step, stopped.steps, stopped.parameters) == (
        "stopped",
        6,
        62,
        gpt.parameters,
    )
    assert found["classifier"].task == "classification" and found["imported"].step == 0


def test_names_are_the_shortest_that_tell_runs_apart():
    paths = [Path("runs/a/seed-0"), Path("runs/b/seed-0"), Path("runs/c")]
    assert runs.shortest_names(paths) == ["a/seed-0", "b/seed-0", "c"]


def test_the_printed_list_has_paths_that_verbs_take(folder: Path, capsys: pytest.CaptureFixture[str]):
    main(["runs", "list", str(folder)])
    paths = [line.split()[0] for line in capsys.readouterr().out.split("\n\n")[0].splitlines()[1:]]
    assert str(folder / "study/runs/b/seed-0") in paths and all(map(is_run, paths))


def test_the_list_is_filtered_and_sorted_best_first(folder: Path):
    def names(**options: str) -> list[str]:
        return [run.name for run in runs.list(folder, **options)]

    assert names(task="classification") == ["classifier"]
    by_loss = [run.valid_loss for run in runs.list(folder, sort="valid_loss")]
    assert by_loss == [*sorted(loss for loss in by_loss if loss is not None), None]
    assert names(sort="accuracy")[0] == "classifier"
    assert names(sort="step")[-2:] == ["stopped-gpt", "imported"]
    with pytest.raises(UserError, match="did you mean 'valid_loss'"):
        names(sort="valid_los")
    with pytest.raises(UserError, match="did you mean 'classification'"):
        names(task="clasification")


def test_a_damaged_run_is_listed_as_such(folder: Path):
    (folder / "gpt" / "results.json").write_text("{", "utf-8")
    (folder / "imported" / "config.yaml").write_text("a: [", "utf-8")
    states = {run.name: run.state for run in runs.list(folder)}
    assert states["gpt"] == states["imported"] == "damaged" and states["classifier"] == "finished"


def test_the_facts_of_a_run(folder: Path):
    facts = runs.show(folder / "gpt")
    assert facts.config["model"]["type"] == "LanguageModel" and list(facts.checkpoints) == [40]
    assert facts.files["tokenizer.json"] == (GOLDEN / "gpt" / "tokenizer.json").stat().st_size
    assert (
        facts.results is not None
        and facts.results["weights_sha256"]
        == json.loads((GOLDEN / "gpt" / "results.json").read_text("utf-8"))["weights"]["sha256"]
    )
    json.dumps(facts.to_dict(), allow_nan=False)


def test_cleaning_keeps_what_is_needed(tmp_path: Path):
    text = tmp_path / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 40, "utf-8")
    tiny = [
        *("model.dim=8", "model.stack.heads=2", "model.stack.layers=1", "batches.width=8", "batches.batch=2"),
        *("train.steps=8", "train.eval_every=2", "train.save_every=2", "train.keep_checkpoints=9"),
    ]
    run = seqloom.fit("gpt", *tiny, data=[str(text)], out=tmp_path / "run")
    best = min((row for row in run.metrics() if "valid_loss" in row), key=lambda row: row["valid_loss"])[
        "step"
    ]
    before = dict(load(run.folder).model.named_parameters())
    size = sum(path.stat().st_size for path in (run.folder / "checkpoints").rglob("*") if path.is_file())
    (planned,) = runs.clean(run, dry_run=True)
    assert sorted((run.folder / "checkpoints").iterdir())[0].name == "step-00000002"
    (done,) = runs.clean(run.folder)
    assert done == planned and set(done.kept) == {best, 8} and set(done.removed) == {2, 4, 6, 8} - {best, 8}
    left = sum(path.stat().st_size for path in (run.folder / "checkpoints").rglob("*") if path.is_file())
    assert size - left == done.freed > 0
    after = dict(load(run.folder).model.named_parameters())
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert runs.clean(run.folder)[0].removed == ()


def test_the_verbs_print_tables_and_json(folder: Path, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.setenv("SEQLOOM_RUNS", str(folder))
    main(["runs"])
    bare = capsys.readouterr().out
    main(["runs", "list", str(folder)])
    listed = capsys.readouterr().out
    assert (
        bare == listed
        and "stopped-gpt" in listed
        and listed.splitlines()[0].split()[:4] == [*("run", "task", "state", "step")]
    )
    main(["runs", "--json", "--sort", "size"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["size"] for row in rows] == sorted(row["size"] for row in rows)
    main(["runs", "show", str(folder / "gpt")])
    assert f"open one as {folder / 'gpt'}@40" in capsys.readouterr().out
    main(["runs", "clean", str(folder / "gpt"), str(folder / "classifier"), "--dry-run"])
    assert capsys.readouterr().out.endswith("would free 0 B\n")
    with pytest.raises(SystemExit) as stop:
        main(["runs", "show", str(folder / "page")])
    assert stop.value.code == 2 and "its config.yaml is not one of seqloom" in capsys.readouterr().err
