"""Records that two sets of files share: a test on what was learnt by heart measures nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from seqloom.data.sources import Data
from seqloom.data.viewing import open_reader
from seqloom.results import Result
from seqloom.text.corpus import Reader
from seqloom.text.split import input_text, key_fields, record_key

NOT_WORDS = re.compile(r"[\W_]+")
SHOWN = 5


@dataclass(frozen=True)
class LeakReport(Result):
    """How many inputs of a test file are also in the training file: `exact`, or equal but for case, punctuation and white space
    (`normalized`, which includes the exact ones)."""

    train_records: int
    test_records: int
    exact: int
    normalized: int
    examples: list[str]

    def lines(self) -> list[str]:
        """The report as text."""
        share = 100 * self.normalized / max(self.test_records, 1)
        lines = [
            f"{self.exact:,} of {self.test_records:,} test records are in the training data, {self.normalized:,} but for case and "
            f"punctuation ({share:.1f} %)"
        ]
        return lines + [f"  {example}" for example in self.examples]


def leaks(train: Data, test: Data, *, format: str = "auto", columns: str | None = None) -> LeakReport:
    """How many records of `test` have an input that is in `train`: of a pair the source, of a labelled record the text.

    >>> seqloom.data.leaks("reviews.tsv", "reviews.tsv").exact
    40
    """
    seen: set[bytes] = set()
    seen_normal: set[bytes] = set()
    train_records = 0
    for _, inputs in iterate_inputs(open_reader(train, format, columns)):
        train_records += 1
        seen.add(record_key(inputs))
        seen_normal.add(record_key(normalize(inputs)))
    exact = normalized = test_records = 0
    examples: list[str] = []
    for location, inputs in iterate_inputs(open_reader(test, format, columns)):
        test_records += 1
        exact += record_key(inputs) in seen
        if any(normal := normalize(inputs)) and record_key(normal) in seen_normal:
            normalized += 1
            if len(examples) < SHOWN:
                examples.append(f"{location}: {' | '.join(inputs)}"[:200])
    return LeakReport(train_records, test_records, exact, normalized, examples)


def iterate_inputs(reader: Reader) -> Any:
    """Yields the location and the input texts of each record."""
    fields = key_fields(reader.kinds)
    for record in reader:
        values = [record[index] for index in fields]
        yield reader.location, [input_text(value) for value in values]


def normalize(texts: Sequence[str]) -> list[str]:
    """Texts without case, punctuation and additional white space."""
    return [NOT_WORDS.sub(" ", text.casefold()).strip() for text in texts]
