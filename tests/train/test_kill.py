"""Real commands killed with SIGKILL, at random moments and inside saves, then given again: the same bits as without."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from seqloom.files import sha256
from seqloom.train.checkpoint import latest

pytestmark = [pytest.mark.kill, pytest.mark.timeout(3000)]
FAMILIES = {
    "gpt": [
        "model.dim=64",
        "model.stack.layers=2",
        "model.stack.dropout=0.1",
        "batches.batch=4",
        "train.steps=120",
    ],
    "lstm-lm": [
        "model.dim=48",
        "model.stack.dim=64",
        "batches.width=20",
        "batches.batch=5",
        "model.dropout=0.1",
        "train.steps=160",
    ],
    "transformer": [
        "tokenizer.size=300",
        "model.dim=32",
        "batches.batch_tokens=200",
        "batches.shuffle_pool=64",
        "train.steps=80",
    ],
    "rnnsearch": [
        "tokenizer.size=300",
        "model.dim=32",
        "model.encoder.dim=32",
        "model.decoder.dim=32",
        "batches.batch_tokens=150",
        "train.steps=60",
    ],
    "ppo": [  # begins from the run of gpt
        "rollouts.reward={type: Length, target: 3}",
        "rollouts.max_tokens=12",
        "rollouts.kl_target=0.1",
        "batches.batch=4",
        "batches.max_length=40",
        "train.steps=60",
        "train.eval_batches=4",
    ],
}
OFTEN = ["train.eval_every=20", "train.save_every=5", "train.log_every=3", "train.average_checkpoints=2"]
KILLS = 30


def command(name: str, folder: Path, data: list[Path]) -> list[str]:
    files = data[:1] if name in ("gpt", "lstm-lm", "ppo") else data[1:]
    options = [*FAMILIES[name], *OFTEN, "--data", *map(str, files), "--out", str(folder), "--threads", "1"]
    base = ["--from", str(data[0].parent / "gpt")] if name == "ppo" else []
    return [sys.executable, "-m", "seqloom", "train", name, *options, *base]


def bits(folder: Path) -> dict[str, str]:
    last = latest(folder / "checkpoints", print).path
    paths = [
        folder / "model.safetensors",
        folder / "metrics.jsonl",
        *(last / f"{name}.safetensors" for name in ("model", "optim", "rank-0")),
    ]
    return {str(path.relative_to(folder)): sha256(path) for path in paths}


def torn(folder: Path) -> bool:
    """Whether a save was under way when the run was killed."""
    return any((folder / "checkpoints").glob(".tmp-*"))


def measured(folder: Path) -> int:
    """How far a run has come, in bytes of metrics.jsonl: a machine's speed does not enter."""
    file = folder / "metrics.jsonl"
    return file.stat().st_size if file.exists() else -1


def kill(arguments: list[str], folder: Path, chance: random.Random, inside_save: bool, length: int) -> bool:
    """Start the command and kill it on its way to `length`; whether it was killed inside a save."""
    due, later = chance.uniform(0, length * 0.6), chance.uniform(0, 0.02)
    with subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None and measured(folder) < due:
            time.sleep(0.001)
        time.sleep(later)
        while inside_save and process.poll() is None and not torn(folder):
            pass
        process.kill()
        process.wait()
    return torn(folder)


def test_thirty_killed_runs_end_with_the_same_bits(tmp_path: Path, text: Path, parallel: list[Path]) -> None:
    chance = random.Random(20)
    data, whole, lengths = [text, *parallel], {}, {}
    for name in FAMILIES:
        arguments, folder = command(name, tmp_path / name, data), tmp_path / name
        subprocess.run(arguments, check=True, capture_output=True)
        whole[name], lengths[name] = bits(folder), measured(folder)
    inside, same, unfinished = 0, 0, 0
    for number in range(KILLS):
        name = list(FAMILIES)[number % len(FAMILIES)]
        folder = tmp_path / f"{number}-{name}"
        arguments = command(name, folder, data)
        inside += kill(arguments, folder, chance, number % 2 == 0, lengths[name])
        unfinished += not (folder / "results.json").exists()
        finished = subprocess.run(arguments, capture_output=True, text=True, env=os.environ)
        assert finished.returncode == 0, finished.stderr
        same += bits(folder) == whole[name]
        assert not torn(folder)
    print(
        f"{KILLS} killed, {inside} of them inside a save, {unfinished} before the end; {same} ended with the same bits"
    )
    assert same == KILLS
    assert inside >= KILLS // 3
    assert unfinished >= KILLS * 3 // 4
