"""Files in, the same files with answers out: CoNLL-U, columns, tables, JSON Lines, SQuAD, plain lines. Read and written record by record.

A form gives for each record what it stood as and what a model reads of it, and writes the former with an answer. What stands between records comes
as it is. Which form a file has is said by its ending, and by the corpus that the run was trained on where that reads it or the ending says nothing.
"""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.inference.prediction import predict_stream
from seqloom.run import Run
from seqloom.text import annotated, corpus
from seqloom.text.fields import KINDS
from seqloom.text.lines import byte_order_mark, lines_with_ends, split_line_end

Answer = Any
"""What a task answers: a NamedTuple whose first fields are what a file is filled with."""


class FileRecord(NamedTuple):
    """A record of a file: where and how it stands, and what a model reads of it. Text that is no record is read by none."""

    place: str
    raw: Any
    record: tuple | None = None


class FileFormat:
    """How records of one kind of file are read, and written again with their answers."""

    def __init__(self, run: Run, path: str | Path):
        self.run, self.path, self.part = run, path, run.recipe.parts["corpus"]
        self.reads = [name for name in run.recipe.kinds() if KINDS[name].is_input]
        self.options = self.part.keywords if self.made(self.part.func) else {}

    kind: type | None = None  # the corpus that reads such files in training

    def made(self, reader: type) -> bool:
        """Whether the run's own corpus reads this form, so that its options hold here."""
        return reader is self.kind

    def need(self, *wanted: str) -> None:
        if tuple(self.reads) != wanted:
            raise ValueError(
                f"{self.path}: the run reads {' and '.join(self.reads)}, and such a file has {' and '.join(wanted)}; give a file like "
                "those it was trained on, or JSON Lines"
            )

    def entries(self) -> Iterator[FileRecord]:
        raise NotImplementedError

    def head(self) -> str:
        """What stands before the first line: a byte-order mark, or nothing."""
        return byte_order_mark(self.path)

    def fits(self) -> bool:
        """Whether the first record of the file is in this form."""
        try:
            return any(entry.record is not None for entry in self.entries())
        except ValueError:
            return False

    def write(self, raw: Any, answer: Answer) -> str:
        raise NotImplementedError

    def json(self, entry: FileRecord, answer: Answer) -> str:
        """The record and its answer as one line of JSON."""
        names = {1: ["text"], 2: ["first", "second"]}[len(self.reads)]
        read = {} if self.reads == ["words"] else dict(zip(names, entry.record, strict=True))
        return json.dumps({**read, **answer.json()}, ensure_ascii=False) + "\n"


class CoNLLUFile(FileFormat):
    """Each sentence as it stood, the run's column filled."""

    kind = annotated.CoNLLU

    def entries(self) -> Iterator[FileRecord]:
        self.need("words")
        for number, own in annotated.line_groups(lines_with_ends(self.path)):
            words = (
                annotated.words_of(self.path, number, [split_line_end(row)[0] for row in own])
                if own[0].strip()
                else []
            )
            yield (
                FileRecord(f"{self.path}:{number}", own, ([cells[1] for cells in words],))
                if words
                else FileRecord("", "".join(own))
            )

    def write(self, raw: list[str], answer: Answer) -> str:
        column, tags, out = annotated.FIELDS.index(self.options.get("column", "upos")), iter(answer.tags), []
        for row in raw:
            text, end = split_line_end(row)
            cells = text.split("\t")
            if not row.startswith("#") and annotated.id_type(cells[0]) == "word":
                cells[column] = next(tags)
            out.append("\t".join(cells) + end)
        return "".join(out)


class ColumnsFile(FileFormat):
    """Each line as it stood, and its tag after it, behind a tab where the line has tabs. -DOCSTART- and comments stay."""

    kind = annotated.Columns

    def entries(self) -> Iterator[FileRecord]:
        self.need("words")
        column, first = self.options.get("word", 0), annotated.file_shape(self.path)
        for number, own in annotated.line_groups(lines_with_ends(self.path)):
            raw = [
                (row, annotated.row_cells(split_line_end(row)[0], first) if row.strip() else [])
                for row in own
            ]
            words = [cells for _, cells in raw if cells]
            if any(not -len(cells) <= column < len(cells) or not cells[column] for cells in words):
                raise ValueError(
                    f"{self.path}:{number}: the sentence from here has a line without column {column}; repair it"
                )
            yield (
                FileRecord(f"{self.path}:{number}", raw, ([cells[column] for cells in words],))
                if words
                else FileRecord("", "".join(own))
            )

    def fits(self) -> bool:
        """Rows of the first sentence have equally many cells; where it is one row of several, its tag is one that was learnt."""
        first = annotated.file_shape(self.path)
        for _, own in annotated.sentences(split_line_end(row)[0] for row in lines_with_ends(self.path)):
            if words := [cells for row in own if (cells := annotated.row_cells(row, first))]:
                width, tag = len(words[0]), self.options.get("tag", -1)
                return all(len(cells) == width for cells in words) and (
                    len(words) > 1 or width == 1 or words[0][tag % width] in self.run.labels
                )
        return False

    def write(self, raw: list[tuple[str, list[str]]], answer: Answer) -> str:
        tags, out = iter(answer.tags), []
        for row, word in raw:
            text, end = split_line_end(row)
            out.append(("\t" if "\t" in text else " ").join([text, next(tags)]) + end if word else row)
        return "".join(out)


