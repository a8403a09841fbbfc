"""Opening a run: its final weights, its checkpoints, what it knows about itself."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import seqloom
from seqloom import files
from seqloom.errors import RunError
from seqloom.run import Run, as_run, load

TINY = [
    *("model.dim=8", "model.stack.heads=2", "model.stack.layers=1", "batches.width=8", "batches.batch=2"),
    *("train.steps=4", "train.eval_every=2", "train.save_every=2", "train.keep_checkpoints=9"),
]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    folder = tmp_path_factory.mktemp("runs")
    text = folder / "text.txt"
    text.write_text("to be or not to be, that is the question\n" * 40, "utf-8")
    return seqloom.fit("gpt", *TINY, data=[str(text)], out=folder / "gpt")


def weights_of(run: Run) -> dict[str, torch.Tensor]:
    return {name: parameter.detach() for name, parameter in run.model.named_parameters()}


def test_a_run_knows_its_task_and_folder(run: Run):
    assert run.task == "language modelling" and run.config.lines.preset == "gpt"
    opened = as_run(str(run.folder))
    assert opened.folder == run.folder and as_run(opened) is opened


def test_a_checkpoint_is_opened_by_its_step(run: Run):
    stored = load_file(run.folder / "checkpoints" / "step-00000002" / "model.safetensors")
    opened = weights_of(load(f"{run.folder}@2"))
    assert opened.keys() == stored.keys() and all(torch.equal(opened[name], stored[name]) for name in stored)
    assert any(not torch.equal(opened[name], value) for name, value in weights_of(load(run.folder)).items())


def test_the_best_checkpoint_is_that_of_the_lowest_loss(run: Run):
    rows = [row for row in run.metrics() if "valid_loss" in row]
    best = min(rows, key=lambda row: row["valid_loss"])["step"]
    one, other = weights_of(load(f"{run.folder}@best")), weights_of(load(f"{run.folder}@{best}"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_an_unfinished_run_opens_at_a_checkpoint(run: Run, tmp_path: Path):
    folder = tmp_path / "unfinished"
    shutil.copytree(run.folder, folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(
        RunError, match=r"no final weights yet; finish it with: .*, or open its newest checkpoint: .*@4"
    ):
        load(folder)
    assert weights_of(load(f"{folder}@4")).keys() == weights_of(run).keys()


def test_a_checkpoint_of_an_unfinished_run_is_evaluated(run: Run, tmp_path: Path):
    """The digest of the evaluation is that of the weights that were measured."""
    folder = tmp_path / "unfinished"
    shutil.copytree(run.folder, folder)
    (folder / "model.safetensors").unlink()
    (folder / "results.json").unlink()
    found = seqloom.evaluate(f"{folder}@2", str(run.folder.parent / "text.txt"))
    stored = folder / "checkpoints" / "step-00000002" / "model.safetensors"
    assert found.weights_sha256 == files.sha256(stored)


@pytest.mark.parametrize(
    "name, sentence",
    [
        ("gpt@3", "no checkpoint of step 3; choose one of 2, 4"),
        ("gpt@worst", "'worst' is not a checkpoint; write RUN@best"),
        ("gtp", "there is no such run; did you mean .*gpt"),
    ],
)
def test_a_wrong_checkpoint_gets_its_sentence(run: Run, name: str, sentence: str):
    with pytest.raises(RunError, match=sentence):
        load(run.folder.with_name(name))


def test_a_damaged_checkpoint_is_refused(run: Run, tmp_path: Path):
    shutil.copytree(run.folder, tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "step-00000002" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(RunError, match="damaged"):
        load(f"{tmp_path / 'run'}@2")


def test_a_folder_with_an_at_sign_is_itself(run: Run, tmp_path: Path):
    shutil.copytree(run.folder, tmp_path / "me@home")
    assert load(tmp_path / "me@home").folder == tmp_path / "me@home"
    assert weights_of(load(tmp_path / "me@home@2")).keys() == weights_of(run).keys()


def test_a_folder_of_something_else_is_not_a_run(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("title: my page\n", "utf-8")
    with pytest.raises(RunError, match=r"its config\.yaml is not one of seqloom"):
        load(tmp_path)


def test_a_quantised_run_is_near_the_other(run: Run):
    ids, mask = run.encode(["to be or not"])
    with torch.no_grad():
        exact = run.model.output(run.model.features(ids, None, mask)[0])
        quantised = load(run.folder, quantize="int8").model
        near = quantised.output(quantised.features(ids, None, mask)[0])
    assert not torch.equal(near, exact) and torch.allclose(near, exact, atol=0.05)


def test_metrics_are_the_rows_of_the_file(run: Run):
    rows = run.metrics()
    assert [row["step"] for row in rows if "valid_loss" in row] == [2, 4]
    assert rows[-1]["valid_loss"] == pytest.approx(run.results.valid[0].value, abs=1)


def test_a_notebook_shows_a_card_with_the_curve(run: Run):
    card = run._repr_html_()
    assert "language modelling" in card and "<polyline" in card and "perplexity" in card
    assert "http" not in card and "<script" not in card and len(card) < 10_000
    (run.folder / "metrics.jsonl").rename(run.folder / "kept")
    assert "<polyline" not in run._repr_html_()
    (run.folder / "kept").rename(run.folder / "metrics.jsonl")
