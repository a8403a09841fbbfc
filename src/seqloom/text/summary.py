"""What data holds, as training reads it: fields, records, words, labels with their counts, doubles, and what looks wrong.

Of a long corpus only the first records are looked at, and the summary says so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from seqloom.results import Result
from seqloom.text.corpus import Reader, Table
from seqloom.text.encoder import TEXTS
from seqloom.text.formats import OLD_NAMES

REPORTED = 4096  # records between two reports of progress
SHOWN_LABELS = 20
SHOWN_ALIKE = 5  # groups of labels in a warning
PAIRS_CHECKED = 20_000  # pairs whose alignment is looked at
TRAINING_RECORDS = 200_000  # records that are looked at before training


@dataclass(frozen=True)
class DataSummary(Result):
    """What data files hold. `complete` is False if only the first records were looked at."""

    files: list[str]
    form: str
    header: bool
    fields: list[dict[str, str]]  # name and kind of each
    records: int
    words: int
    labels: dict[str, int]  # the most frequent first
    sorted_by_label: bool
    doubles: int  # inputs that occur more than once
    most_copies: int  # of one input
    longest: int  # words of the longest text
    blank: int  # pairs with a blank side, which are left out
    warnings: list[str]
    first: list[list[Any]]
    complete: bool = True
    first_blank: list[str] = field(default_factory=list)
    turns: dict[str, int] = field(default_factory=dict)  # messages by role, if records are chats

    def lines(self) -> list[str]:
        """The summary as text, without the first records."""
        names = ", ".join(Path(file).name for file in self.files)
        header = " with header" if self.header else ""
        fields = "".join(f", {one['name']} ({one['kind']})" for one in self.fields if one["name"])
        of = "" if self.complete else "the first "
        has_words = self.longest > 0 and all(one["kind"] != "smiles" for one in self.fields)
        words = f", {self.words:,} words" if has_words else ""
        lines = [f"{names}: {self.form}{header}{fields}; {of}{self.records:,} records{words}"]
        if self.labels:
            lines.append(self.label_line())
        if self.blank:
            where = ", ".join(self.first_blank[:3]) + (" …" if self.blank > 3 else "")
            pairs = (
                "1 pair with a blank side is"
                if self.blank == 1
                else f"{self.blank:,} pairs with a blank side are"
            )
            lines.append(f"{pairs} left out: {where}")
        copies = "twice" if self.most_copies == 2 else "more than once"
        texts = "1 text occurs" if self.doubles == 1 else f"{self.doubles:,} texts occur"
        last = [f"{texts} {copies}"] if self.doubles else []
        if self.turns:
            lines.append("turns: " + ", ".join(f"{role} {count:,}" for role, count in self.turns.items()))
        if has_words:
            last.append(f"longest {self.longest:,} words")
        return [*lines, "; ".join(last)] if last else lines

    def label_line(self) -> str:
        """The labels with their counts."""
        shown = list(self.labels.items())[:SHOWN_LABELS]
        more = f" and {len(self.labels) - SHOWN_LABELS:,} more" if len(self.labels) > SHOWN_LABELS else ""
        counts = ", ".join(f"{label} {count:,}" for label, count in shown) + more
        order = "; sorted by label: a held-out share is drawn by content" if self.sorted_by_label else ""
        return f"labels: {counts}{order}"


def describe(
    reader: Reader,
    limit: int | None = None,
    show: int = 0,
    advance: Callable[[int], object] = lambda count: None,
) -> DataSummary:
    """What the first `limit` records of a reader hold; all of them if it is None. The first `show` are part of the summary. `advance` is called
    with the number of records that were read since its last call."""
    kinds = reader.kinds
    if reader.is_plain and not show:
        return describe_text(reader, limit)
    from seqloom.text.split import key_fields, record_key

    keys = key_fields(kinds)
    label_fields = [index for index, kind in enumerate(kinds) if kind in ("label", "tags")]
    labels: Counter[str] = Counter()
    copies: Counter[bytes] = Counter()
    pairs: list[Sequence[str]] = []
    places: list[str] = []
    turns = None
    if reader.template is not None:
        from seqloom.text.chat_counts import TurnCounts

        turns = TurnCounts()
    first: list[list[Any]] = []
    records = words = longest = changes = 0
    previous = None
    complete = True
    for record in reader:
        if limit is not None and records >= limit:
            complete = False
            break
        records += 1
        if records % REPORTED == 0:
            advance(REPORTED)
        if len(first) < show:
            first.append(turns.shown(record) if turns else list(record))
        sizes = [
            word_count(value, kind) for value, kind in zip(record, kinds, strict=True) if kind in TEXT_KINDS
        ]
        words += sum(sizes)
        longest = max([longest, *sizes])
        if kinds != ("text",):
            copies[record_key([record[index] for index in keys])] += 1
        for index in label_fields:
            value = record[index]
            labels.update(
                [value] if kinds[index] == "label" else value.split() if isinstance(value, str) else value
            )
            changes += value != previous
            previous = value
        if turns:
            turns.add(record, reader.location)
        if kinds == ("text", "text") and len(pairs) < PAIRS_CHECKED:
            pairs.append(record)
            places.append(reader.location)
    repeated = [count for count in copies.values() if count > 1]
    is_sorted = (
        "label" in kinds and len(labels) > 1 and changes <= 2 * len(labels) and records > 10 * len(labels)
    )
    return DataSummary(
        files=[str(path) for path in reader.paths],
        form=OLD_NAMES[type(reader).__name__],
        header=isinstance(reader, Table) and reader.header,
        fields=[{"name": name, "kind": kind} for name, kind in zip(field_names(reader), kinds, strict=True)],
        records=records,
        words=words,
        labels=dict(labels.most_common()),
        sorted_by_label=is_sorted,
        doubles=len(repeated),
        most_copies=max(repeated, default=1),
        longest=longest,
        blank=reader.blanks.count,
        warnings=[
            *(reader.quotes_warnings() if isinstance(reader, Table) else ()),
            *label_warnings(labels, kinds, records),
            *pair_warnings(reader, pairs, places),
            *(turns.warnings(kinds, records) if turns else ()),
        ],
        first=first,
        complete=complete,
        first_blank=list(reader.blanks.first),
        turns=dict(turns.roles) if turns else {},
    )


def describe_text(reader: Reader, limit: int | None) -> DataSummary:
    """What the first `limit` records of running text hold, or of one text a line."""
    records = iter(reader)
    sizes = [len(text.split()) for (text,) in islice(records, limit)]
    return DataSummary(
        files=[str(path) for path in reader.paths],
        form=OLD_NAMES[type(reader).__name__],
        header=False,
        fields=[{"name": "", "kind": "text"}],
        records=len(sizes),
        words=sum(sizes),
        labels={},
        sorted_by_label=False,
        doubles=0,
        most_copies=1,
        longest=max(sizes, default=0),
        blank=0,
        warnings=[],
        first=[],
        complete=next(records, None) is None,
    )


TEXT_KINDS = (*TEXTS, "words", "passage", "chat", "answer", "captions")


def word_count(value: Any, kind: str = "text") -> int:
    """The words of a text, of a sentence, of captions or of a chat."""
    if kind in ("chat", "answer"):
        return sum(len(message.content.split()) for message in value)
    if kind == "captions":
        return sum(len(caption.split()) for caption in value)
    return len(value.split()) if isinstance(value, str) else len(value)


def field_names(reader: Reader) -> list[str]:
    """The names of the fields of a reader's records; empty where they have none."""
    from seqloom.text.corpus import JSONLines

    if isinstance(reader, JSONLines):
        return list(reader.fields)
    if isinstance(reader, Table):
        names = reader.header_names
        known = [
            column if isinstance(column, str) else names[column] if -len(names) <= column < len(names) else ""
            for column in reader.columns
        ]
        return [name or f"column {column}" for name, column in zip(known, reader.columns, strict=True)]
    names_by_kinds: dict[tuple[str, ...], list[str]] = {
        ("text", "text"): ["source", "target"],
        ("document", "summary"): ["document", "summary"],
        ("words", "tags"): ["words", "tags"],
        ("answer", "answer"): ["chosen", "rejected"],
        ("image", "captions"): ["picture", "captions"],
        ("image", "label"): ["picture", "label"],
    }
    return names_by_kinds.get(reader.kinds, [""] * len(reader.kinds))