class TableFile(FileFormat):
    """Each row with its answer and the probability in cells after it. The texts stand where they stood in training, or alone in the row."""

    kind = corpus.Table

    def __init__(self, run: Run, path: str | Path):
        super().__init__(run, path)
        self.separator = self.options.get("separator") or (
            "," if str(path).removesuffix(".gz").endswith(".csv") else "\t"
        )
        columns = self.options.get("columns") or tuple(range(len(run.recipe.kinds())))
        self.columns = [
            column for column, name in zip(columns, run.recipe.kinds(), strict=False) if KINDS[name].is_input
        ]

    def cells(self) -> Iterator[tuple[int, str, list[str] | None]]:
        """(line, text, cells) of each row, and blank lines without cells."""
        file, found = lines_with_ends(self.path), corpus.table_rows(self.path, self.separator)
        for (number, cells), (after, _) in pairwise(chain([(1, None)], found, [(None, None)])):
            own = list(islice(file, None if after is None else after - number))
            size = (
                0
                if cells is None
                else max(place for place, row in enumerate(own, 1) if place == 1 or row.strip())
            )
            if size:
                yield number, "".join(own[:size]), cells
            yield from ((number, row, None) for row in own[size:])

    def entries(self) -> Iterator[FileRecord]:
        skip, columns = self.options.get("header", False), None
        for number, text, cells in self.cells():
            if cells is None:
                yield FileRecord("", text)
                continue
            if columns is None:
                columns = (
                    self.columns
                    if all(-len(cells) <= c < len(cells) for c in self.columns)
                    else list(range(len(self.columns)))
                )
                width = len(cells)
            if len(cells) != width or len(cells) < len(self.reads):
                wanted = (
                    f"the first row has {width}" if len(cells) != width else f"{len(self.reads)} are read"
                )
                raise ValueError(f"{self.path}:{number}: {len(cells)} cells, but {wanted}; repair the row")
            if skip:
                names = (
                    ["answer"]
                    if {"number", "tags"} & set(self.run.recipe.kinds())
                    else ["answer", "probability"]
                )
                skip = False
                yield FileRecord("", self.longer(text, names))
                continue
            yield FileRecord(f"{self.path}:{number}", text, tuple(cells[column] for column in columns))

    def fits(self) -> bool:
        """The first row has several cells, and those that are read."""
        try:
            width = next((len(cells) for _, _, cells in self.cells() if cells), 0)
        except ValueError:
            return False
        return width > max(1, *self.columns) or width >= len(self.reads) > 1

    def longer(self, row: str, cells: Sequence[str]) -> str:
        """The row with more cells."""
        (text, end), more = split_line_end(row), io.StringIO()
        if self.separator == "\t":
            return "\t".join([text, *cells]) + end
        csv.writer(more, delimiter=self.separator, lineterminator=end).writerow(cells)
        return text + self.separator + more.getvalue()

    def write(self, raw: str, answer: Answer) -> str:
        return self.longer(raw, cells_of(answer))


class JSONLinesFile(FileFormat):
    """Each object as it stood with the answer's fields after its own. Texts stand in the fields of training, else in `text`, `words`, or `first`
    and `second`. A name that the object has is `predicted_` and the name."""

    kind = corpus.JSONLines

    def __init__(self, run: Run, path: str | Path):
        super().__init__(run, path)
        usual = {("text",): ("text",), ("words",): ("words",), ("text", "passage"): ("question", "context")}
        trained = zip(self.options.get("fields", ()), run.recipe.kinds(), strict=False)
        self.fields = [name for name, kind in trained if KINDS[kind].is_input] or list(
            usual.get(tuple(self.reads), ("first", "second"))
        )

    def entries(self) -> Iterator[FileRecord]:
        for number, row in enumerate(lines_with_ends(self.path), 1):
            if not row.strip():
                yield FileRecord("", row)
                continue
            place = f"{self.path}:{number}"
            try:
                found = json.loads(row)
                yield FileRecord(place, (row, set(found)), tuple(found[name] for name in self.fields))
            except (ValueError, RecursionError, KeyError, TypeError):
                raise ValueError(
                    f"{place}: not a JSON object with {', '.join(self.fields)}; write one per line"
                ) from None

    def write(self, raw: tuple[str, set[str]], answer: Answer) -> str:
        row, taken = raw
        added = {}
        for name, value in answer.json().items():
            if name in self.fields:  # what was read
                continue
            while name in taken:
                name = f"predicted_{name}"
            added[name] = value
        text, _, end = row.rpartition("}")
        return f"{text.rstrip()}, {json.dumps(added, ensure_ascii=False)[1:]}{end}"

    def json(self, entry: FileRecord, answer: Answer) -> str:
        return split_line_end(self.write(entry.raw, answer))[0] + "\n"


