"""Records that two sets of files share: a test on what was learnt by heart measures nothing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from seqloom.data.near import EQUAL_WORDS, EXACT, NEAR, NOT_FOUND, PIECE, NearIndex
from seqloom.data.options import Data
from seqloom.data.viewing import open_reader
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.text.corpus import Reader, Text
from seqloom.text.split import input_text, key_fields

SHOWN = 5
MAX_SOURCES = 200  # training records that are kept for examples
TEXT_WIDTH = 160  # characters of a text that an example shows
STREAM_PIECE = 32  # words of running text that are looked for together
STREAM_BLOCK = 2048  # words of running text that are read together
TEST_CHARACTERS = (
    1 << 24
)  # of test records that are indexed at a time; more need another pass over the training data
TRAIN_CHARACTERS = 1 << 20  # of training records that are looked up at a time
KINDS = {EXACT: "exact", EQUAL_WORDS: "normalized", NEAR: "near"}


@dataclass(frozen=True)
class Leak(Result):
    """A test record and the training record that it equals or nearly equals. `kind` is exact, normalized or near."""

    kind: str
    test: str  # file:line
    text: str
    train: str
    train_text: str


@dataclass(frozen=True)
class LeakReport(Result):
    """How many inputs of a test set are also in the training set: `exact`; or equal but for case, punctuation and white space
    (`normalized`, which includes the exact ones); or with at most a fifth of the words changed (`near`, which includes both).

    `complete` is False if only the first `train_records` of the training set were read. Running text is compared in pieces of about 32 words,
    the `unit`; there `exact` is word for word.
    """

    train_records: int
    test_records: int
    exact: int
    normalized: int
    near: int
    examples: tuple[Leak, ...] = ()
    complete: bool = True
    unit: str = "record"

    def sentence(self) -> str:
        """The counts in one line."""
        share = 100 * self.near / max(self.test_records, 1)
        read = "" if self.complete else f" (its first {self.train_records:,} records)"
        return (
            f"{self.near:,} of {self.test_records:,} test {self.unit}s are in the training data{read} exactly or nearly, "
            f"{share:.1f} %: {self.exact:,} exactly, {self.normalized - self.exact:,} but for case and punctuation, "
            f"{self.near - self.normalized:,} with a few words changed"
        )

    def lines(self) -> list[str]:
        """The report as text."""
        lines = [self.sentence()]
        if self.unit == "piece":
            lines.append(
                "both files are read as running text, in pieces of about 32 words; with --format lines, line by line"
            )
        for leak in self.examples:
            lines.append(f"  {leak.kind}: {leak.test}: {leak.text}")
            if leak.kind != "exact":
                lines.append(f"  {' ' * len(leak.kind)}  {leak.train}: {leak.train_text}")
        return lines


class Input(NamedTuple):
    """What a model reads of a record, and where it is."""

    location: str
    text: str


def leaks(
    train: Data,
    test: Data,
    *,
    format: str = "auto",
    columns: str | None = None,
    progress: ProgressOption = False,
) -> LeakReport:
    """How many records of `test` have an input that is in `train`, or nearly: of a pair the source, of a labelled record the text.

    >>> report = seqloom.data.leaks("reviews.tsv", "reviews.tsv")
    >>> report.exact, report.near
    (40, 40)
    """
    train_reader, test_reader = (open_reader(data, format, columns) for data in (train, test))
    return find_leaks(train_reader, test_reader, test_reader.kinds, progress=progress)


def find_leaks(
    train: Reader,
    test: Iterable[tuple[Any, ...]],
    kinds: Sequence[str],
    *,
    max_characters: int | None = None,
    progress: ProgressOption = False,
) -> LeakReport:
    """The leaks between what a reader reads and test records, whose fields are of the given kinds. Only about the first `max_characters` of
    the training data are read."""
    stream = isinstance(test, Text)
    levels: list[np.ndarray] = []
    examples: list[Leak] = []
    train_records = 0
    complete = True
    with Reporter("leaks", None, progress) as report:
        for inputs in blocks(iterate_inputs(test, kinds, STREAM_PIECE), TEST_CHARACTERS):
            index = NearIndex([one.text for one in inputs], stream)
            sources: dict[int, Input] = {}
            read = train_records = 0
            complete = True
            for block in blocks(iterate_inputs(train, train.kinds, STREAM_BLOCK, PIECE), TRAIN_CHARACTERS):
                if max_characters is not None and read >= max_characters:
                    complete = False
                    break
                index.search([one.text for one in block])
                if len(sources) < MAX_SOURCES:
                    for source in index.source[index.source >= train_records][:SHOWN]:
                        sources[int(source)] = block[int(source) - train_records]
                train_records += len(block)
                read += sum(len(one.text) for one in block)
                report.advance(len(block), {"found": int((index.level != NOT_FOUND).sum())})
            levels.append(index.level)
            examples += examples_of(index, inputs, sources)
    found = np.concatenate([np.empty(0, np.int8), *levels])
    if "smiles" in kinds:  # a molecule that differs in one sign is another molecule
        found = np.where(found == EXACT, EXACT, NOT_FOUND)
        examples = []
    exact, normalized, near = (int((found <= level).sum()) for level in (EXACT, EQUAL_WORDS, NEAR))
    if stream:
        exact = normalized
    # The least obvious ones first: an exact copy needs no example.
    examples.sort(key=lambda leak: -[*KINDS.values()].index(leak.kind))
    return LeakReport(
        train_records,
        len(found),
        exact,
        normalized,
        near,
        tuple(examples[:SHOWN]),
        complete,
        "piece" if stream else "record",
    )


def examples_of(index: NearIndex, inputs: Sequence[Input], sources: dict[int, Input]) -> Iterator[Leak]:
    """A few leaks of each kind."""
    for level, kind in KINDS.items():
        shown = 0
        for number in np.flatnonzero(index.level == level):
            source = sources.get(int(index.source[number]))
            if source is not None and shown < SHOWN:
                shown += 1
                one = inputs[int(number)]
                yield Leak(kind, one.location, shorten(one.text), source.location, shorten(source.text))


def shorten(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= TEXT_WIDTH else f"{text[: TEXT_WIDTH - 1]}…"


def blocks(inputs: Iterable[Input], characters: int) -> Iterator[list[Input]]:
    """Inputs in lists of about so many characters."""
    block: list[Input] = []
    size = 0
    for one in inputs:
        block.append(one)
        size += len(one.text) + 64
        if size >= characters:
            yield block
            block, size = [], 0
    if block:
        yield block


def iterate_inputs(
    records: Iterable[tuple[Any, ...]], kinds: Sequence[str], words: int, overlap: int = 0
) -> Iterator[Input]:
    """What a model reads of each record. Lines of running text are joined until they have so many words; each piece then begins with
    the last `overlap` words or more of the piece before."""
    if isinstance(records, Text):
        yield from join_lines(records, words, overlap)
        return
    fields = key_fields(kinds)
    for number, record in enumerate(records, 1):
        location = records.location if isinstance(records, Reader) else f"record {number}"
        yield Input(location, "\n".join([input_text(record[index]) for index in fields]))


def join_lines(reader: Reader, words: int, overlap: int) -> Iterator[Input]:
    """Running text in pieces of at least so many words; what is left at the end joins the last one."""
    piece: list[tuple[str, int]] = []
    waiting: list[tuple[str, int]] = []  # a piece that is complete, until it is known not to be the last

    def joined(lines: Sequence[tuple[str, int]]) -> Input:
        return Input(reader.location, "".join(line for line, _ in lines))

    for (line,) in reader:
        piece.append((line, len(line.split())))
        if sum(count for _, count in piece) >= words:
            if waiting:
                yield joined(waiting)
            waiting = piece
            piece = tail(piece, overlap)
    if waiting or piece:
        new = piece[len(tail(waiting, overlap)) :] if waiting else piece
        yield joined([*waiting, *new])


def tail(lines: Sequence[tuple[str, int]], words: int) -> list[tuple[str, int]]:
    """The last lines that have at least so many words together, but not all lines."""
    kept: list[tuple[str, int]] = []
    for line in reversed(lines[1:]):
        if sum(count for _, count in kept) >= words:
            break
        kept.insert(0, line)
    return kept
