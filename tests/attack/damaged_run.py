"""Attack: the files of an interrupted run are flipped, cut, removed, swapped, renamed or added. Going on must name the damage and refuse it
with exit code 2, or end with the bits of the undamaged run."""

from __future__ import annotations

import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from attack import Count
from attack.crashing import Child, bits, fork, train, warm_up, write_data
from seqloom.run_files import METRICS_FILE

STEPS = 8
DAMAGED = ("config.yaml", "tokenizer.json", "labels.json", "manifest.json", "plan.json", METRICS_FILE)
Damage = Callable[
    [Path, Path, random.Random], list[str]
]  # (run, another run, dice) → the names that should appear


def run_files(run: Path) -> list[Path]:
    """The files that going on reads: those at the top, and those of all checkpoints."""
    top = [run / name for name in DAMAGED if (run / name).exists()]
    return [*top, *sorted((run / "checkpoints").glob("step-*/*"))]


def pick(run: Path, dice: random.Random) -> Path:
    """A file of the run, every second time one of the few at the top."""
    files = run_files(run)
    return dice.choice(files[: len(DAMAGED)] if dice.random() < 0.5 else files)


def flip(run: Path, other: Path, dice: random.Random) -> list[str]:
    file = pick(run, dice)
    data = bytearray(file.read_bytes())
    data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
    return [file.name]


def cut(run: Path, other: Path, dice: random.Random) -> list[str]:
    file = pick(run, dice)
    os.truncate(file, dice.randrange(file.stat().st_size))
    return [file.name]


def delete(run: Path, other: Path, dice: random.Random) -> list[str]:
    file = pick(run, dice)
    file.unlink()
    return [file.name]


def swap(run: Path, other: Path, dice: random.Random) -> list[str]:
    """A file or a checkpoint of another run in the place of this run's, or two files of this run exchanged."""
    if dice.random() < 0.4:
        step = dice.choice(sorted((run / "checkpoints").iterdir())).name
        shutil.rmtree(run / "checkpoints" / step)
        donor = dice.choice(sorted((other / "checkpoints").iterdir()))
        shutil.copytree(donor, run / "checkpoints" / step)
        return [step]
    file = pick(run, dice)
    source = other / file.relative_to(run)
    if dice.random() < 0.5 and source.exists() and source.read_bytes() != file.read_bytes():
        shutil.copyfile(source, file)
        return [file.name, file.parent.name] if file.parent != run else [file.name]
    partner = dice.choice([path for path in run_files(run) if path.read_bytes() != file.read_bytes()])
    a, b = file.read_bytes(), partner.read_bytes()
    file.write_bytes(b)
    partner.write_bytes(a)
    return [file.name, partner.name, "manifest.json"]


def rename(run: Path, other: Path, dice: random.Random) -> list[str]:
    """A checkpoint under the name of another step, or under no such name."""
    steps = sorted((run / "checkpoints").iterdir())
    step = dice.choice(steps)
    number = int(step.name[5:])
    name = dice.choice(
        [
            f"step-{number + 100:08d}",
            f"step-{number + 1:08d}",
            f"step-{number}",
            f"{step.name}.bak",
            "best",
            "newest",
        ]
    )
    if dice.random() < 0.3 and len(steps) > 1:
        shutil.rmtree(steps[-1])
        steps[0].rename(steps[-1])
        return [steps[-1].name]
    step.rename(step.with_name(name))
    return [name, step.name]


def add(run: Path, other: Path, dice: random.Random) -> list[str]:
    """A file or a checkpoint that does not belong to the run."""
    choice = dice.randrange(4)
    if choice == 0:
        file = dice.choice(["begin.json", "profile.json"])
        (run / file).write_text("{}")
        return [file]
    step = dice.choice(sorted((run / "checkpoints").iterdir()))
    if choice == 1:
        (step / "extra.safetensors").write_bytes(dice.randbytes(20))
        return ["extra.safetensors"]
    if choice == 2:
        donor = dice.choice(sorted((other / "checkpoints").iterdir()))
        name = f"step-{dice.randrange(9, 99):08d}" if dice.random() < 0.5 else donor.name
        shutil.copytree(donor, run / "checkpoints" / name, dirs_exist_ok=True)
        return [name]
    name = dice.choice(["step-9", "step-000000009", "notes.txt", "last"])
    (run / "checkpoints" / name).mkdir()
    return [name]


KINDS: dict[str, tuple[Damage, int]] = {
    "bit flips": (flip, 40),
    "truncations": (cut, 20),
    "missing files": (delete, 15),
    "swapped files and checkpoints": (swap, 20),
    "renamed checkpoints": (rename, 15),
    "added files and checkpoints": (add, 15),
}


def attack(seed: int, amount: float) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="seqloom-damaged-") as name:
        place = Path(name).resolve()
        os.environ["SEQLOOM_CACHE"] = str(place / "cache")
        data = write_data(place / "data")["classifier"]
        warm_up(["classifier"], place)
        clean, other, whole = (place / name for name in ("clean", "other", "whole"))
        _, moments = fork(train("classifier", data, whole, steps=STEPS))
        for folder, changes in ((clean, ()), (other, ("seed=1",))):
            fork(train("classifier", data, folder, *changes, steps=STEPS), moments * 3 // 4)
        expected = bits(whole)
        counts = []
        for kind, (damage, number) in KINDS.items():
            count = Count("R3", f"{kind} of an interrupted run", max(3, int(number * amount)), [])
            for case in range(count.cases):
                run = place / "run"
                shutil.copytree(clean, run)
                dice = random.Random(f"{kind} {seed} {case}")
                names = damage(run, other, dice)
                child, _ = fork(train("classifier", data, run, steps=STEPS), log=place / "log")
                if fault := judge(child, names, run, expected):
                    count.failures.append(f"{case}: {names}: {fault}")
                shutil.rmtree(run)
            counts.append(count)
        return counts


def judge(child: Child, names: list[str], run: Path, expected: dict[str, str]) -> str:
    """What was wrong with the answer to a damage."""
    last = (child.output.strip().splitlines() or ["no message"])[-1]
    named = any(name in child.output for name in names)
    if child.code == 2:
        return "" if named else f"refused without a name: {last}"
    if child.code != 0:
        return f"ended with {child.code}: {last}"
    found = bits(run)
    wrong = [name for name in {**expected, **found} if expected.get(name) != found.get(name)]
    if not wrong or (wrong == [METRICS_FILE] and named):
        return ""
    return f"{'named' if named else 'not named'}, other bits: {wrong}"
