"""Files in, the same files with answers out: CoNLL-U, columns, tables, JSON Lines, SQuAD, plain lines. Read and written record by record.

A form gives for each record what it stood as and what a model reads of it, and writes the former with an answer. Which form a file has is said by
its ending, and else by the corpus that the run was trained on.
"""

from __future__ import annotations

import csv
import io
import json
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.run import Run
from seqloom.tasks import stream
from seqloom.text import annotated, corpus
from seqloom.text.kinds import KINDS
from seqloom.text.lines import lines

Answer = Any
"""What a task answers: a NamedTuple whose first fields are what a file is filled with."""


class Entry(NamedTuple):
    """A record of a file: where and how it stands, and what a model reads of it."""

    place: str
    raw: Any
    record: tuple


class Form:
    """How records of one kind of file are read, and written again with their answers."""

    def __init__(self, run: Run, path: str | Path):
        self.run, self.path, self.part = run, path, run.recipe.parts["corpus"]
        self.reads = [name for name in run.recipe.kinds() if KINDS[name].asked]
        self.options = self.part.keywords if self.made(self.part.func) else {}

    kind: type | None = None  # the corpus that reads such files in training

    def made(self, reader: type) -> bool:
        """Whether the run's own corpus reads this form, so that its options hold here."""
        return reader is self.kind

    def need(self, *wanted: str) -> None:
        if tuple(self.reads) != wanted:
            raise ValueError(f"{self.path}: the run reads {' and '.join(self.reads)}, and such a file has {' and '.join(wanted)}; give a file like "
                             "those it was trained on, or JSON Lines")

    def entries(self) -> Iterator[Entry]:
        raise NotImplementedError

    def head(self) -> str:
        """What stands before the first record."""
        return ""

    def write(self, raw: Any, answer: Answer) -> str:
        raise NotImplementedError

    def json(self, entry: Entry, answer: Answer) -> str:
        """The record and its answer as one line of JSON."""
        names = {1: ["text"], 2: ["first", "second"]}[len(self.reads)]
        read = {} if self.reads == ["words"] else dict(zip(names, entry.record, strict=True))
        return json.dumps({**read, **answer.json()}, ensure_ascii=False) + "\n"


class CoNLLU(Form):
    """Each sentence as it stood, the run's column filled."""

    kind = annotated.CoNLLU

    def entries(self) -> Iterator[Entry]:
        self.need("words")
        for place, rows, words in annotated.nodes(self.path):
            yield Entry(place, rows, ([cells[1] for cells in words],))

    def write(self, raw: list[str], answer: Answer) -> str:
        column, tags, out = annotated.FIELDS.index(self.options.get("column", "upos")), iter(answer.tags), []
        for row in raw:
            cells = row.split("\t")
            if not row.startswith("#") and annotated.number_of(cells[0]) == "word":
                cells[column] = next(tags)
            out.append("\t".join(cells))
        return "\n".join([*out, "", ""])


class Columns(Form):
    """Each line as it stood, and its tag after it."""

    kind = annotated.Columns

    def entries(self) -> Iterator[Entry]:
        self.need("words")
        column = self.options.get("word", 0)
        for number, rows in annotated.sentences(lines(self.path)):
            own = [row.split() for row in rows]
            words = [cells for cells in own if cells[0] != "-DOCSTART-"]
            if any(not -len(cells) <= column < len(cells) for cells in words):
                raise ValueError(f"{self.path}:{number}: the sentence from here has a line without column {column}; repair it")
            if words:
                yield Entry(f"{self.path}:{number}", rows, ([cells[column] for cells in words],))

    def write(self, raw: list[str], answer: Answer) -> str:
        tags = iter(answer.tags)
        return "\n".join([*(row if row.split()[0] == "-DOCSTART-" else f"{row} {next(tags)}" for row in raw), "", ""])


class Table(Form):
    """Each row with its answer and the probability in cells after it. The texts stand where they stood in training, or alone in the row."""

    kind = corpus.Table

    def __init__(self, run: Run, path: str | Path):
        super().__init__(run, path)
        self.separator = self.options.get("separator") or ("," if str(path).removesuffix(".gz").endswith(".csv") else "\t")
        columns = self.options.get("columns") or tuple(range(len(run.recipe.kinds())))
        self.columns = [column for column, name in zip(columns, run.recipe.kinds(), strict=False) if KINDS[name].asked]
        self.first: list[str] | None = None

    def entries(self) -> Iterator[Entry]:
        skip, columns = self.options.get("header", False), None
        for number, cells in corpus.table_rows(self.path, self.separator):
            if columns is None:
                columns = self.columns if all(-len(cells) <= c < len(cells) for c in self.columns) else list(range(len(self.columns)))
                width = len(cells)
            if len(cells) != width or len(cells) < len(self.reads):
                wanted = f"the first row has {width}" if len(cells) != width else f"{len(self.reads)} are read"
                raise ValueError(f"{self.path}:{number}: {len(cells)} cells, but {wanted}; repair the row")
            if skip:
                self.first, skip = cells, False
                continue
            yield Entry(f"{self.path}:{number}", cells, tuple(cells[column] for column in columns))

    def head(self) -> str:
        return "" if self.first is None else self.line([*self.first, "answer", "probability"])

    def line(self, cells: Sequence[str]) -> str:
        if self.separator == "\t":
            return "\t".join(cells) + "\n"
        text = io.StringIO()
        csv.writer(text, delimiter=self.separator, lineterminator="\n").writerow(cells)
        return text.getvalue()

    def write(self, raw: list[str], answer: Answer) -> str:
        return self.line([*raw, *shown(answer)])


