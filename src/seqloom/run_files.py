"""The files of a run folder: manifest.json, which lists those that belong together, and those in which a training reports what it did.

manifest.json   {"format": 1, "run": …, "config": …, "data": {…}, "files": {"config.yaml": …, "tokenizer.json": …}, "sha256": …}
results.json    the scores, the cost that was promised and the actual one, the SHA-256 of the weights
metrics.jsonl   one line per measurement and no times, so that equal runs write equal files:
                {"step", "tokens", "loss", "lr", "grad_norm"}, {"step", "tokens", "valid_loss", "valid_<metric>"},
                {"step", "event", "reason"}
times.jsonl     {"step", "seconds", "memory"}: what differs from one run to the next
gradients.jsonl with train.watch=gradients, the gradients at each evaluation (train/gradient_watch.py)

In the manifest `files` has the SHA-256 of each file, `data` the digests of the data, `config` that of the config without its budget,
intervals and file names, `run` a random name; the last entry is the digest of all others. Each checkpoint carries the `identity`: the
hash of all that stays as it is when the run is lengthened. Folders of older versions have data.json instead, and nothing of them is
checked here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

from seqloom import compat, files
from seqloom.errors import RunError
from seqloom.measure.number import Number
from seqloom.results import Result, to_json

RESULTS_FILE = "results.json"
METRICS_FILE = "metrics.jsonl"
DAMAGED_METRICS_FILE = "metrics-damaged.jsonl"
TIMES_FILE = "times.jsonl"
GRADIENTS_FILE = "gradients.jsonl"
MANIFEST_FILE = "manifest.json"
CONFIG_FILE = "config.yaml"
OLD_DATA_FILE = "data.json"
# The files that a training reads and does not change. One that the manifest does not list belongs to another run.
FIXED_FILES = (
    *(CONFIG_FILE, "tokenizer.json", "labels.json", "profile.json", "begin.json"),
    "chat_template.jinja",
)
REMEDY = "put back the file that the run was trained with, or train again with --overwrite"


@dataclass(frozen=True)
class ParameterCounts(Result):
    """The number of parameters, and that of each part."""

    total: int
    by_part: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class PromisedCost(Result):
    """What a training was expected to cost before it began; memory in bytes. `low` and `high` bound the seconds: on a machine without other
    programs, and on one where they take more of the CPU; None if an older version wrote it."""

    seconds: float
    memory: float
    steps: int | None = None
    low: float | None = None
    high: float | None = None


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
        present = compat.upgrade_results(record) if "weights" in record else record
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


class Manifest(NamedTuple):
    """The content of manifest.json."""

    run: str
    config: str
    data: Mapping[str, str]
    files: Mapping[str, str]
    replaced: str | None = None  # the SHA-256 of the config.yaml that a lengthening is about to replace

    @property
    def identity(self) -> str:
        """What every checkpoint of the run carries; it stays when the run is lengthened."""
        fixed = {name: digest for name, digest in self.files.items() if name != CONFIG_FILE}
        text = json.dumps([self.run, self.config, dict(self.data), fixed], sort_keys=True)
        return files.digest(text.encode())


def make_manifest(folder: Path, config_text: str, config_digest: str, data: Mapping[str, str]) -> Manifest:
    """The manifest of a new run, whose other files are in the folder already."""
    digests = {name: files.sha256(folder / name) for name in FIXED_FILES[1:] if (folder / name).exists()}
    return Manifest(
        uuid4().hex, config_digest, data, {CONFIG_FILE: files.digest(config_text.encode()), **digests}
    )


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Writes manifest.json."""
    body = {name: value for name, value in manifest._asdict().items() if value is not None}
    files.write_atomic(folder / MANIFEST_FILE, files.with_digest({"format": 1, **body}))


def write_with_config(folder: Path, config_text: str) -> None:
    """Writes another config.yaml and the manifest that lists it. Between the two writes, the manifest lists both configs."""
    manifest = read_manifest(folder)
    if manifest is None:
        files.write_atomic(folder / CONFIG_FILE, config_text)
        return
    lasting = manifest._replace(
        files={**manifest.files, CONFIG_FILE: files.digest(config_text.encode())}, replaced=None
    )
    write_manifest(folder, lasting._replace(replaced=files.sha256(folder / CONFIG_FILE)))
    files.write_atomic(folder / CONFIG_FILE, config_text)
    write_manifest(folder, lasting)


def read_manifest(folder: Path) -> Manifest | None:
    """The manifest of a run; None if an older version wrote the folder."""
    path = folder / MANIFEST_FILE
    try:
        body = files.check_digest(files.read_limited(path, 1 << 24)) or {}
        if body.pop("format") != 1:
            raise RunError(f"{path}: a newer seqloom wrote it; upgrade seqloom")
        return Manifest(**body)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise RunError(f"{path}: cannot be read ({error.strerror}); {REMEDY}") from None
    except (KeyError, TypeError):
        raise RunError(f"{path}: damaged, a byte of it has changed; {REMEDY}") from None


def is_listed(folder: Path) -> bool:
    """Whether the folder has an intact manifest, so that it was a run even if its config is gone."""
    try:
        return read_manifest(folder) is not None
    except RunError:
        return False


def check_manifest(folder: Path) -> Manifest | None:
    """The manifest of a run after a check of every file that it lists; raises an error that names all that do not belong to it."""
    manifest = read_manifest(folder)
    if manifest is None:
        return None
    faults = [fault for name in FIXED_FILES if (fault := find_fault(folder, manifest, name))]
    if faults:
        raise RunError(f"{'; '.join(faults)}; {REMEDY}")
    return manifest


def check_lost_config(folder: Path) -> None:
    """Raises if a folder that is no run has an intact manifest: it was a run, and its config is missing or damaged."""
    if is_listed(folder):
        check_config(folder)


def check_config(folder: Path) -> None:
    """Raises if the config of a run is not the one that its manifest lists."""
    manifest = read_manifest(folder)
    if manifest and (fault := find_fault(folder, manifest, CONFIG_FILE)):
        raise RunError(f"{fault}; {REMEDY}")


def find_fault(folder: Path, manifest: Manifest, name: str) -> str | None:
    """What is wrong with a file that the manifest lists, or should list; None if nothing is."""
    path = folder / name
    expected = {manifest.files.get(name), *([manifest.replaced] if name == CONFIG_FILE else [])}
    try:
        actual = files.sha256(path)
    except FileNotFoundError:
        return f"{path}: missing" if manifest.files.get(name) else None
    except OSError as error:
        return f"{path}: cannot be read ({(error.strerror or str(error)).lower()})"
    if actual in expected:
        return None
    if manifest.files.get(name):
        return f"{path}: not the file that {MANIFEST_FILE} lists, its SHA-256 differs"
    return f"{path}: not of this run, {MANIFEST_FILE} does not list it"


def data_digests(folder: Path) -> Mapping[str, str] | None:
    """The digests of the data of a run, by what it is; None if the folder has none."""
    manifest = read_manifest(folder)
    if manifest is not None:
        return manifest.data
    try:
        digests = json.loads((folder / OLD_DATA_FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    return digests if isinstance(digests, dict) else None
