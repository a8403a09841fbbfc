"""Runs commands in this process and judges how they end: no traceback, a known exit code, valid JSON, and never long without a word."""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import NamedTuple

from attack import Count
from seqloom.cli import main

EXIT_CODES = (0, 1, 2, 130, 141, 143)
SILENT_SECONDS = 60  # of CPU time without progress or a word: a hang
ENOUGH_SECONDS = 5  # of CPU time with words: the case is stopped, it works
BLOCKED_WINDOWS, WINDOW_SECONDS, IDLE_SECONDS = (
    3,
    20,
    0.05,
)  # so often in a row it used less CPU time than that: it waits for ever
MEMORY_BYTES = 8 << 30  # of address space


class Hang(BaseException):
    """The command took long without a word."""


class Enough(BaseException):
    """The command works and says so; there is no need to wait for its end."""


class Ended(NamedTuple):
    """How a command ended: its exit code, None if it was stopped, and what it printed."""

    code: int | None
    out: str
    err: str
    problem: str


def limit_memory() -> None:
    """A case that asks for too much memory gets an error, not the memory of the machine."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, hard))


@contextmanager
def watch(stderr: Path) -> Iterator[list[type[BaseException]]]:
    """Inside, raises Hang or Enough by the CPU time of this process and by what it prints. Yields a list that then holds which of them: `main`
    catches everything."""
    raised: list[type[BaseException]] = []

    def stop(reason: type[BaseException]) -> None:
        raised.append(reason)
        raise reason

    start = sum(os.times()[:2])
    sizes = {0.0: 0}

    def look(number: int, frame: FrameType | None) -> None:
        now = sum(os.times()[:2]) - start
        size = stderr.stat().st_size
        if size > max(sizes.values()):
            sizes[now] = size
        if size and now > ENOUGH_SECONDS and now - max(sizes) < SILENT_SECONDS:
            stop(Enough)
        if now - max(sizes) > SILENT_SECONDS:
            stop(Hang)

    windows: list[float] = [start]

    def look_for_blocks(number: int, frame: FrameType | None) -> None:
        windows.append(sum(os.times()[:2]))
        used = [after - before for before, after in pairwise(windows)]
        if len(used) >= BLOCKED_WINDOWS and max(used[-BLOCKED_WINDOWS:]) < IDLE_SECONDS:
            stop(Hang)

    handlers = {signal.SIGPROF: look, signal.SIGALRM: look_for_blocks}
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    signal.setitimer(signal.ITIMER_PROF, 1, 1)
    signal.setitimer(signal.ITIMER_REAL, WINDOW_SECONDS, WINDOW_SECONDS)
    try:
        yield raised
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)


def run_command(words: Sequence[str]) -> Ended:
    """Runs a command and judges its end; `problem` is empty if it ended as it should."""
    code: int | None = 0
    problem = ""
    raised: list[type[BaseException]] = []
    with tempfile.TemporaryDirectory() as name:
        paths = Path(name) / "out", Path(name) / "err"
        with (
            open(paths[0], "w") as out,
            open(paths[1], "w") as err,
            redirect_stdout(out),
            redirect_stderr(err),
        ):
            stdin, sys.stdin = sys.stdin, open(os.devnull)  # noqa: SIM115
            try:
                with watch(paths[1]) as raised:
                    main(words)
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else 1
            except (Enough, Hang):
                code = None
            except BaseException as error:
                last = traceback.extract_tb(error.__traceback__)[-1]
                problem = f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"
            finally:
                sys.stdin.close()
                sys.stdin = stdin
        if raised:
            ended = "" if raised[0] is Enough else f"{SILENT_SECONDS} s without a word"
            return Ended(None, "", "", ended)
        texts = [path.read_text("utf-8", "replace") for path in paths]
    return Ended(code, *texts, problem or judge(words, code, *texts))


def judge(words: Sequence[str], code: int | None, out: str, err: str) -> str:
    """What is wrong with the end of a command; empty if nothing is."""
    if code is not None and code not in EXIT_CODES:
        return f"exit code {code}"
    if "this is a bug in seqloom" in err or "Traceback (most recent" in err:
        return err.strip().splitlines()[-1]
    if "--json" in words and code == 0:
        for line in out.splitlines():
            try:
                json.loads(line, parse_constant=reject)
            except ValueError as error:
                return f"invalid JSON: {error}: {line[:100]}"
    return ""


def reject(constant: str) -> None:
    raise ValueError(f"{constant} is not JSON")


def judge_all(
    code: str, name: str, commands: Iterable[Sequence[str]], after: Callable[[], None] = lambda: None
) -> Count:
    """Runs all commands, with a call `after` each; the count of those that ended as they should not."""
    failures = []
    cases = 0
    codes: dict[int | None, int] = {}
    for words in commands:
        cases += 1
        ended = run_command(words)
        after()
        codes[ended.code] = codes.get(ended.code, 0) + 1
        if ended.problem:
            shown = " ".join(word if len(word) < 60 else f"{word[:57]}..." for word in map(repr, words))
            failures.append(f"{ended.problem[:300]}: seqloom {shown}")
    print(f"{name}: exit codes {codes}", file=sys.stderr, flush=True)
    return Count(code, name, cases, failures)
