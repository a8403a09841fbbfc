"""`seqloom runs replay`: the recorded bits come again, a changed bit is found by name, other conditions are refused."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import seqloom
from seqloom import files, runs
from seqloom.cli import main
from seqloom.errors import ConfigError, RunError
from seqloom.train import checkpoint
from seqloom.train.replay import same_bits

TINY = [
    *("model.dim=8", "model.stack.dim=8", "model.dropout=0.2", "batches.width=9", "batches.batch=4"),
    *("train.eval_every=4", "train.log_every=1", "train.keep_checkpoints=4"),
]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("replay")
    text = place / "text.txt"
    text.write_text("the old king sees a dog and a cat\n" * 200, "utf-8")
    run = seqloom.fit("lstm-lm", *TINY, data=text, steps=12, out=place / "run", threads=1, progress=False)
    return run.folder


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    return shutil.copytree(trained, tmp_path / "run")


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def replace_tensor(run: Path, step: int, file: str, name: str, change) -> None:
    """Changes a tensor of a checkpoint as if the run had computed it so: its manifest lists the new bits."""
    path = run / "checkpoints" / f"step-{step:08d}"
    saved = checkpoint.load(path)
    tensors = {name: saved.tensors(name) for name in ("model", "optim", "rank-0")}
    tensors[file][name] = change(tensors[file][name])
    shutil.rmtree(path)
    checkpoint.save(path.parent, step, tensors, saved.metadata)


def test_the_same_bits_come_again_and_nothing_is_written(run: Path) -> None:
    before = content(run)
    result = runs.replay(run, progress=False)
    assert result.same and (result.from_step, result.to_step) == (8, 12)
    assert result.checkpoints == (12,) and result.lines == 5  # four losses and one evaluation
    saved = run / "checkpoints" / "step-00000012"
    assert result.tensors == sum(len(load_file(path)) for path in saved.glob("*.safetensors"))
    whole = runs.replay(run, from_step=0, steps=12, progress=False)
    assert whole.same and whole.checkpoints == (4, 8, 12) and whole.lines == 15
    assert content(run) == before


@pytest.mark.parametrize("file, place", [("model", 0), ("optim", 3), ("rank-0", 0)])
def test_the_first_tensor_that_differs_is_named(run: Path, file: str, place: int) -> None:
    names = list(load_file(run / "checkpoints" / "step-00000008" / f"{file}.safetensors"))

    def flip(tensor: torch.Tensor) -> torch.Tensor:
        bits = tensor.clone().reshape(-1)
        bits.view(torch.uint8)[0] ^= 1
        return bits.reshape(tensor.shape)

    replace_tensor(run, 8, file, names[place], flip)
    result = runs.replay(run, from_step=4, steps=8, progress=False)
    assert not result.same and result.difference is not None and result.to_step == 8
    assert (result.difference.step, result.difference.file) == (8, f"{file}.safetensors")
    assert result.difference.name == names[place] and result.difference.recorded != result.difference.replayed


def test_a_changed_measurement_is_found(run: Path, capsys: pytest.CaptureFixture) -> None:
    path = run / "metrics.jsonl"
    records = [json.loads(line) for line in path.read_text().splitlines()]
    changed = next(record for record in records if record["step"] == 10)
    changed["loss"] += 1e-9
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    with pytest.raises(SystemExit) as ended:
        main(["runs", "replay", str(run), "--json", "-q"])
    result = json.loads(capsys.readouterr().out)
    assert ended.value.code == 1 and not result["same"]
    assert (result["difference"]["step"], result["difference"]["name"]) == (10, "loss")


def test_other_conditions_are_refused_with_the_reason(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RunError, match="threads: 1 then, 2 now"):
        runs.replay(run, threads=2)
    with pytest.raises(RunError, match=r"no checkpoint of step 5; choose one of 0, 4, 8, 12"):
        runs.replay(run, from_step=5)
    with pytest.raises(RunError, match="nothing is recorded after step 12"):
        runs.replay(run, from_step=12)
    with pytest.raises(RunError, match=r"--steps 4 or fewer"):
        runs.replay(run, from_step=8, steps=5)
    from seqloom.train import replay

    there = {**replay.fingerprint(), "torch": "9.9", "processor": "abacus"}
    monkeypatch.setattr(replay, "fingerprint", lambda: there)
    with pytest.raises(RunError, match=r"torch: .* then, 9\.9 now; processor: .* then, abacus now"):
        runs.replay(run)


def test_other_data_is_refused(run: Path, trained: Path) -> None:
    config = json.loads((run / "manifest.json").read_text())
    config.pop("sha256")
    config["data"]["training data"] = "0" * 64
    (run / "manifest.json").write_bytes(files.with_digest(config))
    with pytest.raises((RunError, ConfigError), match=r"not what the run began with|another run"):
        runs.replay(run, progress=False)


def test_bits_are_compared_not_values() -> None:
    nan, zero = torch.tensor([float("nan")]), torch.tensor([0.0])
    assert same_bits(nan, nan.clone()) and not same_bits(zero, -zero) and not same_bits(zero, zero.double())
