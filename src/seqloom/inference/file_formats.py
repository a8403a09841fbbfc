"""Files with predictions: CoNLL-U, columns, tables, JSON Lines, SQuAD and plain lines, read and written record by record.

A format yields for each record its source text and the model's input, and writes the source with a prediction. What is
between records is copied. The format of a file follows from its suffix, or from the run's training corpus if that can read
the file or the suffix is ambiguous.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError, UserError
from seqloom.inference.file_format import FileFormat, FileRecord
from seqloom.inference.prediction import predict_stream, require_task
from seqloom.inference.predictions import Prediction, Tags
from seqloom.run import Run
from seqloom.text import annotated, corpus
from seqloom.text.formats import FORMATS, OLD_NAMES
from seqloom.text.lines import lines_with_ends, split_line_end, strip_compression
from seqloom.text.quoted_cells import quotes_warning, row_remedy
from seqloom.text.records import field_class
from seqloom.text.tables import file_columns, is_header_row


class CoNLLUFile(FileFormat):
    """Each sentence as it is, with the run's column filled in."""

    reader = annotated.CoNLLU

    def records(self) -> Iterator[FileRecord]:
        self.require_fields("words")
        for line_number, rows in annotated.line_groups(lines_with_ends(self.path)):
            words = []
            if rows[0].strip():
                lines = [split_line_end(row)[0] for row in rows]
                words = annotated.words_of(self.path, line_number, lines)
            if words:
                yield FileRecord(f"{self.path}:{line_number}", rows, ([cells[1] for cells in words],))
            else:
                yield FileRecord("", "".join(rows))

    def write(self, source: list[str], prediction: Tags) -> str:
        column = annotated.FIELDS.index(self.options.get("column", "upos"))
        tags = iter(prediction.tags)
        written = []
        for row in source:
            text, end = split_line_end(row)
            cells = text.split("\t")
            if not row.startswith("#") and annotated.id_type(cells[0]) == "word":
                cells[column] = next(tags)
            written.append("\t".join(cells) + end)
        return "".join(written)


class ColumnsFile(FileFormat):
    """Each line as it is with its tag after it, separated by a tab if the line has tabs. -DOCSTART- and comments stay."""

    reader = annotated.Columns

    def records(self) -> Iterator[FileRecord]:
        self.require_fields("words")
        column = self.options.get("word", 0)
        shape = annotated.file_shape(self.path)
        for line_number, rows in annotated.line_groups(lines_with_ends(self.path)):
            source = [
                (row, annotated.row_cells(split_line_end(row)[0], shape) if row.strip() else [])
                for row in rows
            ]
            words = [cells for _, cells in source if cells]
            if any(not -len(cells) <= column < len(cells) or not cells[column] for cells in words):
                raise UserError(
                    f"{self.path}:{line_number}: the sentence that starts here has a line without column {column}; "
                    "repair it"
                )
            if words:
                yield FileRecord(f"{self.path}:{line_number}", source, ([cells[column] for cells in words],))
            else:
                yield FileRecord("", "".join(rows))

    def matches(self) -> bool:
        """Whether the rows of the first sentence have equally many cells; of a sentence of one row with several cells, the
        tag must be a label of the run."""
        shape = annotated.file_shape(self.path)
        lines = (split_line_end(row)[0] for row in lines_with_ends(self.path))
        for _, rows in annotated.sentences(lines):
            words = [cells for row in rows if (cells := annotated.row_cells(row, shape))]
            if words:
                width = len(words[0])
                tag = words[0][self.options.get("tag", -1) % width]
                is_labelled = len(words) > 1 or width == 1 or tag in self.run.labels
                return all(len(cells) == width for cells in words) and is_labelled
        return False

    def write(self, source: list[tuple[str, list[str]]], prediction: Tags) -> str:
        tags = iter(prediction.tags)
        written = []
        for row, cells in source:
            text, end = split_line_end(row)
            separator = "\t" if "\t" in text else " "
            written.append(separator.join([text, next(tags)]) + end if cells else row)
        return "".join(written)


class TableRow(NamedTuple):
    """A row of a table with its first line number; blank lines have no cells."""

    line_number: int
    text: str
    cells: list[str] | None


