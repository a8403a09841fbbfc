"""Golden runs, and what is compared of them: weights, outputs of the model, and the output of commands.

A golden run is a folder `GENERATION/NAME` written once by an older version and never changed, with an
`expected.json` beside its own files. Its files name others by the placeholder GOLDEN in place of this folder,
so that they work wherever they are copied. Everything here uses the command line and public Python only.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import shutil
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import seqloom
from seqloom.cli import main

ROOT = Path(__file__).resolve().parent
PLACEHOLDER = "GOLDEN"
PROBE = "the old cat sees a river"
SAMPLE = 16  # outputs of a model that are recorded
PATHS = ("run", "folder", "vectors", "target")  # keys of results whose values are places on a disk
VERSION = re.compile(r"\|?version:[^|]*")  # of a library that measures; no part of what was measured


def folders() -> list[Path]:
    """The golden runs of all generations."""
    return sorted(path.parent for path in ROOT.glob("*/*/expected.json"))


def copy(folder: Path, target: Path, root: Path) -> Path:
    """Copies a golden folder; its files then name others below `root`."""
    shutil.copytree(folder, target)
    replace_in_files(target, f"{PLACEHOLDER}/", f"{root}/")
    return target


def replace_in_files(folder: Path, old: str, new: str) -> None:
    """Replaces text in the YAML and JSON files of a folder, those of its checkpoints excepted, which hold no
    path and are vouched for by digests."""
    for path in [*folder.glob("*.yaml"), *folder.glob("*.json")]:
        text = path.read_text("utf-8")
        if old in text:
            path.write_text(text.replace(old, new), "utf-8")


def command(arguments: Sequence[str], places: dict[str, Path]) -> list[Any]:
    """The lines that a command prints, parsed where they are JSON. `places` are those of RUN, OUT, GOLDEN."""
    words = [expand(word, places) for word in arguments]
    output, log = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(output), redirect_stderr(log):
            main(words)
    except SystemExit as error:
        raise AssertionError(f"seqloom {' '.join(words)} ends with {error.code}: {log.getvalue()}") from None
    return [
        plain(json.loads(line)) if line.startswith("{") else line for line in output.getvalue().splitlines()
    ]


def expand(word: str, places: dict[str, Path]) -> str:
    """An argument whose first part, up to a slash, may be one of the places."""
    first, slash, rest = word.partition("/")
    return f"{places[first]}{slash}{rest}" if first in places else word


def plain(value: Any) -> Any:
    """A result without what differs from one computer to the next."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in PATHS}
    if isinstance(value, list):
        return [plain(inner) for inner in value]
    return VERSION.sub("", value) if isinstance(value, str) else value


def differences(expected: Any, actual: Any, relative: float, absolute: float, place: str = "") -> list[str]:
    """Where two results differ; numbers may by a little."""
    if isinstance(expected, dict) and isinstance(actual, dict):
        if expected.keys() != actual.keys():
            return [f"{place}: keys {sorted(expected)}, now {sorted(actual)}"]
        return [
            line
            for key, value in expected.items()
            for line in differences(value, actual[key], relative, absolute, f"{place}.{key}")
        ]
    if isinstance(expected, list) and isinstance(actual, list):
        if len(expected) != len(actual):
            return [f"{place}: {len(expected)} items, now {len(actual)}"]
        return [
            line
            for index, (value, now) in enumerate(zip(expected, actual, strict=True))
            for line in differences(value, now, relative, absolute, f"{place}[{index}]")
        ]
    if isinstance(expected, float) and isinstance(actual, float | int):
        close = math.isclose(expected, actual, rel_tol=relative, abs_tol=absolute)
    else:
        close = expected == actual
    return [] if close else [f"{place}: {expected!r}, now {actual!r}"]


def weights(run: seqloom.Run) -> dict[str, Any]:
    """The weights by value, in the order of the model's parameters, whatever their names: one digest of all,
    and the shape and digest of each."""
    total, tensors = hashlib.sha256(), []
    for parameter in run.model.parameters():
        data = parameter.detach().float().contiguous().numpy().tobytes()
        total.update(data)
        shape = "x".join(map(str, parameter.shape)) or "1"
        tensors.append(f"{shape}:{hashlib.sha256(data).hexdigest()[:8]}")
    return {"sha256": total.hexdigest(), "tensors": tensors}


def outputs(run: seqloom.Run) -> dict[str, Any]:
    """What the model gives for fixed ids: the shape, mean and deviation, and some of the numbers."""
    vocabulary = run.tokenizer.get_vocab_size()
    ids = 5 + (7 * torch.arange(16)) % (vocabulary - 5)
    ids = ids.view(2, 8)
    with torch.inference_mode():
        if isinstance(run.model, seqloom.Seq2Seq):
            result = run.model(ids.flip(1), run.model.start(ids))
        else:
            result = run.model(ids)
    values: Tensor = result[0] if isinstance(result, tuple) else result
    flat = values.double().flatten()
    flat = flat[flat.isfinite()]
    chosen = torch.linspace(0, len(flat) - 1, min(SAMPLE, len(flat))).long()
    numbers = [flat.mean(), flat.std(), *flat[chosen]]
    return {"shape": list(values.shape), "numbers": [float(f"{float(number):.7g}") for number in numbers]}


def tokens(run: seqloom.Run) -> list[int]:
    """The ids of a fixed text."""
    return run.tokenizer.encode(PROBE, add_special_tokens=False).ids


def metrics(folder: Path) -> list[list[Any]]:
    """The values of each line of metrics.jsonl, whatever their names are."""
    lines = (folder / "metrics.jsonl").read_text("utf-8").splitlines()
    return [list(json.loads(line).values()) for line in lines]


def file_digests(folder: Path) -> dict[str, str]:
    """The SHA-256 of the files that training writes, names of weights and metrics included."""
    names = ("model.safetensors", "metrics.jsonl")
    return {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in names}
