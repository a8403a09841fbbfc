"""Attacks on seqloom, counted: every module here without the prefix `test_` is one attack, with a function

    attack(seed: int, amount: float) -> list[Count]

The cases are a function of the seed. `amount` multiplies their number: 1 is what runs on each commit, `make attack` runs several times as
many, and the tests with the marker `attack` tens of times. `python -m attack` (in `tests/`) runs all of them and prints the counts.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple


class Count(NamedTuple):
    """One class of attack: how many cases ran, and one line for each that failed. `code` is the row of docs/reliability.md."""

    code: str
    name: str
    cases: int
    failures: list[str]

    def assert_none_failed(self, at_least: int = 1) -> None:
        """Fails with the first failures, or if fewer cases ran than there should."""
        assert self.cases >= at_least, f"{self.name}: {self.cases} cases, at least {at_least} should run"
        shown = "\n".join(self.failures[:20])
        assert not self.failures, f"{self.name}: {len(self.failures)} of {self.cases} failed:\n{shown}"


def attack_names() -> Iterator[str]:
    """The modules of this package that are attacks."""
    for path in sorted(Path(__file__).parent.glob("*.py")):
        if not path.stem.startswith(("_", "test_")) and "\ndef attack(" in path.read_text("utf-8"):
            yield path.stem
