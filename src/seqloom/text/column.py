"""A column of the store: the ids, or other values, of one field of every record; and a view of some of its records.

A column is two memory-mapped arrays; a view adds the numbers of its records and copies nothing, so that data may be divided in any
way without a second copy on the disk or in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

BLOCK_RECORDS = 1 << 16  # records that a view gathers at a time
BLOCK_TOKENS = 1 << 20


class Column(NamedTuple):
    """Record i is `tokens[offsets[i]:offsets[i + 1]]`; its text
    has `bytes[i + 1] - bytes[i]` bytes of UTF-8, without <eos>.

    The names of the fields are file names.
    """

    tokens: np.ndarray  # (N,) uint16 or uint32 for ids
    offsets: np.ndarray  # (n + 1,) int64, from 0 to N
    bytes: np.ndarray  # (n + 1,) int64

    def row(self, index: int) -> np.ndarray:
        """Returns the values of one record."""
        return self.tokens[self.offsets[index] : self.offsets[index + 1]]

    def sizes(self, index: np.ndarray) -> np.ndarray:
        """Returns the number of values of each of the given records."""
        return self.offsets[index + 1] - self.offsets[index]

    def byte_sizes(self, index: np.ndarray) -> np.ndarray:
        """Returns the UTF-8 bytes of each of the given records."""
        return self.bytes[index + 1] - self.bytes[index]

    def number(self, index: int) -> int:
        """Returns the number of a record in the corpus, from 0."""
        return int(index)

    @property
    def num_records(self) -> int:
        return len(self.offsets) - 1

    @property
    def num_tokens(self) -> int:
        return len(self.tokens)

    @property
    def num_bytes(self) -> int:
        """The UTF-8 bytes of all records."""
        return int(self.bytes[-1] - self.bytes[0])

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields all values, in blocks of bounded size."""
        for start in range(0, len(self.tokens), BLOCK_TOKENS):
            yield self.tokens[start : start + BLOCK_TOKENS]

    def gathered(self) -> Column:
        """Returns the column with its values in one array."""
        return self

    def pick(self, records: np.ndarray) -> ColumnView:
        """Returns the view of the given records."""
        return ColumnView(self, records)


class ColumnView:
    """The records of a column that have the given numbers, in that order."""

    def __init__(self, whole: Column, records: np.ndarray):
        self.whole = whole
        self.records = records
        self.num_records = len(records)
        self.num_tokens = sum(int(self.whole.sizes(part).sum()) for part in self.parts())
        self.num_bytes = sum(int(self.whole.byte_sizes(part).sum()) for part in self.parts())

    def parts(self) -> Iterator[np.ndarray]:
        """Yields the numbers of the records, some at a time."""
        for start in range(0, len(self.records), BLOCK_RECORDS):
            yield self.records[start : start + BLOCK_RECORDS].astype(np.int64)

    def row(self, index: int) -> np.ndarray:
        return self.whole.row(int(self.records[index]))

    def sizes(self, index: np.ndarray) -> np.ndarray:
        return self.whole.sizes(self.records[index].astype(np.int64))

    def byte_sizes(self, index: np.ndarray) -> np.ndarray:
        return self.whole.byte_sizes(self.records[index].astype(np.int64))

    def number(self, index: int) -> int:
        return int(self.records[index])

    def blocks(self) -> Iterator[np.ndarray]:
        for part in self.parts():
            yield self.tokens_of(part)

    def tokens_of(self, records: np.ndarray) -> np.ndarray:
        """Returns the values of the given records of the whole column in one array."""
        counts = self.whole.sizes(records)
        ends = np.cumsum(counts)
        positions = np.arange(ends[-1] if len(ends) else 0)
        positions += np.repeat(self.whole.offsets[records] - (ends - counts), counts)
        return self.whole.tokens[positions]

    def gathered(self) -> Column:
        """Returns the view with its values in one array, a copy in memory."""
        tokens = [*self.blocks()] or [self.whole.tokens[:0]]
        records = self.records.astype(np.int64)
        sizes = [self.whole.sizes(records), self.whole.byte_sizes(records)]
        offsets, byte_offsets = (np.concatenate([[0], np.cumsum(part)]) for part in sizes)
        return Column(np.concatenate(tokens), offsets, byte_offsets)

    def pick(self, records: np.ndarray) -> ColumnView:
        return ColumnView(self.whole, self.records[records])
