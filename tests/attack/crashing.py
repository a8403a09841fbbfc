"""Trainings in forked children that die, fail or get a signal at a chosen moment, for the attacks on runs.

A moment is a count, not a time: every operation on a file and every training step is one, so the cases do not depend on the machine's speed.
Operations are seen by Python's audit hook, and by wrappers of the calls that it does not report. Left out: operations inside libraries
that do not call Python (a file of tensors is one operation, of which a half is written).
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterable
from contextlib import redirect_stdout, suppress
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.files import sha256
from seqloom.train.checkpoint import step_folders

EVENTS = {
    *("os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.chmod", "os.truncate", "os.link", "os.symlink"),
    *("fcntl.flock", "shutil.rmtree"),
}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT
DIED = 77

OFTEN = ["train.eval_every=2", "train.save_every=2", "train.log_every=1"]
CHATS = ["model.dim=16", "model.stack.layers=1", "model.stack.heads=2", "model.stack.position.length=64"]
FAMILIES = {
    "lstm-lm": ["model.dim=8", "model.stack.dim=8", "batches.width=9", "batches.batch=4", "model.dropout=0.1"],
    "gpt": ["model.dim=16", "model.stack.layers=1", "model.stack.heads=2", "batches.batch=2", "batches.width=16"],
    "bert-small": ["model.dim=16", "model.stack.layers=1", "model.stack.heads=2", "batches.batch=2", "batches.width=16"],
    "transformer": ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=60", "batches.shuffle_pool=64"],
    "rnnsearch": [
        *("tokenizer.size=300", "model.dim=8", "model.encoder.dim=8", "model.decoder.dim=8"),
        *("batches.batch_tokens=60", "train.average_checkpoints=2"),
    ],
    "classifier": ["model.dim=16", "batches.batch_tokens=60"],
    "ppo": ["batches.batch=4", "rollouts.max_tokens=6", "rollouts.samples=2", "rollouts.reward={type: Length, target: 2}"],
}  # fmt: skip
BASES = {
    "ppo": ["sft", *CHATS, "batches.batch_tokens=200"]
}  # what the run is trained with that a training begins from


class Child(NamedTuple):
    """How a child ended: its exit code (DIED at the chosen moment), and what it printed."""

    code: int
    output: str


class Moments:
    """Counts operations and calls `at` when the chosen one begins; -1 chooses none."""

    def __init__(self, chosen: int, at: Callable[[], None]):
        self.chosen = chosen
        self.at = at
        self.count = 0
        self.on = True

    def next(self) -> None:
        if not self.on:
            return
        self.count += 1
        if self.count == self.chosen:
            self.at()

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in EVENTS or (event == "open" and (arguments[2] or 0) & WRITES):
            self.next()


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class FullDisk:
    """From the chosen moment on, every operation that needs space fails."""

    def __init__(self, number: int = errno.ENOSPC):
        self.number = number
        self.full = False

    def __call__(self) -> None:
        self.full = True

    def hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        needs_space = event == "os.mkdir" or (event == "open" and (arguments[2] or 0) & os.O_CREAT)
        if self.full and needs_space and not str(arguments[0]).startswith("/dev/"):
            raise OSError(self.number, os.strerror(self.number), str(arguments[0]))


def watch(moments: Moments, disk: FullDisk | None) -> None:
    """Makes this process count its operations; it is a child, which ends soon."""
    from seqloom.train import checkpoint, loop, plan
    from seqloom.train.budget import Costs

    sys.addaudithook(moments.hook)
    if disk:
        sys.addaudithook(disk.hook)
    real_write, real_fsync, real_save = os.write, os.fsync, checkpoint.save_file
    real_step = loop.TrainLoop.train_step

    def refuse() -> None:
        if disk and disk.full:
            raise OSError(disk.number, os.strerror(disk.number))

    def write(handle: int, data: Any) -> int:
        if moments.on and moments.count + 1 == moments.chosen:
            real_write(handle, bytes(data)[: len(data) // 2])
        moments.next()
        refuse()
        return real_write(handle, data)

    def fsync(handle: int) -> None:
        moments.next()
        real_fsync(handle)

    def save_file(tensors: Any, path: Path, *rest: Any, **options: Any) -> None:
        if moments.on and moments.count + 1 == moments.chosen:
            Path(path).write_bytes(b"\7" * 99)
        moments.next()
        refuse()
        real_save(tensors, path, *rest, **options)

    def train_step(self: Any, *arguments: Any) -> int:
        moments.next()
        return real_step(self, *arguments)

    os.write, os.fsync = write, fsync  # type: ignore[assignment]
    checkpoint.save_file = save_file
    loop.TrainLoop.train_step = train_step  # type: ignore[method-assign]
    # Measuring what a step costs takes a second, and a budget in steps does not depend on it.
    plan.measure_costs = lambda options, job: Costs(1e-3, 1e-3, 1.0, 1.0, 1.0, 1.0, {}, 0.0)


def fork(
    work: Callable[[], None],
    moment: int = -1,
    at: Callable[[], None] = die,
    log: Path | None = None,
) -> tuple[Child, int]:
    """Runs `work` in a child in which `at` is called at a moment; how it ended, and how many moments it had."""
    read_end, write_end = os.pipe()
    real_write = os.write
    child = os.fork()
    if child == 0:
        os.close(read_end)
        moments = Moments(moment, at)
        code = 1
        try:
            target = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(target, 1)
            os.dup2(target, 2)
            sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
            watch(moments, at if isinstance(at, FullDisk) else None)
            work()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:
            traceback.print_exc()
        finally:
            moments.on = False
            with suppress(BaseException):
                sys.stdout.flush()
                sys.stderr.flush()
            real_write(write_end, str(moments.count).encode())
            os._exit(code)
    os.close(write_end)
    with os.fdopen(read_end) as pipe:
        count = int(pipe.read() or -1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    output = log.read_text("utf-8", "replace") if log and log.exists() else ""
    if log:
        log.unlink(missing_ok=True)
    return Child(DIED if code == -signal.SIGKILL else code, output), count


def train(family: str, data: list[Path], out: Path, *changes: str, steps: int = 4) -> Callable[[], None]:
    """The command that trains a small model of a family."""
    from seqloom.cli import main

    words = ["train", family, *FAMILIES[family], *OFTEN, *changes, *options(data, out, steps)]
    if family in BASES:
        words += ["--from", str(base_run(family, data))]
    return lambda: main(words)


def options(data: list[Path], out: Path, steps: int) -> list[str]:
    return ["--data", *map(str, data), "--steps", str(steps), "--out", str(out), "--threads", "1"]


def base_run(family: str, data: list[Path]) -> Path:
    """The run that trainings of a family begin from, beside their data."""
    from seqloom.cli import main

    folder = data[0].parent / f"base-{family}"
    if not folder.exists():
        with redirect_stdout(StringIO()):
            main(["train", *BASES[family], *options(data, folder, 4)])
    return folder


def write_data(folder: Path) -> dict[str, list[Path]]:
    """Small data for each family."""
    import random

    chance = random.Random(1)
    words = "the a old young king queen dog cat river street sees hears finds and but then never".split()  # noqa: SIM905
    lines = [" ".join(chance.choices(words, k=chance.randint(3, 9))) for _ in range(200)]
    folder.mkdir(parents=True, exist_ok=True)
    text, source, target, labelled, chats = (
        folder / name for name in ("text.txt", "text.en", "text.xx", "text.tsv", "chats.jsonl")
    )
    text.write_text("\n".join(lines) + "\n", "utf-8")
    source.write_text("\n".join(lines) + "\n", "utf-8")
    target.write_text("\n".join(" ".join(reversed(line.split())).upper() for line in lines) + "\n", "utf-8")
    rows = [f"{line}\t{'dog' if 'dog' in line else 'none'}" for line in lines]
    labelled.write_text("text\tlabel\n" + "\n".join(rows) + "\n", "utf-8")
    answers = [json.dumps({"prompt": f"how is it {n}?", "completion": words[n % 5]}) for n in range(60)]
    chats.write_text("\n".join(answers) + "\n", "utf-8")
    plain, pair = [text], [source, target]
    return {
        "lstm-lm": plain, "gpt": plain, "bert-small": plain, "transformer": pair, "rnnsearch": pair, "classifier": [labelled], "ppo": [chats],
    }  # fmt: skip


def warm_up(families: Iterable[str], place: Path) -> None:
    """Trains in this process, so that its forks have all modules loaded, all kernels compiled and the data in the cache."""
    for family in families:
        with redirect_stdout(StringIO()):
            train(family, write_data(place / "data")[family], place / f"warm-{family}")()
    gc.freeze()


def bits(folder: Path) -> dict[str, str]:
    """The digests of everything that a run computes: weights, optimiser, random state and measurements."""
    found = {file for _, path in step_folders(folder / "checkpoints") for file in path.glob("*.safetensors")}
    found |= {folder / "model.safetensors", folder / "metrics.jsonl", folder / "tokenizer.json"}
    return {str(path.relative_to(folder)): sha256(path) for path in sorted(found) if path.exists()}


def leftovers(folder: Path) -> list[str]:
    """Hidden files that a finished training should have removed."""
    return [str(path) for path in folder.rglob(".*")]


def flock_works(folder: Path) -> bool:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