def label_warnings(labels: Counter[str], kinds: Sequence[str], records: int) -> list[str]:
    """What is wrong with labels."""
    if "label" not in kinds:
        return []
    if len(labels) == 1:
        return [f"every record has the label {next(iter(labels))!r}: there is nothing to learn"]
    if records >= 20 and len(labels) > records // 2:
        return [f"{len(labels):,} different labels in {records:,} records: is it the right column?"]
    spellings: dict[str, list[str]] = {}
    for label in filter(str.strip, labels):
        spellings.setdefault(" ".join(label.casefold().split()), []).append(label)
    alike = [", ".join(map(repr, group)) for group in spellings.values() if len(group) > 1]
    if not alike:
        return []
    shown = "; ".join(alike[:SHOWN_ALIKE]) + ("; …" if len(alike) > SHOWN_ALIKE else "")
    return [
        f"labels that differ only by case or blanks: {shown}: write each in one way, if they mean the same"
    ]


def pair_warnings(reader: Reader, pairs: Sequence[Sequence[str]], places: Sequence[str]) -> list[str]:
    """What is wrong with pairs: a shift between the sides, one language on both sides."""
    if not pairs or reader.measure == "pronunciation":
        return []
    from seqloom.text.corpus import Parallel
    from seqloom.text.pair_checks import find_shift, same_language

    if isinstance(reader, Parallel) and len(set(map(str, reader.paths))) == 1:
        return [f"{reader.paths[0]}: the same file twice, as source and as target; give two files"]
    sources, targets = ([pair[side] for pair in pairs] for side in (0, 1))
    warnings = []
    shift = find_shift(sources, targets)
    if shift is not None:
        lines = "1 line" if abs(shift.lines) == 1 else f"{abs(shift.lines)} lines"
        later = "later" if shift.lines > 0 else "earlier"
        warnings.append(
            f"{places[shift.start]}: from about here on, the sides do not line up: the target seems to be {lines} {later}; "
            "look for a missing or an additional line"
        )
    elif same_language(sources, targets):
        warnings.append(
            f"{places[0]}: source and target look like the same language; are these the right files?"
        )
    return warnings
