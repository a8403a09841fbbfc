"""Molecules from a table to numbers: train, evaluate, predict, explain and resume with the commands of a user."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import seqloom
from seqloom.cli import main
from seqloom.run import load
from seqloom.train.loop import TrainLoop
from seqloom.world.molecules import molecule


class PowerCut(Exception):
    pass


SMALL = [
    "model.dim=8",
    "batches.batch_tokens=400",
    "train.steps=20",
    "train.eval_every=10",
]


def write_table(path: Path, start: int, count: int) -> Path:
    rows = (molecule(1, index) for index in range(start, start + count))
    path.write_text("smiles\tlog_s\n" + "".join(f"{smiles}\t{value}\n" for smiles, value in rows))
    return path


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("molecules")
    write_table(folder / "train.tsv", 0, 60)
    write_table(folder / "test.tsv", 100, 20)
    main(["train", "smiles", "--data", str(folder / "train.tsv"), "--out", str(folder / "run"), "-q", *SMALL])
    return folder / "run"


def test_the_errors_are_those_of_a_loop_and_of_the_mean(run: Path, capsys: pytest.CaptureFixture):
    test = run.parent / "test.tsv"
    main(["evaluate", str(run), str(test), "--json"])
    numbers = {number["name"]: number for number in json.loads(capsys.readouterr().out)["numbers"]}
    rows = [line.split("\t") for line in test.read_text().splitlines()[1:]]
    gold = np.array([float(value) for _, value in rows])
    predicted = np.array([value.value for value in seqloom.predict(run, [smiles for smiles, _ in rows])])
    assert numbers["rmse"]["value"] == pytest.approx(np.sqrt(np.mean((predicted - gold) ** 2)), rel=1e-5)
    assert numbers["mae"]["value"] == pytest.approx(np.mean(np.abs(predicted - gold)), rel=1e-5)
    assert numbers["rmse"]["low"] < numbers["rmse"]["value"] < numbers["rmse"]["high"]
    model = load(run).model
    mean = float(model.mean)
    assert numbers["rmse_of_the_mean"]["value"] == pytest.approx(
        np.sqrt(np.mean((mean - gold) ** 2)), rel=1e-5
    )
    assert numbers["spearman"]["signature"].startswith("Spearman|records:20|data:")
    # the scale of the training targets is stored in the run; a share of them is held out
    every = np.array([molecule(1, index).value for index in range(60)])
    assert abs(mean - every.mean()) < every.std() and 0.5 < float(model.deviation) / every.std() < 1.5


def test_a_text_and_a_file_are_predicted(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    main(["predict", str(run), "CCO", "c1ccccc1", "--json"])
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line["text"] for line in lines] == ["CCO", "c1ccccc1"]
    (tmp_path / "new.tsv").write_text("smiles\tlog_s\nCCO\t0\nc1ccccc1\t0\n")
    main(["predict", str(run), "--file", str(tmp_path / "new.tsv"), "-q"])
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [float(row[-1]) for row in rows[1:]] == pytest.approx([line["value"] for line in lines], abs=1e-3)


def test_explain_and_inspect(run: Path, capsys: pytest.CaptureFixture):
    main(["explain", str(run)])
    assert "Σₜ xₜ" in capsys.readouterr().out
    main(["inspect", "tokens", str(run), "C[nH]Cl"])
    assert "Cl" in capsys.readouterr().out


@pytest.mark.parametrize(
    "row, message",
    {
        "CCO\tx": ":3: 'x' is not a number; write it like 3.5",
        "\t1.5": ":3: an empty SMILES; write one, or remove the row",
        "CCO": ":3: 1 cells, but the first row has 2; repair the row",
        "CCO\tinf": ":3: 'inf' is not a number",
    }.items(),
)
def test_a_wrong_row_ends_with_its_number(
    row: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture
):
    (tmp_path / "a.tsv").write_text(f"smiles\tvalue\nCC\t1.5\n{row}\nCCC\t2.5\n")
    with pytest.raises(SystemExit) as end:
        main(["train", "smiles", "--data", str(tmp_path / "a.tsv"), "--out", str(tmp_path / "run"), *SMALL])
    assert end.value.code == 2 and f"a.tsv{message}" in capsys.readouterr().err
    assert not (tmp_path / "run" / "config.yaml").exists()


def test_resuming_gives_the_same_bits(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    data = str(run.parent / "train.tsv")
    folder = tmp_path / "run"
    step = TrainLoop.train_step

    def failing(loop: TrainLoop, *arguments: object) -> object:
        if loop.step == 14:
            raise PowerCut
        return step(loop, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(PowerCut):
        seqloom.fit("smiles", *SMALL, data=data, out=folder)
    monkeypatch.undo()
    seqloom.fit("smiles", *SMALL, data=data, out=folder)
    assert (folder / "metrics.jsonl").read_bytes() == (run / "metrics.jsonl").read_bytes()
    assert (folder / "model.safetensors").read_bytes() == (run / "model.safetensors").read_bytes()


def test_labels_of_molecules_from_the_world(tmp_path: Path, capsys: pytest.CaptureFixture):
    rows = (molecule(1, index) for index in range(60))
    lines = [f"{smiles}\t{'high' if value > -2 else 'low'}" for smiles, value in rows]
    (tmp_path / "a.tsv").write_text("\n".join(lines) + "\n")
    folder = str(tmp_path / "run")
    main(["train", "smiles-classifier", "--data", str(tmp_path / "a.tsv"), "--out", folder, "-q", *SMALL])
    capsys.readouterr()
    main(["predict", folder, "CCO"])
    assert capsys.readouterr().out.split("\t")[1] in ("high", "low")
