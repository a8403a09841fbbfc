"""Attack: trainings of seven families are killed or get a signal at random moments, and go on; each must end with the bits of an undisturbed
run. And two undisturbed runs must have the same bits."""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path

from attack import Count
from attack.crashing import DIED, FAMILIES, Child, bits, die, fork, leftovers, train, warm_up, write_data

STEPS = 8
KILLS, SIGNALS = 18, 6


def attack(seed: int, amount: float) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="seqloom-interrupted-") as name:
        place = Path(name).resolve()
        os.environ["SEQLOOM_CACHE"] = str(place / "cache")
        data = write_data(place / "data")
        warm_up(FAMILIES, place)
        expected: dict[str, dict[str, str]] = {}
        moments: dict[str, int] = {}
        twice = Count("R5", "the same seed twice", len(FAMILIES), [])
        for family in FAMILIES:
            for folder in (place / f"{family}-1", place / f"{family}-2"):
                child, moments[family] = fork(
                    train(family, data[family], folder, steps=STEPS), log=place / "log"
                )
                assert child.code == 0, child.output
            expected[family] = bits(place / f"{family}-1")
            if bits(place / f"{family}-2") != expected[family]:
                twice.failures.append(family)
        kills = Count("R1", "kill -9 at random moments, seven families", max(7, int(KILLS * amount)), [])
        signals = Count("R8", "SIGINT and SIGTERM at random moments", max(7, int(SIGNALS * amount)), [])
        for case in range(kills.cases):
            family = list(FAMILIES)[case % len(FAMILIES)]
            dice = random.Random(f"{seed} {case}")
            for count, at, codes in ((kills, die, {DIED}), (signals, *stop(dice))):
                if case >= count.cases:
                    continue
                out = place / f"{count.code}-{case}"
                moment = dice.randint(1, moments[family])
                command = train(family, data[family], out, steps=STEPS)
                child, _ = fork(command, moment, at, log=place / "log")
                fault = wrong_end(child, codes) or go_on(command, place, out, expected[family])
                if fault:
                    count.failures.append(f"{family}, moment {moment} of {moments[family]}: {fault}")
        return [twice, kills, signals]


def stop(dice: random.Random) -> tuple[Callable[[], None], set[int]]:
    """A signal that asks the process to stop, and the exit codes that are right: 128 + its number, or death by it before training begins."""
    number = dice.choice([signal.SIGINT, signal.SIGTERM])
    return (lambda: os.kill(os.getpid(), number)), {128 + number, -number, 0}


def wrong_end(child: Child, codes: set[int]) -> str:
    """A run may have ended before the moment came."""
    if child.code in codes or child.code == 0:
        return ""
    return f"ended with {child.code}: {(child.output.strip().splitlines() or [''])[-1]}"


def go_on(command: Callable[[], None], place: Path, out: Path, expected: dict[str, str]) -> str:
    """Gives the command again; what went wrong."""
    child, _ = fork(command, log=place / "log")
    if child.code != 0:
        return f"the same command ends with {child.code}: {(child.output.strip().splitlines() or [''])[-1]}"
    found = bits(out)
    final = [name for name in expected if f"step-{STEPS:08d}" in name or "checkpoints" not in name]
    wrong = [name for name in final if found.get(name) != expected[name]]
    wrong += [name for name in found if name in expected and found[name] != expected[name]]
    if wrong:
        return f"other bits: {wrong}"
    hidden = leftovers(out)
    return f"left behind: {hidden}" if hidden else ""
