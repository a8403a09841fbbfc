"""Attack: trainings of two processes. One of them is killed or stopped at random, or has NaN or infinity in a step. The other must end soon with
an error, or take the same decision; and the same command must go on to the bits of an undisturbed training."""

from __future__ import annotations

import os
import random
import signal
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

from attack import Count
from attack.bad_numbers import PLACES, VALUES, with_bad_numbers
from attack.crashing import Moments, bits, leftovers, train, warm_up, watch, write_data

STEPS = 10
FAMILIES = ("gpt", "lstm-lm", "transformer")
KILLS, HANGS, NUMBERS = 30, 6, 48
END_SECONDS = 600  # only against a hang of the test itself
HANG_TIMEOUT = timedelta(seconds=20)  # instead of half an hour
Work = Callable[[], None]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def start(rank: int, port: int, work: Work, log: Path) -> int:
    """Begins a process of the group; its id."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        target = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(target, 1)
        os.dup2(target, 2)
        sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
        os.environ.update(
            RANK=str(rank),
            LOCAL_RANK=str(rank),
            WORLD_SIZE="2",
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=str(port),
        )
        work()
        code = 0
    except SystemExit as end:
        code = int(end.code or 0)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def train_pair(works: tuple[Work, Work], log: Path, stopped: int | None = None) -> tuple[list[int], str]:
    """Runs both processes to their ends; their exit codes, and what they printed. A process that stops itself is killed when the other has
    ended."""
    port = free_port()
    children = [start(rank, port, work, log) for rank, work in enumerate(works)]
    codes: list[int | None] = [None, None]
    deadline = time.monotonic() + END_SECONDS
    while None in codes:
        for rank, child in enumerate(children):
            if codes[rank] is None:
                done, status = os.waitpid(child, os.WNOHANG)
                codes[rank] = os.waitstatus_to_exitcode(status) if done else None
        if stopped is not None and codes[1 - stopped] is not None and codes[stopped] is None:
            os.kill(children[stopped], signal.SIGKILL)
        if time.monotonic() > deadline:
            for rank, child in enumerate(children):
                if codes[rank] is None:
                    os.kill(child, signal.SIGKILL)
        time.sleep(0.01)
    output = log.read_text("utf-8", "replace") if log.exists() else ""
    log.unlink(missing_ok=True)
    return [code for code in codes if code is not None], output


def at_moment(work: Work, moment: int, number: int) -> Work:
    """The work of a process that gets a signal at a moment. A group in which a process is to stop waits for it less long than usual."""

    def run() -> None:
        from seqloom.train import process

        if number == signal.SIGSTOP:
            process.TIMEOUT = HANG_TIMEOUT
        watch(Moments(moment, lambda: os.kill(os.getpid(), number)), None)
        work()

    return run


def with_same_weights(work: Work, folder: Path) -> Work:
    """The work of a process that writes the digest of its weights at its end, to compare them with those of the other."""

    def run() -> None:
        import hashlib

        from seqloom.train.loop import TrainLoop

        real = TrainLoop.set_final_weights

        def noted(self: Any) -> None:
            weights = b"".join(p.detach().numpy().tobytes() for p in self.job.model.parameters())
            (folder / f"rank-{os.environ['RANK']}").write_text(hashlib.sha256(weights).hexdigest())
            real(self)

        TrainLoop.set_final_weights = noted  # type: ignore[method-assign]
        work()

    return run


def attack(seed: int, amount: float) -> list[Count]:
    with tempfile.TemporaryDirectory(prefix="seqloom-ranks-") as name:
        place = Path(name).resolve()
        os.environ["SEQLOOM_CACHE"] = str(place / "cache")
        data = write_data(place / "data")
        warm_up(FAMILIES, place)
        expected: dict[str, dict[str, str]] = {}
        twice = Count("R5", "two processes, the same seed twice", len(FAMILIES), [])
        for family in FAMILIES:
            for turn in ("1", "2"):
                work = at_moment(train(family, data[family], place / f"{family}-{turn}", steps=STEPS), -1, 0)
                codes, output = train_pair((work, work), place / "log")
                assert codes == [0, 0], output
            expected[family] = bits(place / f"{family}-1")
            if bits(place / f"{family}-2") != expected[family]:
                twice.failures.append(family)
        kills = Count("R6", "one of two processes is killed", max(3, int(KILLS * amount)), [])
        hangs = Count("R6", "one of two processes is stopped (SIGSTOP)", max(1, int(HANGS * amount)), [])
        for count, number in ((kills, signal.SIGKILL), (hangs, signal.SIGSTOP)):
            for case in range(count.cases):
                dice = random.Random(f"{seed} {number} {case}")
                family = FAMILIES[case % len(FAMILIES)]
                if fault := interrupt(place, family, data[family], expected[family], number, dice):
                    count.failures.append(fault)
        return [twice, kills, hangs, bad_numbers(place, data, seed, max(8, int(NUMBERS * amount)))]


def interrupt(
    place: Path, family: str, data: list[Path], expected: dict[str, str], number: int, dice: random.Random
) -> str:
    """One process gets a signal, the other must end with an error; then both go on. What went wrong."""
    rank, moment = dice.randrange(2), dice.randint(3, 40)
    out = place / f"out-{dice.randrange(10**9)}"
    command = train(family, data, out, steps=STEPS)
    works = [at_moment(command, moment if one == rank else -1, number) for one in range(2)]
    begin = time.monotonic()
    codes, output = train_pair(
        (works[0], works[1]), place / "log", rank if number == signal.SIGSTOP else None
    )
    seconds = time.monotonic() - begin
    case = f"{family}, rank {rank}, moment {moment}"
    if codes != [0, 0]:  # else the moment did not come
        if codes[rank] != -signal.SIGKILL or codes[1 - rank] in (0, None) or codes[1 - rank] < 0:
            return f"{case}: ended with {codes} after {seconds:.0f} s: {last_line(output)}"
        if "this is a bug in seqloom" in output or "Traceback" in output:
            return f"{case}: {last_line(output)}"
    work = at_moment(command, -1, 0)
    codes, output = train_pair((work, work), place / "log")
    if codes != [0, 0]:
        return f"{case}: the same command ends with {codes}: {last_line(output)}"
    found = bits(out)
    wrong = [name for name in expected if name in found and found[name] != expected[name]]
    wrong += [name for name in ("model.safetensors", "metrics.jsonl") if name not in found]
    return f"{case}: other bits: {wrong}" if wrong else "".join(leftovers(out))


def bad_numbers(place: Path, data: dict[str, list[Path]], seed: int, number: int) -> Count:
    """NaN and infinity on either rank: both skip the step, and their weights stay equal and finite; or both end."""
    cases = [
        (family, where, value, once, rank)
        for family in FAMILIES
        for where in PLACES
        for value in VALUES
        for once in (True, False)
        for rank in (0, 1)
    ]
    random.Random(seed).shuffle(cases)
    count = Count("R7", "NaN and infinity on one of two ranks", min(number, len(cases)), [])
    for case in cases[: count.cases]:
        if fault := check_numbers(place, data[case[0]], *case):
            count.failures.append(f"{case}: {fault}")
    return count


def check_numbers(
    place: Path, data: list[Path], family: str, where: str, value: str, once: bool, rank: int
) -> str:
    """What went wrong with bad numbers on one rank."""
    from safetensors.torch import load_file

    out = place / f"numbers-{family}-{where}-{value}-{once}-{rank}"
    notes = place / f"notes-{out.name}"
    notes.mkdir()
    command = with_same_weights(train(family, data, out, steps=STEPS), notes)
    good = at_moment(command, -1, 0)
    last = 5 if once else 10**9

    def bad() -> None:
        watch(Moments(-1, lambda: None), None)
        with_bad_numbers(command, where, VALUES[value], 5, last)

    codes, output = train_pair((bad, good) if rank == 0 else (good, bad), place / "log")
    ends = not once or where == "weight"  # a weight stays bad
    if codes != ([1, 1] if ends else [0, 0]):
        return f"ended with {codes}: {last_line(output)}"
    for path in out.rglob("*.safetensors"):
        if path.name.startswith(("model", "optim")):
            for name, tensor in load_file(path).items():
                if not tensor.isfinite().all():
                    return f"{path.relative_to(out)}: {name} is not finite"
    if not any((out / "checkpoints").glob("step-*")):
        return "no healthy checkpoint is left"
    named = any(sign in output for sign in ("NaN or infinite", "have different weights"))
    if '"event": "skipped"' not in (out / "metrics.jsonl").read_text() and not named:
        return "no skipped step is recorded"
    digests = {path.read_text() for path in notes.iterdir()}
    return "the ranks have other weights" if not ends and len(digests) != 1 else ""


def last_line(output: str) -> str:
    return " / ".join(output.strip().splitlines()[-2:])[:300]
