"""The five promises as one table, a row for each part and variant: `make promises`.

Runs test_promises.py, which states the promises, and prints the results. A part keeps a promise if every test of the
promise's section passes; the promise does not apply to the part if the section's first test has no case for it.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
import time
from pathlib import Path

import pytest

STATED = Path(__file__).parents[1] / "nn" / "test_promises.py"
PROMISES = ("equation", "gradient", "steps", "padding", "fast")
WIDTH = 120
SIZES = re.compile(r"(, )?\b(feedforward=FeedForward\(dim=5\)|(layers=1|heads=2|dim=\d+)\b)")


class Collector:
    """A pytest plugin: for each case and promise, which tests passed, failed or were skipped."""

    def __init__(self) -> None:
        text = STATED.read_text("utf-8").splitlines()
        self.sections = {
            int(match[1]): line
            for line, words in enumerate(text, 1)
            if (match := re.match(r"# (\d)\. ", words))
        }
        self.first: dict[int, str] = {}
        self.place: dict[str, tuple[str, int, str]] = {}
        self.cases: dict[str, dict[int, dict[str, set[str]]]] = {}
        self.failures: list[str] = []
        self.done = 0

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            case = getattr(getattr(item, "callspec", None), "params", {}).get("case")
            if case is None:
                continue
            line = item.location[1] + 1
            promise = max((number for number, start in self.sections.items() if start <= line), default=0)
            test = item.originalname
            self.first.setdefault(promise, test)
            self.place[item.nodeid] = case.name, promise, test
            self.cases.setdefault(case.name, {number: {} for number in self.sections})

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.outcome != "passed":
            if report.failed:
                line = str(report.longrepr).strip().splitlines()[-1] if report.longrepr else ""
                self.failures.append(f"{report.nodeid.rpartition('::')[2]}: {line}")
            if report.nodeid in self.place:
                name, promise, test = self.place[report.nodeid]
                self.cases[name][promise].setdefault(test, set()).add(report.outcome)
        if report.when == "teardown":
            self.done += 1
            if sys.stderr.isatty() and self.done % 50 == 0:
                print(f"\r{self.done} tests", end="", file=sys.stderr, flush=True)

    def sign(self, name: str, promise: int) -> str:
        tests = self.cases[name][promise]
        if any("failed" in outcomes for outcomes in tests.values()):
            return "✗"
        return "✓" if "passed" in tests.get(self.first[promise], ()) else "–"


def shortened(names: list[str], width: int) -> list[str]:
    """Names shortened to the column: a long name loses the sizes that all have in common, then its middle; equal results
    are numbered."""
    found: list[str] = []
    for name in names:
        short = name if len(name) <= width else SIZES.sub("", name).replace("()", "").replace("(, ", "(")
        short = short if len(short) <= width else f"{short[: width - 24]} … {short[-20:]}"
        number = 2
        while short in found:
            short = f"{short[: width - 4].rstrip()} #{number}"
            number += 1
        found.append(short)
    return found


def table(found: Collector, seconds: float) -> list[str]:
    columns = sum(len(promise) + 2 for promise in PROMISES)
    names = list(found.cases)
    short = shortened(names, WIDTH - columns)
    width = max(map(len, short))
    lines = [f"{'':{width}}" + "".join(f"  {promise}" for promise in PROMISES)]
    signs = {name: [found.sign(name, number) for number in found.sections] for name in names}
    for name, shown in zip(names, short, strict=True):
        lines.append(
            f"{shown:{width}}"
            + "".join(
                f"  {sign:^{len(promise)}}" for sign, promise in zip(signs[name], PROMISES, strict=True)
            )
        )
    lines = [line.rstrip() for line in lines]
    count = {sign: sum(row.count(sign) for row in signs.values()) for sign in "✓✗–"}
    lines += [
        "",
        f"{len(names)} parts and variants, {count['✓']} promises kept, {count['✗']} broken, {count['–']} not applicable (–); ",
    ]
    lines[-1] += f"{found.done:,} tests in {seconds:.0f} s"
    return (
        [*lines, "–: a part that is not causal takes the full sequence in one call, so it has no steps"]
        if count["–"]
        else lines
    )


def main() -> int:
    found, said, begin = Collector(), io.StringIO(), time.perf_counter()
    with contextlib.redirect_stdout(said):
        code = pytest.main([str(STATED), "-p", "no:cacheprovider", "--tb=line"], plugins=[found])
    if not found.cases:
        print(said.getvalue())
        return 1
    print("\n".join(table(found, time.perf_counter() - begin)))
    for failure in found.failures[:20]:
        print(f"✗ {failure}"[:400])
    return 1 if code or found.failures else 0


if __name__ == "__main__":
    sys.exit(main())
