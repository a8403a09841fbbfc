"""Which numbers of a table may be compared: a row that was measured in another way gets no rank, and every other difference of conditions
gets a mark.

A score is ranked among those with the same signature, but for what each system chooses by itself: its seed, its windows and, unless the score
is per token, its tokenizer. Windows, tokenizers and training data that differ from those of most rows are marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom import files
from seqloom.config_source import config_of
from seqloom.data.overlap import LeakReport
from seqloom.errors import UserError
from seqloom.measure.number import Number, letter

# What may differ between ranked systems: every system reads the same data in its own tokens and windows.
FREE = ("seed", "tokenizer", "data", "width", "stride")
PER_TOKEN = ("perplexity", "nats_per_token")  # scores that rank systems with one tokenizer only
WINDOWS = ("width", "stride")


class Conditions(NamedTuple):
    """Under which conditions the number of a row was measured; empty texts where they are unknown."""

    measured: str
    tokenizer: str = ""
    windows: str = ""
    training: str = ""  # the digests of the training files
    training_names: str = ""
    leaks: str = ""


def conditions_of(number: Number, folder: Path, leaks: LeakReport | None = None) -> Conditions:
    """The conditions of a run's number."""
    tokenizer = folder / "tokenizer.json"
    digests, names = training_data(folder)
    return Conditions(
        comparable(number),
        files.sha256(tokenizer)[:8] if tokenizer.is_file() else "",
        "|".join(part for part in number.signature.split("|") if part.split(":")[0] in WINDOWS),
        digests,
        names,
        f"{leaks.near:,} of {leaks.test_records:,}" if leaks is not None and leaks.near else "",
    )


def comparable(number: Number) -> str:
    """The part of a signature in which ranked numbers agree."""
    free = [key for key in FREE if not (key == "tokenizer" and number.name in PER_TOKEN)]
    return "|".join(part for part in number.signature.split("|") if part.split(":")[0] not in free)


def shared_signature(numbers: Sequence[Number], data: str = "") -> str:
    """The signature of numbers that may be compared: what they agree in, and the digest of the test data."""
    parts = [number.signature.split("|") for number in numbers]
    windows = [
        part for part in parts[0] if part.split(":")[0] in WINDOWS and all(part in row for row in parts)
    ]
    return "|".join([comparable(numbers[0]), *([f"data:{data}"] if data else []), *windows])


def training_data(folder: Path) -> tuple[str, str]:
    """The digests of a run's training files, or the paths of those that are gone; and their names."""
    try:
        section = config_of(folder)[0].get("files")
    except UserError:
        return "", ""
    paths = section.get("train") if isinstance(section, dict) else None
    if not isinstance(paths, list):
        return "", ""
    digests = [files.sha256(Path(path))[:12] if Path(path).is_file() else str(path) for path in paths]
    return " ".join(digests), " ".join(Path(path).name for path in paths)


def ranked_rows(rows: Sequence[Conditions]) -> list[bool]:
    """Which rows share one ranking: the largest group of numbers that are measured alike. A row without an equal has no rank if there
    are others."""
    groups = Counter(row.measured for row in rows)
    largest = max(groups.values(), default=0)
    if largest == 1 < len(rows):
        return [False] * len(rows)
    chosen = next((row.measured for row in rows if groups[row.measured] == largest), "")
    return [row.measured == chosen for row in rows]


def marks_of(rows: Sequence[Conditions]) -> list[tuple[str, ...]]:
    """For each row the conditions in which it differs from most rows."""
    marks: list[list[str]] = [[] for _ in rows]

    def mark(key: Callable[[Conditions], str], sentence: Callable[[Conditions, Conditions], str]) -> None:
        counts = Counter(key(row) for row in rows if key(row))
        if len(counts) < 2:
            return
        most = counts.most_common(1)[0][0]
        usual = next(row for row in rows if key(row) == most)
        for row, found in zip(rows, marks, strict=True):
            if key(row) and key(row) != most:
                found.append(sentence(row, usual))

    mark(lambda row: row.measured, measured_sentence)
    mark(
        lambda row: row.windows,
        lambda row, usual: (
            f"reads {windows_text(row.windows)}, not {windows_text(usual.windows)}; "
            "the scores may be compared: each model reads the same text as it was trained to"
        ),
    )
    mark(
        lambda row: row.tokenizer,
        lambda row, usual: f"tokenizer {row.tokenizer}, not {usual.tokenizer}: no comparison per token",
    )
    mark(
        lambda row: row.training,
        lambda row, usual: (
            f"trained on {row.training_names or row.training}"
            + (
                f" ({row.training}), not {usual.training}"
                if row.training_names == usual.training_names
                else f", not {usual.training_names}"
            )
        ),
    )
    differ = len({row.leaks for row in rows}) > 1
    for row, found in zip(rows, marks, strict=True):
        if row.leaks and differ:
            found.append(f"{row.leaks} test records are in its training data, or nearly")
    return [tuple(found) for found in marks]


def windows_text(windows: str) -> str:
    """How a text is read, from the part of a signature such as `width:64|stride:32`."""
    sizes = dict(part.split(":") for part in windows.split("|"))
    width, stride = sizes.get("width", "all"), sizes.get("stride")
    if stride is None:
        return f"blocks of {width} tokens and carries its state on"
    overlap = "" if stride == width else f" that begin every {stride}"
    return f"separate windows of {width} tokens{overlap}"


def measured_sentence(row: Conditions, usual: Conditions) -> str:
    """In what two signatures differ."""
    own, other = row.measured.split("|"), usual.measured.split("|")
    return (
        f"no rank: measured with {'|'.join(part for part in own if part not in other) or row.measured}, "
        f"not {'|'.join(part for part in other if part not in own) or usual.measured}"
    )


def letters(marks: Sequence[Sequence[str]]) -> dict[str, str]:
    """A letter for each different mark, in the order of the rows: a, b, …, z, aa, ab, …"""
    reasons = dict.fromkeys(reason for row in marks for reason in row)
    return {reason: letter(number) for number, reason in enumerate(reasons)}
