"""Attack: a training dies before each operation of its first steps, or its disk is full from there on. The same command must go on, or
begin again, to the same bits; a folder of something else is still refused."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from attack import Count
from attack.crashing import DIED, FullDisk, bits, fork, leftovers, train, warm_up, write_data
from seqloom.errors import NoRoom


def attack(seed: int, amount: float) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="seqloom-young-") as name:
        place = Path(name).resolve()
        os.environ["SEQLOOM_CACHE"] = str(place / "cache")
        data = write_data(place / "data")["lstm-lm"]
        warm_up(["lstm-lm"], place)
        child, moments = fork(train("lstm-lm", data, place / "whole"), log=place / "log")
        assert child.code == 0, child.output
        expected = bits(place / "whole")
        stride = 1 if amount >= 1 else 3
        points = range(1, moments + 1, stride)
        crashed = Count("R2", "crash before each operation of a young run", len(points), [])
        for point in points:
            if fault := crash(place, data, point, expected):
                crashed.failures.append(f"moment {point} of {moments}: {fault}")
        few = range(1 + seed % 5, moments + 1, max(1, 5 * stride))
        full = Count("R4", "disk full from an operation of a young run on", len(few), [])
        for point in few:
            if fault := fill(place, data, point, expected):
                full.failures.append(f"moment {point} of {moments}: {fault}")
        counts = [crashed, full, refuse_others(place, data)]
        if disks := small_disks(place, data, expected, max(4, int(5 * amount))):
            counts.append(disks)
        return counts


def crash(place: Path, data: list[Path], point: int, expected: dict[str, str]) -> str:
    """Kills a training at a moment and gives the command again; what went wrong."""
    out = place / f"crash-{point}"
    child, _ = fork(train("lstm-lm", data, out), point, log=place / "log")
    if child.code not in (0, DIED):
        return f"ended with {child.code}: {last_line(child.output)}"
    return go_on(place, data, out, expected)


def fill(place: Path, data: list[Path], point: int, expected: dict[str, str]) -> str:
    """Fills the disk at a moment; the training ends with a message or goes on without checkpoints. Then there is space again."""
    out = place / f"full-{point}"
    child, _ = fork(train("lstm-lm", data, out), point, FullDisk(), log=place / "log")
    if child.code not in (0, NoRoom.code) or (child.code and "disk is full" not in child.output):
        return f"ended with {child.code}: {last_line(child.output)}"
    return "" if child.code == 0 and not (out / "checkpoints").exists() else go_on(place, data, out, expected)


def go_on(place: Path, data: list[Path], out: Path, expected: dict[str, str]) -> str:
    """Gives the command again; what went wrong."""
    child, _ = fork(train("lstm-lm", data, out), log=place / "log")
    if child.code != 0:
        return f"the same command ends with {child.code}: {last_line(child.output)}"
    found = bits(out)
    if wrong := [name for name in expected if name not in found and "checkpoints" not in name]:
        return f"missing: {wrong}"
    if wrong := [name for name in found if expected.get(name) != found[name]]:
        return f"other bits: {wrong}"
    if hidden := leftovers(out):
        return f"left behind: {hidden}"
    return ""


def refuse_others(place: Path, data: list[Path]) -> Count:
    """Folders of something else: each is refused, and nothing in it changes."""
    cases = {
        "text": {"thesis.txt": "mine"},
        "tokenizer": {"tokenizer.json": "{}"},
        "config": {"config.yaml": "name: other\n"},
        "web": {"manifest.json": "{}", "config.yaml": "a: 1\n"},
        "hidden": {".git": "x"},
    }
    count = Count("R2", "folders of something else", 2 * len(cases), [])
    for name, contents in cases.items():
        for changes in ((), ("--overwrite",)):
            out = place / f"other-{name}"
            out.mkdir(exist_ok=True)
            for file, content in contents.items():
                (out / file).write_text(content)
            child, _ = fork(train("lstm-lm", data, out, *changes), log=place / "log")
            after = {path.name: path.read_text() for path in out.iterdir()}
            if child.code != 2 or after != contents:
                count.failures.append(f"{name} {changes}: ended with {child.code}, {sorted(after)}")
    return count


def small_disks(place: Path, data: list[Path], expected: dict[str, str], number: int) -> Count | None:
    """Real disks of growing sizes, where mounting is permitted: after more space is given, the same command ends with the same bits."""
    disk = place / "disk"
    disk.mkdir()
    whole = sum(path.stat().st_size for path in (place / "whole").rglob("*") if path.is_file())
    count = Count("R4", "disks that are too small", number, [])
    for case in range(number):
        size = max(4096, 2 * whole * case // number)
        if subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"size={size}", "none", disk], capture_output=True, check=False
        ).returncode:
            return None
        try:
            out = disk / "run"
            child, _ = fork(train("lstm-lm", data, out), log=place / "log")
            fault = ""
            if child.code not in (0, NoRoom.code):
                fault = f"ended with {child.code}: {last_line(child.output)}"
            subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
            fault = fault or go_on(place, data, out, expected)
            if fault:
                count.failures.append(f"{size:,} bytes: {fault}")
        finally:
            subprocess.run(["umount", "-l", disk], check=True)
    return count


def last_line(output: str) -> str:
    return (output.strip().splitlines() or ["no message"])[-1]