class SQuADFile(FileFormat):
    """One JSON object for each question, with its id."""

    kind = annotated.SQuAD

    def entries(self) -> Iterator[FileRecord]:
        self.need("text", "passage")
        for place, name, question, passage, _ in annotated.questions(self.path):
            yield FileRecord(place, {"id": name, "question": question}, (question, passage))

    def head(self) -> str:
        return ""

    def write(self, raw: dict[str, Any], answer: Answer) -> str:
        return json.dumps({**raw, **answer.json()}, ensure_ascii=False) + "\n"

    def json(self, entry: FileRecord, answer: Answer) -> str:
        return self.write(entry.raw, answer)


class LinesFile(FileFormat):
    """Each line is a text, or a sentence whose words stand between spaces: the line, a tab, and its answer."""

    def entries(self) -> Iterator[FileRecord]:
        if len(self.reads) != 1:
            self.need("text")
        for number, row in enumerate(lines_with_ends(self.path), 1):
            text, _ = split_line_end(row)
            record = (text.split() if self.reads == ["words"] else text,)
            yield FileRecord(f"{self.path}:{number}", row, record) if text.strip() else FileRecord("", row)

    def write(self, raw: str, answer: Answer) -> str:
        text, end = split_line_end(raw)
        return "\t".join([text, *cells_of(answer)]) + end


FORMATS: dict[str, type[FileFormat]] = {  # the names that the command line uses
    "CoNLLU": CoNLLUFile,
    "Columns": ColumnsFile,
    "Table": TableFile,
    "JSONLines": JSONLinesFile,
    "SQuAD": SQuADFile,
    "Lines": LinesFile,
}
BY_SUFFIX: dict[str, type[FileFormat]] = {
    ".conllu": CoNLLUFile,
    ".conll": ColumnsFile,
    ".bio": ColumnsFile,
    ".csv": TableFile,
    ".jsonl": JSONLinesFile,
}
BY_SUFFIX_FALLBACK: dict[str, type[FileFormat]] = {
    ".tsv": TableFile,
    ".json": SQuADFile,
}  # what an ending means unless the file reads like those of training


def detect_format(run: Run, path: str | Path, form: str | None = None) -> FileFormat:
    """The form of that name, or of the file's ending; where that tells too little, the run's own if the first record of the file is in it."""
    if form is not None:
        if form not in FORMATS:
            raise ValueError(f"{form!r} is no form of a file; choose from {', '.join(FORMATS)}")
        return FORMATS[form](run, path)
    ending = Path(str(path).removesuffix(".gz")).suffix
    if ending in BY_SUFFIX:
        return BY_SUFFIX[ending](run, path)
    trained = next(
        (kind(run, path) for kind in FORMATS.values() if kind.kind is run.recipe.parts["corpus"].func), None
    )
    if trained is not None and (str(path) == "-" or trained.fits()):
        return trained
    return BY_SUFFIX_FALLBACK.get(ending, LinesFile)(run, path)


def fill_file(run: Run, path: str | Path, as_json: bool = False, form: str | None = None) -> Iterator[str]:
    """The text of a file with its answers, piece by piece. `form` is one of FORMS, where the file's ending and the run do not tell."""
    source, waiting = detect_format(run, path, form), deque[FileRecord]()

    def asked() -> Iterator[tuple[str, tuple]]:
        for entry in source.entries():
            waiting.append(entry)
            if entry.record is not None:
                yield entry.place, entry.record

    def kept() -> Iterator[str]:
        """The text up to the next record."""
        while waiting and waiting[0].record is None:
            text = waiting.popleft().raw
            if not as_json:
                yield text

    begun = False
    for answer in predict_stream(run, asked()):
        if not begun and not as_json:
            yield source.head()
        begun = True
        yield from kept()
        entry = waiting.popleft()
        yield source.json(entry, answer) if as_json else source.write(entry.raw, answer)
    if not begun:
        raise ValueError(f"{path}: no record in it; give a file with text")
    yield from kept()


def cells_of(answer: Answer) -> list[str]:
    """An answer as cells."""
    facts = answer.json()
    if "tags" in facts:
        return [" ".join(facts["tags"])]
    cells = [value for name, value in facts.items() if name not in ("probabilities", "start", "end")]
    return [f"{value:.4f}" if isinstance(value, float) else str(value) for value in cells]
