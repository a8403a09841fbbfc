"""Attack: a second training begins in the folder of one that is under way. It is refused, whatever the first does at that moment; when the
first dies, its lock dies with it."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

from attack import Count
from attack.crashing import bits, fork, train, warm_up, write_data


def attack(seed: int, amount: float) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="seqloom-shared-") as name:
        place = Path(name).resolve()
        os.environ["SEQLOOM_CACHE"] = str(place / "cache")
        data = write_data(place / "data")["lstm-lm"]
        warm_up(["lstm-lm"], place)
        _, moments = fork(train("lstm-lm", data, place / "whole"))
        expected = bits(place / "whole")
        number = max(5, int(10 * amount))
        points = sorted({3 + (moments - 6) * case // number for case in range(number)})
        count = Count("R2", "two trainings in one folder at once", len(points), [])
        for point in points:
            if fault := meet(place, data, point, expected):
                count.failures.append(f"moment {point} of {moments}: {fault}")
        return [count]


def meet(place: Path, data: list[Path], point: int, expected: dict[str, str]) -> str:
    """Lets a training wait at a moment, begins another, then kills the first; what went wrong."""
    out, mark = place / f"run-{point}", place / "waits"

    def wait() -> None:
        mark.touch()
        os.kill(os.getpid(), signal.SIGSTOP)

    first = os.fork()
    if first == 0:
        fork_free(train("lstm-lm", data, out), point, wait)
    while not mark.exists():
        time.sleep(0.002)
        if os.waitpid(first, os.WNOHANG)[0]:
            return "the first training ended before its moment"
    try:
        for changes in ((), ("--overwrite",), ("seed=3",)):
            second, _ = fork(train("lstm-lm", data, out, *changes), log=place / "log")
            refused = (
                "another process is training there" in second.output or "another config" in second.output
            )
            if second.code != 2 or not refused:
                return f"{changes}: the second ended with {second.code}: {second.output.strip()[-200:]}"
    finally:
        os.kill(first, signal.SIGKILL)
        os.waitpid(first, 0)
        mark.unlink()
    third, _ = fork(train("lstm-lm", data, out), log=place / "log")
    if third.code != 0:
        return f"after the first died: {third.output.strip()[-200:]}"
    found = bits(out)
    return "" if all(found.get(name) == digest for name, digest in expected.items()) else "other bits"


def fork_free(work, point, at) -> None:  # type: ignore[no-untyped-def]
    """Runs work in this process, which is a child, and ends it."""
    from attack.crashing import Moments, watch

    try:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.dup2(null, 2)
        watch(Moments(point, at), None)
        work()
    finally:
        os._exit(0)
