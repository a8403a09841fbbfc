"""The data of a config: what `--data`, `--valid` and `--test` may name (a path, a glob, `-` for stdin, `world`; in Python also records), the
section `files`, and the options of a new config that depend on its data: the form of the files, header, columns, blank pairs, how
records are held out.

These options are written into the config once, when it is made. A config without them, of an older run, keeps the behaviour of its time, so that
the run goes on as it began.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Literal

from seqloom.errors import ConfigError, DataError
from seqloom.files import cache_folder, write_atomic
from seqloom.text.formats import FORMATS, OLD_NAMES
from seqloom.text.lines import starts_with, strip_compression

logger = logging.getLogger("seqloom.data")
Tree = dict[str, Any]
PLAIN_READERS = ("Text", "Lines")  # have no options
logged_notes: ContextVar[set[str] | None] = ContextVar("logged_notes", default=None)
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
    "audio": "audio",
}


def resolve_data(data: Data, kinds: Sequence[str], split: str = "train") -> list[str]:
    """The absolute paths of the files that `data` names; `-` stays. A str is one path.

    Records are written as JSON Lines to the cache. `world` is the text of the built-in world for records of these kinds; `split` says
    which part of it.
    """
    if isinstance(data, Mapping):
        raise DataError(
            "data: one dict; give the path of a file, a list of paths, or a list of records, each a tuple or a dict"
        )
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
        if kinds and kinds[0] in ("audio", "image"):
            record = {key: absolute_file(key, value) for key, value in record.items()}
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


def absolute_file(key: str, value: object) -> object:
    """The value of a record's field; a file of a picture or a sound with its absolute path."""
    from seqloom.text.media_reader import FILE_KEYS

    return os.path.abspath(value) if key in FILE_KEYS and isinstance(value, str | os.PathLike) else value


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


@contextmanager
def notes_once() -> Iterator[None]:
    """Inside, what is found in the files is logged once, however many configs read them."""
    token = logged_notes.set(set())
    try:
        yield
    finally:
        logged_notes.reset(token)


def is_first(note: str) -> bool:
    """Whether a note was not logged yet, inside `notes_once`; it is from then on."""
    logged = logged_notes.get()
    if logged is None:
        return True
    first = note not in logged
    logged.add(note)
    return first


def set_files(tree: Tree, data: Data | None, valid: Data | float | None) -> None:
    """Writes the data files into the section `files`; a number is the share of the training data to hold out."""
    corpus = corpus_of(tree)
    kinds = kinds_of(corpus) if corpus else ("text",)
    files = dict(tree.get("files") or {})
    only = valid[0] if isinstance(valid, list | tuple) and len(valid) == 1 else valid
    if isinstance(only, str) and is_share(only):
        valid = float(only)
    if data is not None:
        files["train"] = resolve_data(data, kinds, "train")
        if valid is None and "valid" not in files and list_of(data) == ["world"]:
            valid = "world"
    if isinstance(valid, int | float):
        if not 0 < valid < 1:
            raise DataError(
                f"--valid {valid}: a share to hold out is above 0 and below 1; give for example 0.1"
            )
        files["valid_fraction"] = float(valid)
        files.pop("valid", None)
    elif valid is not None:
        files["valid"] = resolve_data(valid, kinds, "valid")
    if files:
        tree["files"] = files


def is_share(text: str) -> bool:
    """Whether a value of --valid is a number, not a file."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def list_of(data: Any) -> list[Any]:
    return list(data) if isinstance(data, list | tuple) else [data]


def kinds_of(tree: dict[str, Any]) -> tuple[str, ...]:
    """The kinds of the fields of a corpus."""
    if tree.get("kinds"):
        return tuple(tree["kinds"])
    if tree["type"] == "Table":
        return ("text",) * len(as_list(tree.get("columns", [0, 1])))
    if tree["type"] == "JSONLines":
        return ("text",) * len(as_list(tree.get("fields", ["text"])))
    return FORMATS[OLD_NAMES[tree["type"]]].kinds


def as_list(value: Any) -> list[Any]:
    """A list, also of one value, or of a text with commas: `review,label`, `0,1`."""
    if isinstance(value, str):
        return [
            int(item) if item.strip().lstrip("-").isdigit() else item.strip() for item in value.split(",")
        ]
    return list(value) if isinstance(value, list | tuple) else [value]


def corpus_of(tree: Tree) -> Tree | None:
    """The section `corpus` in its long form; None if it names no reader, which is an error elsewhere."""
    corpus = tree.get("corpus")
    if isinstance(corpus, str):
        corpus = {"type": corpus}
    return dict(corpus) if isinstance(corpus, dict) and corpus.get("type") in OLD_NAMES else None


def complete(tree: Tree, fixed: frozenset[str]) -> Tree:
    """A new config with every option that depends on its data files. `fixed` are the options of `corpus` that the user gave."""
    corpus = corpus_of(tree)
    files = dict(tree.get("files") or {})
    paths = files.get("train")
    if corpus is None or not paths:
        return tree
    kinds = kinds_of(corpus)
    if corpus["type"] not in PLAIN_READERS or ("type" not in fixed and may_be_objects(paths[0])):
        from seqloom.data.adapt import adapt_corpus

        corpus, kinds, notes = adapt_corpus(corpus, paths, fixed)
        for note in notes:
            if is_first(note):
                logger.info("%s", note)
    if not files.get("valid"):
        files.setdefault("split", "end" if kinds == ("text",) else "content")
    return {**tree, "corpus": corpus, "files": files}


def may_be_objects(path: str) -> bool:
    """Whether a file may be JSON Lines, by its suffix or its first character; other files are read as text if text is needed."""
    return strip_compression(path).suffix.lower() in FORMATS["jsonl"].suffixes or starts_with(path) == "{"


def fixed_options(tree: Tree, changes: Iterable[str], from_preset: bool) -> frozenset[str]:
    """The options of `corpus` that the user gave: by changes such as corpus.columns=…, or all that are in the user's own file."""
    corpus = corpus_of(tree) or {}
    paths = [path for path in changes if path.split(".")[0] == "corpus"]
    if "corpus" in paths or not from_preset:
        return frozenset(corpus)
    return frozenset(path.removeprefix("corpus.") for path in paths)


def without_new_options(tree: Tree, old: Tree) -> Tree:
    """A config without the options that `complete` adds and an older config of the same run does not have."""
    corpus = corpus_of(tree)
    old_corpus = corpus_of(old) or {}
    if corpus is not None:
        for option in ("header", "header_names", "drop_blank"):
            if option not in old_corpus:
                corpus.pop(option, None)
        tree = {**tree, "corpus": corpus}
    files = dict(tree.get("files") or {})
    if "split" not in (old.get("files") or {}):
        files.pop("split", None)
    return {**tree, "files": files} if files else tree


def with_columns(tree: Tree) -> Tree:
    """A config in which `corpus.columns` fits its reader: columns of a pair mean a table, those of JSON Lines are its fields."""
    corpus = corpus_of(tree)
    if corpus is None or "columns" not in corpus or corpus["type"] not in ("Parallel", "JSONLines"):
        return tree
    columns = as_list(corpus.pop("columns"))
    if corpus["type"] == "Parallel":
        corpus = {
            "type": "Table",
            "columns": columns,
            "kinds": list(kinds_of({"type": "Parallel", **corpus})),
        }
    else:
        corpus["fields"] = columns
    return {**tree, "corpus": corpus}
