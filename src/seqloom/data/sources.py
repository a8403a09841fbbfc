"""What `--data`, `--valid` and `--test` may name: a path, a glob, `-` for stdin, `world`; in Python also records; and the
section `files` of a config, which holds the paths that they stand for."""

from __future__ import annotations

import glob
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from seqloom.errors import ConfigError, DataError
from seqloom.files import cache_folder, write_atomic

PathLike = str | os.PathLike[str]
Record = tuple[Any, ...] | Mapping[str, Any]
Data = PathLike | Sequence[PathLike] | Sequence[Record]
FIELD_NAMES = {
    "text": "text",
    "label": "label",
    "number": "number",
    "words": "words",
    "tags": "tags",
    "chat": "messages",
    "answer": "messages",
    "prompt": "prompt",
    "smiles": "smiles",
    "document": "document",
    "summary": "summary",
    "image": "file",
    "captions": "captions",
}


def resolve_data(data: Data, kinds: Sequence[str], split: str = "train") -> list[str]:
    """The absolute paths of the files that `data` names; `-` stays. A str is one path.

    Records are written as JSON Lines to the cache. `world` is the text of the built-in world for records of these kinds; `split` says
    which part of it.
    """
    items = [data] if isinstance(data, str | os.PathLike) else list(data)
    if items and all(isinstance(item, tuple | Mapping) for item in items):
        return [str(write_records(items, kinds))]  # type: ignore[arg-type]  # checked
    paths: list[str] = []
    for item in items:
        if not isinstance(item, str | os.PathLike):
            raise DataError(
                f"data: {item!r} is neither a path nor a record; give paths, or records as tuples or dicts"
            )
        paths += resolve_path(os.fspath(item), kinds, split)
    return paths


def resolve_path(name: str, kinds: Sequence[str], split: str = "train") -> list[str]:
    """The absolute paths that one name stands for."""
    if name == "-":
        return [name]
    path = Path(name)
    if name == "world" and not path.is_file():
        from seqloom.data.world_files import world_paths

        return world_paths(kinds, split)
    if not path.exists() and glob.has_magic(name):
        found = sorted(match for match in glob.glob(name, recursive=True) if os.path.isfile(match))
        if not found:
            raise DataError(f"{name}: no file has such a name; give the files, or another pattern")
        return [os.path.realpath(match) for match in found]
    return [os.path.realpath(path)]


def write_records(records: Sequence[Record], kinds: Sequence[str]) -> Path:
    """Writes records as JSON Lines to the cache, under a digest of their content."""
    names = record_fields(kinds)
    lines = []
    for number, record in enumerate(records, 1):
        if isinstance(record, tuple):
            if len(record) != len(names):
                raise DataError(
                    f"record {number}: {len(record)} fields, but {len(names)} are needed ({', '.join(kinds)})"
                )
            record = dict(zip(names, record, strict=True))
        try:
            lines.append(json.dumps(dict(record), ensure_ascii=False))
        except (TypeError, ValueError) as error:
            raise DataError(f"record {number}: {error}; give texts, numbers and lists of them") from None
    content = "\n".join(lines) + "\n"
    digest = hashlib.sha256(content.encode("utf-8", "surrogatepass")).hexdigest()
    path = cache_folder() / f"records-{digest[:32]}.jsonl"
    if not path.exists():
        write_atomic(path, content, 0o600)
    return path


def record_fields(kinds: Sequence[str]) -> list[str]:
    """The names of the fields of records that are tuples."""
    if tuple(kinds) == ("text", "text"):
        return ["source", "target"]
    if tuple(kinds) == ("text", "passage", "span"):
        return ["question", "context", "answers"]
    if tuple(kinds) == ("answer", "answer"):
        return ["chosen", "rejected"]
    texts = [index for index, kind in enumerate(kinds) if kind == "text"]
    return [
        f"text{texts.index(index) + 1}" if kind == "text" and len(texts) > 1 else FIELD_NAMES[kind]
        for index, kind in enumerate(kinds)
    ]


class Files:
    """The data files. Without `valid`, the fraction `valid_fraction` of `train` is held out: by the `content` of its records, or
    its `end`."""

    def __init__(
        self,
        train: list[str] | None = None,
        valid: list[str] | None = None,
        valid_fraction: float = 0.1,
        split: Literal["content", "end"] = "end",
    ):
        self.train = train or []
        self.valid = valid or []
        self.valid_fraction = valid_fraction
        self.split = split

    def require(self, split: str) -> list[str]:
        paths = {"train": self.train, "valid": self.valid}[split]
        if not paths:
            raise ConfigError(
                "no data: pass --data FILE (two files for a translator), or set files.train in the config"
            )
        return paths
