"""Readers of lists of pictures or sounds with their texts or labels: a table, JSON Lines, a COCO file, a folder, a zip.

    captions.tsv     file<TAB>text, a row for each text; several rows may name one file
    captions.jsonl   {"file": …, "caption": …} or {"file": …, "captions": […]}
    captions.json    as COCO has it: "images" with file names, "annotations" with captions
    folder/, a.zip   with one of these lists inside; or, for labels, a folder for each label

The files are in the folder of the list, or in a folder or zip beside it, `images`; the option `files` names another. A
list is held in memory, its files are read one by one.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.text.corpus import Paths, Reader, table_rows, table_separator
from seqloom.text.json_items import json_items, starts_with
from seqloom.text.lazy_array import LazyArray
from seqloom.text.lines import blocks, strip_compression
from seqloom.text.media_files import MediaFiles, open_media, reader_of

FILE_KEYS = ("file", "file_name", "filename", "image", "picture", "audio", "sound", "path")
TEXT_KEYS = ("caption", "captions", "text", "texts", "transcript", "sentence", "sentences", "label", "number")
NUMBERED = re.compile(r"(.+\.\w+)#\d+")  # a.jpg#2, the third text of a.jpg


class ListedFile(NamedTuple):
    """A file, where the list names it, and its texts: one, or several captions."""

    location: str
    name: str
    texts: list[str]


class MediaReader(Reader):
    """(file, text or label) of each row, or (file, captions) of each file. A subclass decodes the bytes of a file.

    `files` is the folder or zip that holds the files; its place is relative to the list.
    """

    list_names: ClassVar[tuple[str, ...]] = ()  # of the list inside a folder or zip
    folders: ClassVar[tuple[str, ...]] = ()  # where files are, beside their list
    noun: ClassVar[str] = "file"

    def __init__(self, paths: Paths, kinds: Sequence[str], files: str | None = None):
        super().__init__(paths)
        self.kinds = tuple(kinds)
        self.files = files

    def check_path(self, path: str | Path) -> None:
        if not is_container(path):
            super().check_path(path)

    def decode(self, data: bytes, location: str) -> np.ndarray:
        """Returns the array of a file's bytes; `location` names it in errors."""
        raise NotImplementedError

    def records(self, path: str | Path) -> Iterator[tuple]:
        listed, files = self.listing(path)
        for entry in listed:
            self.location = entry.location
            source = LazyArray(
                entry.name,
                reader_of(files, entry.name),
                partial(self.decode, location=f"{entry.location}: {entry.name}"),
            )
            yield source, entry.texts if self.kinds[-1] == "captions" else entry.texts[0]

    def digest(self) -> str:
        total = hashlib.sha256(repr((type(self).__name__, self.options())).encode())
        for path in self.paths:
            listed, files = self.listing(path)
            names = list(dict.fromkeys(entry.name for entry in listed))
            total.update(json.dumps([(entry.name, entry.texts) for entry in listed]).encode())
            total.update(files.digest(names).encode())
        return total.hexdigest()

    def listing(self, path: str | Path) -> tuple[list[ListedFile], MediaFiles]:
        """Returns the files that a list names, each checked to be there, and where they are."""
        place = Path(path)
        if is_container(path):
            files = open_media(place)
            rows = self.rows_inside(files, place)
        else:
            files = open_media(self.media_place(place))
            rows = list(list_rows(path))
        if not rows:
            raise DataError(f"{path}: no rows; give a list of files with their texts")
        checked: list[ListedFile] = []
        for location, name, texts in rows:
            name = self.present_name(files, name, location)
            if not texts or any(not text.strip() for text in texts):
                raise DataError(f"{location}: {name} has an empty text; write one, or remove the row")
            checked.append(ListedFile(location, name, texts))
        return (grouped(checked) if self.kinds[-1] == "captions" else checked), files

    def present_name(self, files: MediaFiles, name: str, location: str) -> str:
        """Returns the name of a row's file where the files are; raises if it is not there."""
        if not name.strip():
            raise DataError(f"{location}: no {self.noun} is named; write file, tab, text")
        try:
            if files.has(name):
                return name
            numbered = NUMBERED.fullmatch(name)
            if numbered and files.has(numbered[1]):
                return numbered[1]
        except DataError as error:
            raise DataError(f"{location}: {error}") from None
        raise DataError(
            f"{location}: there is no {self.noun} {name} in {files.name}; add it, remove the row, or set corpus.files"
        )

    def media_place(self, path: Path) -> Path:
        """Returns the folder or zip of the files of a list."""
        if self.files is not None:
            beside = path.parent / self.files
            return beside if beside.exists() else Path(self.files)
        first = next((name for _, name, _ in list_rows(path)), "")
        if (path.parent / first).is_file() or not first:
            return path.parent
        for name in self.folders:
            if (path.parent / name).exists():
                return path.parent / name
        return path.parent

    def rows_inside(self, files: MediaFiles, place: Path) -> list[ListedFile]:
        """Returns the rows of a folder or zip: of the list inside it, or of its folders, whose names are labels."""
        names = files.names()
        for name in self.list_names:
            if name in names:
                if place.is_dir():
                    return list(list_rows(place / name))
                return list(text_rows(files.read(name), f"{place}/{name}"))
        labelled = [name for name in names if len(PurePosixPath(name).parts) == 2]
        if self.kinds[-1] == "label" and labelled:
            return [ListedFile(f"{place}/{name}", name, [PurePosixPath(name).parts[0]]) for name in labelled]
        raise DataError(
            f"{place}: there is no {' or '.join(self.list_names)} in it; add the list of its files"
        )