class JSONLines(Form):
    """Each object with the answer's fields added. Texts stand in the fields of training, else in `text`, `words`, or `first` and `second`."""

    kind = corpus.JSONLines

    def __init__(self, run: Run, path: str | Path):
        super().__init__(run, path)
        usual = {("text",): ("text",), ("words",): ("words",), ("text", "passage"): ("question", "context")}
        names = self.options.get("fields") or usual.get(tuple(self.reads), ("first", "second"))
        self.fields = [name for name, kind in zip(names, run.recipe.kinds(), strict=False) if KINDS[kind].asked]

    def entries(self) -> Iterator[Entry]:
        for number, line in enumerate(lines(self.path), 1):
            if not line.strip():
                continue
            place = f"{self.path}:{number}"
            try:
                found = json.loads(line)
                yield Entry(place, found, tuple(found[name] for name in self.fields))
            except (ValueError, RecursionError, KeyError, TypeError):
                raise ValueError(f"{place}: not a JSON object with {', '.join(self.fields)}; write one per line") from None

    def write(self, raw: dict[str, Any], answer: Answer) -> str:
        return json.dumps({**raw, **answer.json()}, ensure_ascii=False) + "\n"

    def json(self, entry: Entry, answer: Answer) -> str:
        return self.write(entry.raw, answer)


class SQuAD(Form):
    """One JSON object for each question, with its id."""

    kind = annotated.SQuAD

    def entries(self) -> Iterator[Entry]:
        self.need("text", "passage")
        for place, name, question, passage, _ in annotated.questions(self.path):
            yield Entry(place, {"id": name, "question": question}, (question, passage))

    def write(self, raw: dict[str, Any], answer: Answer) -> str:
        return json.dumps({**raw, **answer.json()}, ensure_ascii=False) + "\n"

    def json(self, entry: Entry, answer: Answer) -> str:
        return self.write(entry.raw, answer)


class Lines(Form):
    """Each line is a text, or a sentence whose words stand between spaces: the line, a tab, and its answer."""

    def entries(self) -> Iterator[Entry]:
        if len(self.reads) != 1:
            self.need("text")
        for number, line in enumerate(lines(self.path), 1):
            if line.strip():
                yield Entry(f"{self.path}:{number}", line, (line.split() if self.reads == ["words"] else line,))

    def write(self, raw: str, answer: Answer) -> str:
        return "\t".join([raw, *shown(answer)]) + "\n"


ENDINGS: dict[str, type[Form]] = {
    ".conllu": CoNLLU, ".conll": Columns, ".bio": Columns, ".tsv": Table, ".csv": Table, ".jsonl": JSONLines, ".json": SQuAD, ".txt": Lines,
}  # fmt: skip


def form(run: Run, path: str | Path) -> Form:
    """The form of a file."""
    ending = Path(str(path).removesuffix(".gz")).suffix
    trained = {kind.kind: kind for kind in ENDINGS.values()}.get(run.recipe.parts["corpus"].func, Lines)
    return ENDINGS.get(ending, trained)(run, path)


def filled(run: Run, path: str | Path, as_json: bool = False) -> Iterator[str]:
    """The text of a file with its answers, piece by piece."""
    source, waiting = form(run, path), deque()

    def asked() -> Iterator[tuple[str, tuple]]:
        for entry in source.entries():
            waiting.append(entry)
            yield entry.place, entry.record

    begun = False
    for answer in stream(run, asked()):
        if not begun and not as_json:
            yield source.head()
        begun, entry = True, waiting.popleft()
        yield source.json(entry, answer) if as_json else source.write(entry.raw, answer)
    if not begun:
        raise ValueError(f"{path}: no record in it; give a file with text")


def shown(answer: Answer) -> list[str]:
    """An answer as cells."""
    facts = answer.json()
    if "tags" in facts:
        return [" ".join(facts["tags"])]
    cells = [value for name, value in facts.items() if name not in ("probabilities", "start", "end")]
    return [f"{value:.4f}" if isinstance(value, float) else str(value) for value in cells]
