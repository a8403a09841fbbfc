"""Attack: a command that writes vectors or data is killed before each of its operations. What was there before is still there or the result is
complete, and the same command afterwards leaves nothing hidden behind."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from attack import Count
from attack.crashing import DIED, fork


def attack(seed: int, amount: float) -> list[Count]:
    import numpy as np

    from seqloom import world
    from seqloom.vectors import Vectors

    vectors = Vectors([f"word{index}" for index in range(50)], np.ones((50, 4), np.float32))
    with tempfile.TemporaryDirectory(prefix="seqloom-killed-") as name:
        place = Path(name).resolve()
        writers: dict[str, Callable[[Path], None]] = {
            "a folder of vectors": lambda out: vectors.save(out),
            "a file of vectors": lambda out: vectors.save(out.with_suffix(".txt")),
            "vectors in place of others": lambda out: vectors.save(out, overwrite=True),
            "the built-in world": lambda out: world.write(out, 5, 2, 2),
        }
        count = Count("R2", "writers of vectors and data, killed at each operation", 0, [])
        cases = 0
        for kind, write in writers.items():
            overwrites = "in place" in kind
            _, moments = fork(lambda write=write: write(place / "first" / "out"))  # type: ignore[misc]
            for point in range(1 + seed % 3, moments + 1, 1 if amount >= 1 else 3):
                cases += 1
                folder = place / f"{kind} {point}".replace(" ", "-")
                folder.mkdir()
                if overwrites:
                    vectors.save(folder / "out")
                if fault := kill(write, folder, point, place / "log", overwrites):
                    count.failures.append(f"{kind}, moment {point} of {moments}: {fault}")
        return [count._replace(cases=cases)]


def kill(write: Callable[[Path], None], folder: Path, point: int, log: Path, overwrites: bool) -> str:
    """Kills a writer at a moment and runs it again; what went wrong."""
    child, _ = fork(lambda: write(folder / "out"), point, log=log)
    if child.code not in (0, DIED):
        return f"ended with {child.code}: {child.output[-200:]}"
    complete = any(path.name.startswith("out") for path in folder.iterdir())
    child, _ = fork(lambda: write(folder / "out"), log=log)
    # A result that was complete before the kill is not written again.
    if child.code != 0 and not (complete and child.code in (1, 2) and "exists" in child.output):
        return f"the same command ends with {child.code}: {child.output[-200:]}"
    if child.code != 0:
        other, _ = fork(lambda: write(folder / "out-2"), log=log)
        if other.code != 0:
            return f"another name ends with {other.code}: {other.output[-200:]}"
    if not any(path.name.startswith("out") for path in folder.iterdir()):
        return "there is no result"
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    return f"left behind: {hidden}" if hidden else ""