def is_container(path: str | Path) -> bool:
    """Returns whether a path is a folder or a zip, which has its list inside."""
    return Path(path).is_dir() or Path(path).suffix.lower() == ".zip"


def grouped(rows: list[ListedFile]) -> list[ListedFile]:
    """Returns each file once, with all its texts, in the order of their first rows."""
    found: dict[str, ListedFile] = {}
    for row in rows:
        if row.name in found:
            found[row.name].texts.extend(row.texts)
        else:
            found[row.name] = row._replace(texts=list(row.texts))
    return list(found.values())


def list_rows(path: str | Path) -> Iterator[ListedFile]:
    """Yields the rows of a list: a table, JSON Lines, an array of objects, or a COCO file."""
    suffix = strip_compression(path).suffix.lower()
    if suffix in (".jsonl", ".ndjson") or (suffix == ".json" and starts_with(path) == "["):
        yield from object_rows(json_items(path))
    elif suffix == ".json":
        yield from coco_rows("".join(blocks(path)), str(path))
    else:
        yield from cell_rows(table_rows(path, table_separator(path)), str(path))


def text_rows(data: bytes, location: str) -> Iterator[ListedFile]:
    """Yields the rows of a list that is inside a zip."""
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise DataError(f"{location}: not UTF-8; save it as UTF-8") from None
    lines = list(enumerate(text.splitlines(), 1))
    if location.endswith(".json"):
        yield from coco_rows(text, location)
    elif location.endswith(".jsonl"):
        yield from object_rows(
            (f"{location}:{number}", parsed(line, location, number)) for number, line in lines if line.strip()
        )
    else:
        yield from cell_rows(((number, line.split("\t")) for number, line in lines if line.strip()), location)


def parsed(line: str, location: str, number: int) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{location}:{number}: not JSON ({error}); write one object per line") from None


def cell_rows(rows: Iterator[tuple[int, list[str]]], path: str) -> Iterator[ListedFile]:
    """Yields the rows of a table; a header is skipped."""
    for index, (number, cells) in enumerate(rows):
        if len(cells) != 2:
            raise DataError(f"{path}:{number}: {len(cells)} cells instead of 2; write file, tab, text")
        name, text = cells
        if index == 0 and name.strip().lower() in FILE_KEYS:
            continue
        yield ListedFile(f"{path}:{number}", name.strip(), [text.strip()])


def object_rows(items: Iterator[tuple[str, Any]]) -> Iterator[ListedFile]:
    """Yields the rows of objects."""
    for location, item in items:
        names = [item[key] for key in FILE_KEYS if key in item] if isinstance(item, dict) else []
        values = [item[key] for key in TEXT_KEYS if key in item] if isinstance(item, dict) else []
        if not names or not values or not isinstance(names[0], str):
            raise DataError(f'{location}: no file with a text; write {{"file": …, "caption": …}}')
        texts = values[0] if isinstance(values[0], list) else [values[0]]
        if not all(isinstance(text, str | int | float) and not isinstance(text, bool) for text in texts):
            raise DataError(f"{location}: the text of {names[0]} is not text; correct it")
        yield ListedFile(location, names[0], [str(text).strip() for text in texts])


def coco_rows(text: str, path: str) -> Iterator[ListedFile]:
    """Yields the annotations of a COCO file."""
    try:
        content = json.loads(text)
        names = {image["id"]: image["file_name"] for image in content["images"]}
        annotations = content["annotations"]
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON ({error}); repair it") from None
    except (KeyError, TypeError):
        raise DataError(f'{path}: not a COCO file; it has "images" and "annotations"') from None
    for number, annotation in enumerate(annotations, 1):
        location = f"{path}: annotation {number}"
        try:
            name, caption = names[annotation["image_id"]], annotation["caption"]
            if not isinstance(name, str) or not isinstance(caption, str):
                raise TypeError
        except (KeyError, TypeError):
            raise DataError(f"{location}: no caption of an image of this file; correct it") from None
        yield ListedFile(location, name, [caption.strip()])
