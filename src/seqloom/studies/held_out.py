"""The test share of a comparison that is given none: drawn by content from records, or the end of running text.

Both parts are written into the folder of the study, so that every system learns from the one and is measured on the other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom import files
from seqloom.errors import DataError
from seqloom.run_config import Config
from seqloom.text.lines import blocks
from seqloom.text.split import assign_sides, record_keys


class DividedData(NamedTuple):
    """The files to learn from and to measure on, the changes that every config needs to read them, and what was held out."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    changes: tuple[str, ...]
    described: str


def divide(config: Config, share: float, folder: Path) -> DividedData:
    """Divides the training files of a config; parts that are there already are used again."""
    if not 0 < share < 1:
        raise DataError(f"--test {share}: a share is above 0 and below 1; give for example 0.1")
    folder.mkdir(parents=True, exist_ok=True)
    if config.kinds() == ("text",):
        return divide_text(config, share, folder)
    return divide_records(config, share, folder)


def divide_text(config: Config, share: float, folder: Path) -> DividedData:
    """Running text: its last lines, about the given share of its bytes."""
    text = "".join(block for path in config.files.require("train") for block in blocks(path))
    encoded = text.encode("utf-8", "surrogatepass")
    cut = encoded.rfind(b"\n", 0, round(len(encoded) * (1 - share))) + 1
    if not 0 < cut < len(encoded):
        raise DataError("a text of one line cannot be split; give a test file with --test")
    paths = folder / "train.txt", folder / "test.txt"
    for path, part in zip(paths, (encoded[:cut], encoded[cut:]), strict=True):
        if not path.exists():
            files.write_atomic(path, part)
    part_name = "tenth" if share == 0.1 else f"{100 * share:g} %"
    described = f"held out: the last {part_name}, {len(encoded) - cut:,} bytes"
    return DividedData((str(paths[0]),), (str(paths[1]),), (), described)


def divide_records(config: Config, share: float, folder: Path) -> DividedData:
    """Records, by a hash of what a model reads of them; each label gives its share. They are written as JSON Lines."""
    reader = config.reader(config.files.require("train"))
    kinds = config.kinds()
    paths = folder / "train.jsonl", folder / "test.jsonl"
    names = [f"{kind}_{number}" if kinds.count(kind) > 1 else kind for number, kind in enumerate(kinds, 1)]
    labels: list[str] = []
    if "label" in kinds:
        labels = [record[kinds.index("label")] for record in reader]
    strata = np.unique(labels, return_inverse=True)[1] if labels else None
    sides = assign_sides(record_keys(reader), [share], strata)
    if not all(path.exists() for path in paths):
        with files.open_atomic(paths[0]) as train, files.open_atomic(paths[1]) as test:
            for record, side in zip(reader, sides, strict=True):
                values = {
                    name: to_value(kind, value)
                    for name, kind, value in zip(names, kinds, record, strict=True)
                }
                line = json.dumps(values, ensure_ascii=False) + "\n"
                (test if side else train).write(line.encode("utf-8", "surrogatepass"))
    fields, kind_names = ", ".join(names), ", ".join(kinds)
    change = f"corpus={{type: JSONLines, fields: [{fields}], kinds: [{kind_names}]}}"
    counts = np.bincount(sides, minlength=2)
    return DividedData(
        (str(paths[0]),), (str(paths[1]),), (change,), f"{counts[0]:,} train, {counts[1]:,} test"
    )


def to_value(kind: str, value: Any) -> Any:
    """A field as the reader of JSON Lines takes it."""
    if kind == "span":
        return [{"answer_start": start, "text": text} for start, text in value]
    return value
