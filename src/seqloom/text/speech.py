"""Recordings with their texts or labels: tables that name sound files, or ready features beside a table."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.media.features import SoundFeatures
from seqloom.media.recordings import Recording, file_digest, split_frames
from seqloom.text.corpus import Paths, Reader, table_rows, table_separator
from seqloom.text.json_items import json_items
from seqloom.text.lines import local_copy, strip_compression

FILE_NAMES = ("file", "path", "audio", "audio_filepath", "wav", "wav_filename", "filename", "sound", "id")
TARGET_NAMES = {
    "text": ("text", "sentence", "transcript", "transcription", "words"),
    "label": ("label", "class", "category", "word"),
}


class Row(NamedTuple):
    """A row of a table: its location, the name of a recording, its text or label."""

    location: str
    name: str
    target: str


class Speech(Reader):
    """Each row of a table, TSV, CSV or JSON Lines, names a sound file and has its text, or its label with `kinds` audio and label.

    Names are relative to the table, or to `folder` beside it. A first row such as `file<TAB>text` is a header and finds the columns;
    `columns` names or numbers them otherwise. A .npz file given with a table holds ready features of its rows: one array for each name,
    or `frames` and `lengths` of all rows in order. The other options are those of `media.features.SoundFeatures`.
    """

    kinds: tuple[str, ...] = ("audio", "text")

    def __init__(
        self,
        paths: Paths,
        features: Literal["logmel", "mfcc", "ready"] = "logmel",
        bins: int = 40,
        rate: int = 16_000,
        window: float = 0.025,
        step: float = 0.010,
        deltas: int = 0,
        normalize: bool = True,
        columns: tuple[int | str, ...] | None = None,
        folder: str | None = None,
        kinds: tuple[Literal["audio", "text", "label"], ...] = ("audio", "text"),
    ):
        super().__init__(paths)
        if kinds not in (("audio", "text"), ("audio", "label")):
            raise DataError(
                f"corpus.kinds={','.join(kinds)}: recordings have a text or a label; give audio,text or audio,label"
            )
        if columns is not None and len(columns) != 2:
            raise DataError(
                f"corpus.columns: {len(columns)} columns; give two, of the files and of the texts"
            )
        self.kinds = tuple(kinds)
        self.features = SoundFeatures(features, rate, bins, window, step, None, deltas, normalize)
        self.columns = columns
        self.folder = folder
        self.tables = [path for path in self.paths if not is_array(path)]
        self.arrays = [path for path in self.paths if is_array(path)]
        if self.arrays and len(self.arrays) != len(self.tables):
            raise DataError(
                f"{self.arrays[0]}: {len(self.tables)} tables and {len(self.arrays)} files of features; give a table with each .npz"
            )

    @classmethod
    def features_of(cls, options: Mapping[str, Any]) -> SoundFeatures:
        """The features that a reader with these options computes."""
        names = ("rate", "bins", "window", "step", "deltas", "normalize")
        return SoundFeatures(
            options.get("features", "logmel"), **{name: options[name] for name in names if name in options}
        )

    @classmethod
    def source_shape(cls, options: Mapping[str, Any]) -> tuple[int, ...]:
        return (cls.features_of(options).dim,)

    @classmethod
    def load_source(cls, path: Any, options: Mapping[str, Any]) -> Any:
        return recording_of(path, cls.features_of(options)).frames()

    def options(self) -> tuple:
        return self.features, self.columns, self.folder, self.kinds

    def digest(self) -> str:
        """Returns the SHA-256 of the options, the tables and every recording."""
        total = hashlib.sha256(super().digest().encode())
        for table in self.tables if not self.arrays else ():
            for row in self.rows(table):
                total.update(file_digest(self.sound_path(table, row.name), row.location).encode())
        return total.hexdigest()

    def __iter__(self) -> Iterator[tuple]:
        self.blanks.clear()
        for index, table in enumerate(self.tables):
            rows = self.rows(table)
            if self.arrays:
                listed = list(rows)
                path = Path(self.arrays[index])
                frames = split_frames(path, [row.name for row in listed])
                for row, ready in zip(listed, frames, strict=True):
                    self.location = row.location
                    yield Recording(path, self.features, row.location, ready, row.name), row.target
                continue
            for row in rows:
                self.location = row.location
                path = self.sound_path(table, row.name)
                yield Recording(path, self.features, row.location, name=row.name), row.target

    def sound_path(self, table: str | Path, name: str) -> Path:
        """The file that a row of a table names."""
        return Path(table).parent / (self.folder or "") / name

    def rows(self, table: str | Path) -> Iterator[Row]:
        """Yields the rows of a table; raises for one without a name or a text."""
        if strip_compression(table).suffix.lower() in (".jsonl", ".ndjson", ".json"):
            found = self.json_rows(table)
        else:
            found = self.table_rows(table)
        for row in found:
            if not row.name.strip():
                raise DataError(f"{row.location}: no file is named; write one, or remove the row")
            if not row.target.strip():
                raise DataError(
                    f"{row.location}: no {self.kinds[1]} for {row.name}; write it, or remove the row"
                )
            yield row

    def table_rows(self, table: str | Path) -> Iterator[Row]:
        places: tuple[int, int] | None = None
        for number, cells in table_rows(
            local_copy(table) if str(table) == "-" else table, table_separator(table)
        ):
            location = f"{table}:{number}"
            if places is None:
                places, is_header = self.find_columns(cells, location)
                if is_header:
                    continue
            if len(cells) <= max(places):
                raise DataError(
                    f"{location}: {len(cells)} cells, but column {max(places)} is needed; write file<TAB>{self.kinds[1]}"
                )
            yield Row(location, cells[places[0]].strip(), cells[places[1]].strip())

    def find_columns(self, first: list[str], location: str) -> tuple[tuple[int, int], bool]:
        """The columns of the files and of the targets, and whether the first row is a header."""
        names = [cell.strip().lower() for cell in first]
        wanted = self.columns
        if wanted is None:
            found = [
                next((names.index(name) for name in known if name in names), None)
                for known in (FILE_NAMES, TARGET_NAMES[self.kinds[1]])
            ]
            if found[0] is not None and found[1] is not None:
                return (found[0], found[1]), True
            return (0, 1), names[0] in FILE_NAMES
        places = []
        for column in wanted:
            if isinstance(column, str) and column.lower() not in names:
                raise DataError(f"{location}: no column {column!r}; the columns are {', '.join(first)}")
            places.append(
                names.index(column.lower()) if isinstance(column, str) else column % max(len(first), 1)
            )
        return (places[0], places[1]), any(isinstance(column, str) for column in wanted) or names[
            0
        ] in FILE_NAMES

    def json_rows(self, table: str | Path) -> Iterator[Row]:
        wanted = self.columns or (None, None)
        for location, item in json_items(table):
            cells = []
            for column, known in zip(wanted, (FILE_NAMES, TARGET_NAMES[self.kinds[1]]), strict=True):
                keys = known if column is None else (str(column),)
                value = next((item[key] for key in keys if isinstance(item, dict) and key in item), None)
                if isinstance(value, bool) or not isinstance(value, str | int | float):
                    raise DataError(
                        f"{location}: no field {' or '.join(map(repr, keys[:3]))}; the object is {json.dumps(item)[:60]}"
                    )
                cells.append(str(value))
            yield Row(location, cells[0], cells[1])


def recording_of(source: Any, features: SoundFeatures) -> Recording:
    """A file of the user, or ready features as an array."""
    if isinstance(source, np.ndarray):
        return Recording(Path("array"), features, ready=source)
    return Recording(Path(source), features)


def is_array(path: str | Path) -> bool:
    """Whether a file holds ready features."""
    return Path(path).suffix.lower() == ".npz"


@cache
def ready_bins(path: str) -> int:
    """The numbers of a frame in a file of ready features."""
    from seqloom.media.recordings import FRAMES, read_arrays

    arrays = read_arrays(Path(path))
    first = arrays.get(FRAMES, next(iter(arrays.values()), None))
    if first is None or first.ndim != 2:
        raise DataError(
            f"{path}: no array of frames; give `frames` and `lengths`, or an array for each recording"
        )
    return int(first.shape[1])
