"""The files in which a training reports what it did: results.json, metrics.jsonl and times.jsonl of a run folder.

results.json    the scores, the cost that was promised and the actual one, the SHA-256 of the weights
metrics.jsonl   one line per measurement and no times, so that equal runs write equal files:
                {"step", "tokens", "loss", "lr", "grad_norm"}, {"step", "tokens", "valid_loss", "valid_<metric>"},
                {"step", "event", "reason"}
times.jsonl     {"step", "seconds", "memory"}: what differs from one run to the next
gradients.jsonl with train.watch=gradients, the gradients at each evaluation (train/gradient_watch.py)
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from seqloom import compat, files
from seqloom.errors import RunError
from seqloom.measure.number import Number
from seqloom.results import Result, to_json

RESULTS_FILE = "results.json"
METRICS_FILE = "metrics.jsonl"
DAMAGED_METRICS_FILE = "metrics-damaged.jsonl"
TIMES_FILE = "times.jsonl"
GRADIENTS_FILE = "gradients.jsonl"


@dataclass(frozen=True)
class ParameterCounts(Result):
    """The number of parameters, and that of each part."""

    total: int
    by_part: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PromisedCost(Result):
    """What a training was expected to cost before it began; memory in bytes."""

    seconds: float
    memory: float
    steps: int | None = None


@dataclass(frozen=True)
class ActualCost(Result):
    """What a training took; memory in bytes."""

    seconds: float
    memory: float
    device: str = "cpu"
    threads: int | None = None


@dataclass(frozen=True)
class Results(Result):
    """The content of results.json.

    `base` says where the initial weights come from, if they are not random: a run, or a file of another program. Its key in
    JSON is `from`.
    """

    steps: int
    tokens: float
    valid: list[Number]
    parameters: ParameterCounts
    weights_sha256: str
    best_step: int | None = None
    test: list[Number] = field(default_factory=list)
    flops_per_token: float | None = None
    promised: PromisedCost | None = None
    actual: ActualCost | None = None
    base: dict[str, Any] | None = None
    versions: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return {"from" if key == "base" else key: value for key, value in super().to_dict().items()}

    @classmethod
    def from_dict(cls, record: dict[str, Any]) -> Results:
        """The results in a results.json of this or an older version."""
        present = compat.upgrade_results(record)
        promised, actual = present.get("promised"), present.get("actual")
        return cls(
            steps=present["steps"],
            tokens=present.get("tokens", 0.0),
            valid=[make_number(number) for number in present.get("valid", [])],
            parameters=ParameterCounts(**present["parameters"]),
            weights_sha256=present["weights_sha256"],
            best_step=present.get("best_step"),
            test=[make_number(number) for number in present.get("test", [])],
            flops_per_token=present.get("flops_per_token"),
            promised=PromisedCost(**promised) if promised else None,
            actual=ActualCost(**actual) if actual else None,
            base=present.get("from"),
            versions=present.get("versions", {}),
        )

    def number(self, name: str) -> Number | None:
        """The held-out score of this name, or None."""
        return next((number for number in self.valid if number.name == name), None)


def make_number(record: dict[str, Any]) -> Number:
    """A number as JSON has it; a value that is not finite is null there."""
    value = record["value"]
    return Number(**{**record, "value": math.nan if value is None else value})


def write_results(folder: Path, results: Results) -> None:
    """Writes results.json."""
    text = json.dumps(results.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    files.write_atomic(folder / RESULTS_FILE, text)


def read_results(folder: Path) -> Results:
    """The results of a run; raises if there are none, or if the file is damaged."""
    path = folder / RESULTS_FILE
    try:
        return Results.from_dict(json.loads(path.read_text("utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        raise RunError(f"{path}: missing or damaged; write it again with: seqloom train {folder}") from None


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """The lines of a run's metrics.jsonl, under their present names."""
    path = folder / METRICS_FILE
    records = []
    for number, line in enumerate(path.read_bytes().splitlines(), 1):
        try:
            records.append(compat.upgrade_metrics(json.loads(line)))
        except (ValueError, TypeError, AttributeError):
            raise RunError(
                f"{path}:{number}: damaged, not a line that a training wrote; delete this line and those after it"
            ) from None
    return records


def json_line(record: dict[str, Any]) -> bytes:
    """One line of JSON; numbers that are not finite become null."""
    return json.dumps(to_json(record)).encode() + b"\n"
