"""Options that several verbs share, and the units of their values.

A verb takes a group of options as one argument: `common: Common = Common()`. Numbers may end in k, M or B, sizes in KB, MB or GB, times
in s, m, h or d.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter, validators

from seqloom.errors import UserError

OUTPUT = Group("Output", sort_key=8)
MACHINE = Group("Machine", sort_key=7)
BUDGET = Group("Budget, one of", sort_key=6)
DECODING = Group("Decoding", sort_key=6)

NUMBER_UNITS = {"": 1, "k": 10**3, "m": 10**6, "b": 10**9, "t": 10**12}
SIZE_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
TIME_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\"}


def parse_unit(text: str, units: dict[str, int], example: str) -> float:
    """A number with one of the units: `800k` is 800,000."""
    found = re.fullmatch(r"([+-]?\d[\d_]*(?:\.\d+)?(?:e[+-]?\d+)?)\s*([a-z]*)", text.strip().lower())
    if not found or found[2] not in units:
        raise UserError(f"{text!r} is not a number; write it as in {example}")
    value = float(found[1]) * units[found[2]]
    if math.isinf(value):
        raise UserError(f"{text!r} is too large; give a smaller number, as in {example}")
    return value


def parse_count(text: str) -> int:
    """A whole number: `800k` is 800,000."""
    value = parse_unit(text, NUMBER_UNITS, "200 or 800k")
    if value != int(value):
        raise UserError(f"{text!r} is not a whole number; write it as in 200 or 800k")
    return int(value)


def parse_number(text: str) -> float:
    """A number: `1e15`, `2.5B`."""
    return parse_unit(text, NUMBER_UNITS, "0.5, 800k or 1e15")


def parse_size(text: str) -> int:
    """Bytes: `24GB`."""
    return int(parse_unit(text, SIZE_UNITS, "500MB or 24GB"))


def parse_seconds(text: str) -> float:
    """A time in seconds: `90s`, `10m`, `30d`."""
    return parse_unit(text, TIME_UNITS, "90s, 10m, 2h or 30d")


def parse_minutes(text: str) -> float:
    """Minutes, or a time with its unit: `10`, `90s`, `2h`."""
    return parse_unit(text, {"": 60, **TIME_UNITS}, "10, 90s or 2h") / 60


def parse_escapes(text: str) -> str:
    r"""A string in which \n, \t, \r and \\ are what they are in most languages, since a shell passes them on as two characters."""
    return re.sub(r"\\([ntr\\])", lambda found: ESCAPES[found[1]], text)


def converter(parse: Any) -> Any:
    """A parser of one value as cyclopts calls it."""

    def convert(_: Any, tokens: Sequence[Any]) -> Any:
        return parse(tokens[0].value)

    return convert


def check_page(_: Any, path: Path | None) -> None:
    """Raises if a page would replace a file that is not a page of seqloom."""
    if path is None or not os.path.lexists(path):
        return
    from seqloom.report.page import GENERATOR

    try:
        with path.open("rb") as file:
            start = file.read(200)
    except OSError:
        start = b""
    if GENERATOR.encode() not in start:
        raise UserError(f"{path}: exists already and is not a page of seqloom; choose another --out")


Count = Annotated[
    int, Parameter(converter=converter(parse_count), validator=validators.Number(gte=1, lt=2**31))
]
CountOrNone = Annotated[
    int, Parameter(converter=converter(parse_count), validator=validators.Number(gte=0, lt=2**31))
]
BigCount = Annotated[
    int, Parameter(converter=converter(parse_count), validator=validators.Number(gte=1), metavar="N")
]
Amount = Annotated[float, Parameter(converter=converter(parse_number), metavar="N")]
Minutes = Annotated[
    float, Parameter(converter=converter(parse_minutes), validator=validators.Number(gt=0), metavar="N")
]
Seconds = Annotated[float, Parameter(converter=converter(parse_seconds))]
Bytes = Annotated[int, Parameter(converter=converter(parse_size), validator=validators.Number(gte=1))]
Escaped = Annotated[str, Parameter(converter=converter(parse_escapes))]
Seed = Annotated[int, Parameter(validator=validators.Number(gte=0, lt=2**63))]
Threads = Annotated[int | None, Parameter(validator=validators.Number(gte=1, lte=4096))]
# The only options that take several values: --data, --valid, --test and --file.
Files = Annotated[list[str] | None, Parameter(consume_multiple=True, metavar="FILE...")]
Kind = Literal["int8"]
# Repeated for several files.
CodeFiles = Annotated[tuple[Path, ...], Parameter(name="--code", metavar="FILE.py", negative_iterable=())]


def complete_what(_: Any) -> list[str]:
    """What the shell offers for WHAT: the presets, and the runs and YAML files that are here."""
    presets = sorted(path.stem for path in (Path(__file__).parents[1] / "presets").glob("*.yaml"))
    here = sorted(str(path) for path in Path().glob("*.y*ml"))
    return [*presets, *complete_run(None), *here]


def complete_run(_: Any) -> list[str]:
    """What the shell offers for RUN: the run folders below `runs`, or SEQLOOM_RUNS."""
    root = Path(os.environ.get("SEQLOOM_RUNS") or "runs")
    return sorted(str(path.parent) for path in root.glob("**/config.yaml"))


What = Annotated[str, Parameter(completer=complete_what)]
RunPath = Annotated[Path, Parameter(completer=complete_run)]


def increase_converter(parse: Any) -> Any:
    """A converter of values that may have a plus in front, which stays in front of the number."""
    return converter(lambda text: f"+{parse(text[1:])}" if text.startswith("+") else parse(text))


@dataclass(frozen=True)
class BudgetOptions:
    """How long to train, one of these; each is short for the option of its name in the section `train`."""

    steps: Annotated[int | str | None, Parameter(converter=increase_converter(parse_count), metavar="N")] = (
        None
    )
    """Optimizer steps; +100 lengthens a run by so many."""
    minutes: Annotated[
        float | str | None, Parameter(converter=increase_converter(parse_minutes), metavar="N")
    ] = None
    """Minutes, or a time with its unit: 90s, 2h."""
    epochs: Annotated[
        float | str | None, Parameter(converter=increase_converter(parse_number), metavar="N")
    ] = None
    """Passes over the training data."""
    tokens: Annotated[
        float | str | None, Parameter(converter=increase_converter(parse_number), metavar="N")
    ] = None
    """Predicted tokens: 800k, 2M."""
    flops: Annotated[
        float | str | None, Parameter(converter=increase_converter(parse_number), metavar="N")
    ] = None
    """Floating-point operations: 1e15."""


@dataclass(frozen=True)
class Common:
    """What every verb has."""

    json: bool = False
    """Print the result as JSON."""
    quiet: Annotated[bool, Parameter(alias="-q")] = False
    """Print errors only, no progress and no warnings."""
    verbose: Annotated[bool, Parameter(alias="-v")] = False
    """Print debug lines too, and the traceback of an error."""

    @property
    def progress(self) -> bool:
        """Whether long calls report their progress."""
        return not self.quiet


@dataclass(frozen=True)
class Compute:
    """How a verb that computes uses the machine."""

    threads: Threads = None
    """CPU threads; default: all cores, or SEQLOOM_THREADS."""
    seed: Seed = 0
    """Seed of everything that is drawn at random."""


@dataclass(frozen=True)
class Machine(Compute):
    """The options of a verb that computes with a run or a config. `open_run` and `build_config` load the code."""

    code: CodeFiles = ()
    """Python file whose part classes the config may name."""


CommonOptions = Annotated[Common, Parameter(name="*", group=OUTPUT)]
ComputeOptions = Annotated[Compute, Parameter(name="*", group=MACHINE)]
TrainingBudget = Annotated[BudgetOptions, Parameter(name="*", group=BUDGET)]
MachineOptions = Annotated[Machine, Parameter(name="*", group=MACHINE)]
OutPath = Annotated[Path | None, Parameter(group=OUTPUT)]
PagePath = Annotated[Path | None, Parameter(group=OUTPUT, validator=check_page)]
Overwrite = Annotated[bool, Parameter(group=OUTPUT)]
