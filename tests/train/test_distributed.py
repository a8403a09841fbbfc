"""Two processes under torchrun train as one does with the same global batch."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqloom.run import load
from seqloom.run_files import read_metrics

STILL = ["train.steps=30", "train.eval_every=10", "train.log_every=1", "train.average_checkpoints=0"]
FAMILIES = {
    "gpt": ["model.dim=32", "model.stack.layers=1", "batches.batch=6"],
    "lstm-lm": ["model.dim=24", "model.stack.dim=24", "batches.width=20", "batches.batch=6"],
    "transformer": [
        "tokenizer.size=300", "model.dim=32", "model.encoder.dropout=0", "model.decoder.dropout=0", "batches.batch_tokens=200", "train.accumulate=2",
    ],
}  # fmt: skip


def curves(arguments: list[str], place: Path) -> list[list[dict]]:
    """What one process and two tell of the same training."""
    shared = ["-m", "seqloom", "train", *arguments, "--threads", "1", "--out"]
    two = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        *shared,
        str(place / "two"),
    ]
    for line in ([sys.executable, *shared, str(place / "one")], two):
        finished = subprocess.run(line, capture_output=True, text=True, timeout=800)
        assert finished.returncode == 0, finished.stderr
    return [read_metrics(place / "one"), read_metrics(place / "two")]


@pytest.mark.parametrize("name", FAMILIES)
def test_two_processes_follow_the_loss_curve_of_one(
    name: str, tmp_path: Path, text: Path, parallel: list[Path]
) -> None:
    files = [str(text)] if name != "transformer" else [str(path) for path in parallel]
    one, other = curves([name, *FAMILIES[name], *STILL, "--data", *files], tmp_path)
    assert [line["step"] for line in one] == [line["step"] for line in other] and len(one) == 33
    for ours, theirs in zip(one, other, strict=True):
        for key in ("loss", "valid_loss"):
            assert ours.get(key) == pytest.approx(theirs.get(key), abs=1e-5)
    first, second = load(tmp_path / "one"), load(tmp_path / "two")
    for ours, theirs in zip(first.model.parameters(), second.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-3)


def test_a_budget_is_as_many_steps_for_two_processes(tmp_path: Path, parallel: list[Path]) -> None:
    """Their batches differ in tokens, and processes that go different ways wait for each other for ever."""
    options = [*FAMILIES["transformer"], "train.tokens=7000", "train.log_every=1"]
    one, other = curves(["transformer", *options, "--data", *map(str, parallel)], tmp_path)
    assert [(line["step"], "valid_loss" in line) for line in one] == [
        (line["step"], "valid_loss" in line) for line in other
    ]
    assert sum("valid_loss" in line for line in one) >= 10


def test_a_refusal_of_the_main_process_ends_the_others_at_once(tmp_path: Path, text: Path) -> None:
    """They would wait for it for half an hour."""
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "thesis.txt").write_text("x")
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        "2",
        "-m",
        "seqloom",
    ]
    command += ["train", "gpt", *FAMILIES["gpt"], "--data", str(text), "--out", str(tmp_path / "precious")]
    finished = subprocess.run(command, capture_output=True, text=True, timeout=800)
    assert finished.returncode != 0
    assert "exists and is not a run folder" in finished.stderr
