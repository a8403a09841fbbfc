"""How far one command reaches into the package: what a newcomer has to read who follows it."""

import json
import os
import subprocess
import sys
from pathlib import Path

PROGRAM = Path(__file__).parent / "support" / "reach.py"
MAX_EXECUTED, MAX_IMPORTED = 45, 90  # files of the package without cli/
SMALL = [
    *("model.dim=32", "model.stack.layers=2", "model.stack.heads=2"),
    *("batches.width=16", "batches.batch=8", "train.steps=3"),
]
LINE = "The quick brown fox jumps over the lazy dog, and the dog sleeps on.\n"


def reach(folder: Path, *arguments: str) -> dict:
    """What a command executes and imports, in a process of its own with caches of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "SEQLOOM_CACHE": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert not done.returncode, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_a_training_reaches_few_files(tmp_path: Path):
    """Kernels are compiled by a first training: a compiler calls more of their files. Its store is deleted, so that the second one
    tokenizes its text."""
    (tmp_path / "input.txt").write_text(LINE * 200)
    for name in ("first", "second"):
        found = reach(tmp_path, "train", "gpt", "--data", "input.txt", "--out", name, *SMALL)
        assert found["code"] == 0
        for store in (tmp_path / "cache").glob("*/store.json"):
            store.unlink()
    executed, imported = found["executed"], found["imported"]
    assert len(executed) <= MAX_EXECUTED, ", ".join(sorted(executed))
    assert len(imported) <= MAX_IMPORTED, ", ".join(imported)
    for name in (
        "compat.py",
        "own_parts.py",
        "text/chats.py",
        "text/annotated.py",
        "nn/capture.py",
        "nn/recurrent.py",
    ):
        assert name not in executed, f"{name} is not needed to train a GPT"
    assert not [
        name
        for name in imported
        if name.startswith(("inference/", "inspect/", "vectors/", "world/", "studies/"))
    ]