class TableFile(FileFormat):
    """Each row with its prediction and the probability in cells after it. Texts are in the columns of training, or are the
    only cells of the row."""

    reader = corpus.Table

    def __init__(self, run: Run, path: str | Path, top: int = 1):
        super().__init__(run, path, top)
        self.separator = self.options.get("separator") or corpus.table_separator(path)
        kinds = run.config.kinds()
        columns = self.options.get("columns") or tuple(range(len(kinds)))
        self.columns = [
            column for column, name in zip(columns, kinds, strict=False) if field_class(name).is_input
        ]
        self.header_names: Sequence[str] = self.options.get("header_names", ())

    def is_header(self, cells: Sequence[str]) -> bool:
        """Whether the first row is a header: it has the names of the training file. A run that knows no names takes the first row
        of a file as training did; what is piped in then has none."""
        header = bool(self.options.get("header", False)) and (
            bool(self.header_names) or str(self.path) != "-"
        )
        return is_header_row(cells, header, self.header_names)

    def input_columns(self, cells: Sequence[str], is_header: bool) -> list[int]:
        """The numbers of the columns to read in a file whose first row has these cells: those of training, by name if the row is a
        header, else by position; or the first ones."""
        try:
            columns = file_columns(self.columns, cells, is_header, self.header_names, f"{self.path}:1")
        except DataError:
            if is_header and self.header_names:
                raise
            columns = [len(cells)]  # other names
        inside = all(-len(cells) <= column < len(cells) for column in columns)
        return columns if inside else list(range(len(self.columns)))

    def rows(self) -> Iterator[TableRow]:
        """Each row and each blank line. A quoted row may have several lines; blank lines follow the row before them."""
        lines = lines_with_ends(self.path)
        starts: list[tuple[int, list[str] | None]] = [(1, None)]
        end: list[tuple[int | None, list[str] | None]] = [(None, None)]
        parsed = corpus.table_rows(self.path, self.separator)
        for (line_number, cells), (next_line, _) in pairwise(chain(starts, parsed, end)):
            if line_number is None:
                return
            block = list(islice(lines, None if next_line is None else next_line - line_number))
            size = 0
            if cells is not None:
                size = max(index for index, line in enumerate(block, 1) if index == 1 or line.strip())
            if size:
                yield TableRow(line_number, "".join(block[:size]), cells)
            for line in block[size:]:
                yield TableRow(line_number, line, None)

    def warning(self) -> str:
        return quotes_warning(self.path) if self.separator == "\t" else ""

    def records(self) -> Iterator[FileRecord]:
        is_header = False
        columns: list[int] = []
        width = 0
        for line_number, text, cells in self.rows():
            if cells is None:
                yield FileRecord("", text)
                continue
            if not width:
                width = len(cells)
                is_header = self.is_header(cells)
                columns = self.input_columns(cells, is_header)
            if len(cells) != width or len(cells) < len(self.input_fields):
                expected = f"{len(self.input_fields)} are read"
                if len(cells) != width:
                    expected = f"the first row has {width}"
                remedy = row_remedy(cells, self.separator)
                raise UserError(f"{self.path}:{line_number}: {len(cells)} cells, but {expected}; {remedy}")
            if is_header:
                is_header = False
                has_probability = not {"number", "tags"} & set(self.run.config.kinds())
                names = ["answer", "probability"] if has_probability else ["answer"]
                names += [f"{name}_{rank}" for rank in range(2, self.top + 1) for name in names[:2]]
                yield FileRecord("", self.append_cells(text, names))
                continue
            record = tuple(cells[column] for column in columns)
            yield FileRecord(f"{self.path}:{line_number}", text, record)

    def matches(self) -> bool:
        """Whether the first row has several cells, and those that the run reads; or is a header with their names."""
        try:
            first = next((cells for _, _, cells in self.rows() if cells), [])
        except ValueError:
            return False
        is_header = self.is_header(first)
        try:
            columns = self.input_columns(first, is_header)
        except DataError:  # raised again when the records are read
            return len(first) > 1
        if is_header and self.header_names:
            return True
        return len(first) > max(1, *columns) or len(first) >= len(self.input_fields) > 1

    def append_cells(self, row: str, cells: Sequence[str]) -> str:
        """The row with more cells."""
        text, end = split_line_end(row)
        if self.separator == "\t":
            return "\t".join([text, *cells]) + end
        appended = io.StringIO()
        csv.writer(appended, delimiter=self.separator, lineterminator=end).writerow(cells)
        return text + self.separator + appended.getvalue()

    def write(self, source: str, prediction: Prediction) -> str:
        return self.append_cells(source, prediction.cells(self.top))


class JSONLinesFile(FileFormat):
    """Each object as it is, with the prediction's fields after its own.

    Texts are in the fields of training, else in `text`, `words`, or `first` and `second`. A name that the object already has
    gets the prefix `predicted_`.
    """

    reader = corpus.JSONLines

    def __init__(self, run: Run, path: str | Path, top: int = 1):
        super().__init__(run, path, top)
        defaults = {("text",): ["text"], ("words",): ["words"], ("text", "passage"): ["question", "context"]}
        trained = zip(self.options.get("fields", ()), run.config.kinds(), strict=False)
        self.fields = [name for name, kind in trained if field_class(kind).is_input]
        if not self.fields:
            self.fields = defaults.get(tuple(self.input_fields), ["first", "second"])

    def records(self) -> Iterator[FileRecord]:
        for line_number, row in enumerate(lines_with_ends(self.path), 1):
            if not row.strip():
                yield FileRecord("", row)
                continue
            location = f"{self.path}:{line_number}"
            try:
                values = json.loads(row)
                record = tuple(values[name] for name in self.fields)
                names = set(values)
            except (ValueError, RecursionError, KeyError, TypeError):
                raise UserError(
                    f"{location}: not a JSON object with {', '.join(self.fields)}; write one per line"
                ) from None
            yield FileRecord(location, (row, names), record)

    def write(self, source: tuple[str, set[str]], prediction: Prediction) -> str:
        row, names = source
        added: dict[str, Any] = {}
        for name, value in prediction.fields().items():
            if name in self.fields:  # an input
                continue
            while name in names:
                name = f"predicted_{name}"
            added[name] = value
        text, _, end = row.rpartition("}")
        return f"{text.rstrip()}, {json.dumps(added, ensure_ascii=False)[1:]}{end}"

    def json(self, record: FileRecord, prediction: Prediction) -> str:
        return split_line_end(self.write(record.source, prediction))[0] + "\n"


