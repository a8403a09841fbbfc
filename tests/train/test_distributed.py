"""Two processes under torchrun train as one does with the same global batch."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.files import sha256
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


def test_two_processes_train_a_policy(tmp_path: Path) -> None:
    """Each samples answers to its own prompts; together they learn the reward, and a stopped run goes on with the same bits."""
    words = ("tired", "wide", "muddy")
    chats = [{"prompt": f"how is it {n}?", "completion": words[n % 3]} for n in range(60)]
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(chat) + "\n" for chat in chats))
    small = ["model.dim=24", "model.stack.layers=1", "model.stack.heads=2", "model.stack.position.length=64"]
    rate = ["train.optimizer.lr=1e-2", "train.steps=60"]
    file = tmp_path / "chats.jsonl"
    seqloom.fit("sft", *small, *rate, data=file, out=tmp_path / "sft", threads=1, progress=False)
    launch = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    launch += ["-m", "seqloom", "train"]
    options = ["rollouts.reward={type: Regex, pattern: tired}", "rollouts.max_tokens=8", "rollouts.samples=8"]
    options += ["batches.batch=4", "rollouts.beta=0.01", "rollouts.kl_target=4.0", "train.optimizer.lr=3e-3"]
    options += ["train.schedule={type: Constant, warmup: 2}", "train.eval_every=12", "train.log_every=1"]
    begin = ["ppo", "--data", str(file), "--from", str(tmp_path / "sft"), *options, "--out"]
    whole, cut = str(tmp_path / "whole"), str(tmp_path / "cut")
    for arguments in (
        [*begin, whole, "--steps", "24"],
        [*begin, cut, "--steps", "12"],
        [cut, "--steps", "+12"],
    ):
        finished = subprocess.run([*launch, *arguments, "--threads", "1"], capture_output=True, text=True)
        assert finished.returncode == 0, finished.stderr
    lines = read_metrics(tmp_path / "whole")
    rewards = [line["reward"] for line in lines if "reward" in line]
    assert sum(rewards[-6:]) / 6 > sum(rewards[:4]) / 4 + 0.15
    assert sha256(tmp_path / "whole" / "model.safetensors") == sha256(tmp_path / "cut" / "model.safetensors")


@pytest.mark.timeout(300)
def test_a_process_that_fails_ends_though_the_other_does_not_answer(tmp_path: Path, text: Path) -> None:
    """It still waits for a sum of both, and frees nothing that would wait with it. Its error is printed, its exit code is right."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, time, torch, torch.distributed as dist\n"
        "from seqloom.cli import main\n"
        "from seqloom.errors import TrainingError\n"
        "from seqloom.train import fit\n"
        "def fails(*_):\n"
        "    dist.barrier()\n"
        "    if os.environ['RANK'] == '1':\n"
        "        time.sleep(10**6)\n"
        "    work = dist.all_reduce(torch.zeros(1), async_op=True)\n"
        "    print('so far', end='')\n"
        "    raise TrainingError('failed on purpose')\n"
        "fit.train_as_rank = fails\n"
        f"main(['train', 'gpt', '--data', {str(text)!r}, '--out', {str(tmp_path / 'out')!r}, '--steps', '1'])\n"
    )
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    group = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    failing, silent = (
        subprocess.Popen(
            [sys.executable, str(program)],
            env={**os.environ, **group, "RANK": rank, "LOCAL_RANK": rank},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in "01"
    )
    try:
        out, err = failing.communicate(timeout=200)
    finally:
        for process in (failing, silent):
            process.kill()
            process.communicate()
    assert failing.returncode == 1
    assert out == "so far" and err.strip().endswith("seqloom: failed on purpose")
