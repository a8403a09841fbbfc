"""The test share of a comparison that is given none: drawn by content from records, or the end of running text.

Both parts are written into the folder of the study, so that every system learns from the one and is measured on the other.
"""

from __future__ import annotations

import filecmp
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom import files
from seqloom.errors import DataError, UserError
from seqloom.run_config import Config
from seqloom.text.lines import blocks
from seqloom.text.split import assign_sides, record_keys


class DividedData(NamedTuple):
    """The files to learn from and to measure on, the changes that every config needs to read them, and what was held out."""

    train: tuple[str, ...]
    test: tuple[str, ...]
    changes: tuple[str, ...]
    described: str


class WrittenParts(NamedTuple):
    """The two files that were written, the changes that read them, and what was held out."""

    paths: tuple[Path, Path]
    changes: tuple[str, ...]
    described: str


def divide(config: Config, share: float, folder: Path) -> DividedData:
    """Divides the training files of a config into two files in `folder`, the data of a study.

    A study that has runs keeps its parts: the same division writes the same bytes, another one is refused.
    """
    if not 0 < share < 1:
        raise DataError(f"--test {share}: a share is above 0 and below 1; give for example 0.1")
    folder.mkdir(parents=True, exist_ok=True)
    write = write_text if config.kinds() == ("text",) else write_records
    with files.draft_folder(folder) as draft:
        drafts, changes, described = write(config, share, draft)
        paths = [folder / path.name for path in drafts]
        if not all(is_equal(*pair) for pair in zip(drafts, paths, strict=True)):
            study = folder.parent
            if (study / "study.json").exists():
                raise UserError(
                    f"{study}: its runs have other training data; "
                    f"choose another --out, such as --out {files.free_name(study)}"
                )
            for part, path in zip(drafts, paths, strict=True):
                os.replace(part, path)
    return DividedData((str(paths[0]),), (str(paths[1]),), changes, described)


def is_equal(part: Path, path: Path) -> bool:
    """Whether a file is there and has the content of another one."""
    return path.is_file() and filecmp.cmp(part, path, shallow=False)


def write_text(config: Config, share: float, folder: Path) -> WrittenParts:
    """Running text: its last lines, about the given share of its bytes."""
    paths = config.files.require("train")

    def pieces() -> Iterator[bytes]:
        for path in paths:
            for block in blocks(path):
                yield block.encode("utf-8", "surrogatepass")

    total = sum(map(len, pieces()))
    limit = round(total * (1 - share))
    cut = start = 0
    for piece in pieces():
        if start >= limit:
            break
        if (end := piece.rfind(b"\n", 0, limit - start)) >= 0:
            cut = start + end + 1
        start += len(piece)
    if not 0 < cut < total:
        raise DataError("a text of one line cannot be split; give a test file with --test")
    parts = folder / "train.txt", folder / "test.txt"
    start = 0
    with parts[0].open("wb") as train, parts[1].open("wb") as test:
        for piece in pieces():
            border = max(0, cut - start)
            train.write(piece[:border])
            test.write(piece[border:])
            start += len(piece)
    part_name = "tenth" if share == 0.1 else f"{100 * share:g} %"
    return WrittenParts(parts, (), f"held out: the last {part_name}, {total - cut:,} bytes")


def write_records(config: Config, share: float, folder: Path) -> WrittenParts:
    """Records, by a hash of what a model reads of them; each label gives its share. They are written as JSON Lines."""
    reader = config.reader(config.files.require("train"))
    kinds = config.kinds()
    parts = folder / "train.jsonl", folder / "test.jsonl"
    names = [f"{kind}_{number}" if kinds.count(kind) > 1 else kind for number, kind in enumerate(kinds, 1)]
    labels: list[str] = []
    if "label" in kinds:
        labels = [record[kinds.index("label")] for record in reader]
    strata = np.unique(labels, return_inverse=True)[1] if labels else None
    sides = assign_sides(record_keys(reader), [share], strata)
    with parts[0].open("wb") as train, parts[1].open("wb") as test:
        for record, side in zip(reader, sides, strict=True):
            values = {
                name: to_value(kind, value) for name, kind, value in zip(names, kinds, record, strict=True)
            }
            line = json.dumps(values, ensure_ascii=False) + "\n"
            (test if side else train).write(line.encode("utf-8", "surrogatepass"))
    fields, kind_names = ", ".join(names), ", ".join(kinds)
    change = f"corpus={{type: JSONLines, fields: [{fields}], kinds: [{kind_names}]}}"
    counts = np.bincount(sides, minlength=2)
    return WrittenParts(parts, (change,), f"{counts[0]:,} train, {counts[1]:,} test")


def to_value(kind: str, value: Any) -> Any:
    """A field as the reader of JSON Lines takes it."""
    if kind == "span":
        return [{"answer_start": start, "text": text} for start, text in value]
    return value