class SQuADFile(FileFormat):
    """One JSON object for each question, with its id."""

    reader = annotated.SQuAD

    def records(self) -> Iterator[FileRecord]:
        self.require_fields("text", "passage")
        for location, name, question, passage, _ in annotated.questions(self.path):
            yield FileRecord(location, {"id": name, "question": question}, (question, passage))

    def prefix(self) -> str:
        return ""

    def write(self, source: dict[str, Any], prediction: Prediction) -> str:
        return json.dumps({**source, **prediction.fields()}, ensure_ascii=False) + "\n"

    def json(self, record: FileRecord, prediction: Prediction) -> str:
        return self.write(record.source, prediction)


class LinesFile(FileFormat):
    """Each line is a text, or a sentence of words between spaces: the line, a tab, and its prediction."""

    def records(self) -> Iterator[FileRecord]:
        if len(self.input_fields) != 1:
            self.require_fields("text")
        for line_number, row in enumerate(lines_with_ends(self.path), 1):
            text, _ = split_line_end(row)
            if text.strip():
                record = (text.split() if self.input_fields == ["words"] else text,)
                yield FileRecord(f"{self.path}:{line_number}", row, record)
            else:
                yield FileRecord("", row)

    def write(self, source: str, prediction: Prediction) -> str:
        text, end = split_line_end(source)
        return "\t".join([text, *prediction.cells(self.top)]) + end


logger = logging.getLogger("seqloom.inference")
FILLED: dict[str, type[FileFormat]] = {  # the forms of text/formats.py that can be filled
    "conllu": CoNLLUFile,
    "conll": ColumnsFile,
    "table": TableFile,
    "jsonl": JSONLinesFile,
    "squad": SQuADFile,
    "lines": LinesFile,
}
AMBIGUOUS = (".tsv",)  # suffixes of a form that also stand for that of training


def check_filled(name: str) -> str:
    """The name of a form that can be filled, `auto` included; raises for another."""
    name = OLD_NAMES.get(name, name)
    if name != "auto" and name not in FILLED:
        raise UserError(
            f"--format {name}: predict reads files of the forms {', '.join(FILLED)}; give one of them, or auto"
        )
    return name


def choose_format(run: Run, path: str | Path, name: str = "auto", top: int = 1) -> FileFormat:
    """The form with this name; `auto` is that of the file's suffix. A suffix that may mean several is the form of training if the
    first record of the file is in it, and stdin always is."""
    name = check_filled(name)
    if name != "auto":
        return FILLED[name](run, path, top)
    suffix = strip_compression(path).suffix.lower()
    by_suffix = next((filled for name, filled in FILLED.items() if suffix in FORMATS[name].suffixes), None)
    if by_suffix is not None and suffix not in AMBIGUOUS:
        return by_suffix(run, path, top)
    trained = next((filled for filled in FILLED.values() if filled.reader is run.config.reader_class), None)
    if trained is not None:
        training_format = trained(run, path, top)
        if str(path) == "-" or training_format.matches():
            return training_format
    return (by_suffix or (SQuADFile if suffix == ".json" else LinesFile))(run, path, top)


def fill_file(
    run: Run, path: str | Path, as_json: bool = False, form: str = "auto", top: int = 1
) -> Iterator[str]:
    """The text of a file with its predictions, piece by piece. `form` is one of FILLED, or auto; `top` is the number of labels."""
    require_task(run)
    source = choose_format(run, path, form, top)
    waiting = deque[FileRecord]()

    def model_inputs() -> Iterator[tuple[str, tuple[Any, ...]]]:
        for record in source.records():
            waiting.append(record)
            if record.record is not None:
                yield record.location, record.record

    def passthrough() -> Iterator[str]:
        """The text up to the next record."""
        while waiting and waiting[0].record is None:
            text = waiting.popleft().source
            if not as_json:
                yield text

    has_records = False
    for prediction in predict_stream(run, model_inputs()):
        if not has_records and not as_json:
            yield source.prefix()
        has_records = True
        yield from passthrough()
        record = waiting.popleft()
        yield source.json(record, prediction) if as_json else source.write(record.source, prediction)
    if not has_records:
        raise UserError(f"{path}: the file has no records; give a file with text")
    yield from passthrough()
    if warning := source.warning():
        logger.warning("%s", warning)
