"""A corpus as numbers: its vocabulary, learnt by streaming, and its ids, on the disk where they are many.

A corpus is one sentence a line (or one element of an iterable), words separated by white space. Words outside the vocabulary are dropped
before windows are cut, so that a window spans them. A line above 1 MB is several sentences: memory stays constant whatever the file. Left out:
lower-casing, punctuation and phrases, which are the tokenizer's business, and counting words approximately: every distinct word is held once.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import NamedTuple

import numpy as np
from platformdirs import user_cache_path

from seqloom.files import disk_error
from seqloom.text.corpus import Reader
from seqloom.text.lines import blocks

# A file, several files, a reader (its first field), or sentences: texts or lists of words.
Source = str | Path | Sequence[Path] | Reader | Iterable[str | Sequence[str]]
IN_MEMORY = 64 << 20  # bytes of ids beyond which they move to the disk
GROUP = 1 << 17  # words encoded by one call, about


@dataclass(frozen=True)
class Vocabulary:
    """Words in order of falling count, equal counts in order of appearance. `seen` counts every word of the corpus, kept or not."""

    words: list[str]
    counts: np.ndarray  # (V,) int64
    seen: int

    @classmethod
    def learn(cls, source: Source, minimum: int = 5, most: int | None = None) -> "Vocabulary":
        """The words that occur `minimum` times or more; of those the `most` frequent ones, None for all."""
        if minimum < 1 or (most is not None and most < 1):
            raise ValueError(
                f"a minimum count of {minimum} and at most {most} words leave no vocabulary; give at least 1"
            )
        counter: Counter[str] = Counter()
        for words in sentences(source):
            counter.update(words)
        if not counter:
            raise ValueError("the corpus has no words; give text with words separated by spaces")
        ranked = counter.most_common(most)
        kept = [(word, count) for word, count in ranked if count >= minimum]
        if not kept:
            word, count = ranked[0]
            raise ValueError(
                f"no word occurs {minimum} times (the most frequent, {word!r}, has {count}); lower --minimum or give more text"
            )
        return cls(
            [word for word, _ in kept], np.array([count for _, count in kept], np.int64), counter.total()
        )

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def total(self) -> int:
        """How often the words of the vocabulary occur, all together."""
        return int(self.counts.sum())

    @cached_property
    def index(self) -> dict[str, int]:
        """word → its row."""
        return {word: row for row, word in enumerate(self.words)}


class Corpus(NamedTuple):
    """Sentence i is `ids[starts[i] : starts[i + 1]]`. Both arrays are memory maps of unnamed files where the corpus is large."""

    ids: np.ndarray  # (N,) int32
    starts: np.ndarray  # (sentences + 1,) int64


def sentences(source: Source) -> Iterator[Sequence[str]]:
    """The words of each sentence."""
    if isinstance(source, str | Path):
        source = [Path(source)]
    if isinstance(source, Reader):
        source = (record[0] for record in source)
    elif isinstance(source, Sequence) and source and all(isinstance(path, Path) for path in source):
        source = (line for path in source for text in blocks(path) for line in text.split("\n"))
    for sentence in source:
        words = sentence.split() if isinstance(sentence, str) else sentence
        if words:
            yield words


def encode(source: Source, vocabulary: Vocabulary, folder: str | Path | None = None) -> Corpus:
    """The ids of the corpus, words outside the vocabulary and sentences without any word dropped. Large ones are kept in a file
    without a name in `folder` (the user's cache by default), which goes when the arrays go."""
    ids, starts = _SpooledArray(np.int32, folder), _SpooledArray(np.int64, folder)
    starts.append(np.zeros(1, np.int64))
    find, end = vocabulary.index.get, 0
    for group in _groups(sentences(source)):
        lengths = np.fromiter(map(len, group), np.int64, len(group))
        rows = np.fromiter(map(find, chain.from_iterable(group), repeat(-1)), np.int32, lengths.sum())
        known = rows >= 0
        lengths = np.add.reduceat(known, np.cumsum(lengths) - lengths, dtype=np.int64)
        ids.append(rows[known])
        starts.append(end + np.cumsum(lengths[lengths > 0]))
        end += int(lengths.sum())
    return Corpus(ids.array(), starts.array())


def _groups(stream: Iterator[Sequence[str]]) -> Iterator[list[Sequence[str]]]:
    """Sentences in lists of about GROUP words."""
    group: list[Sequence[str]] = []
    size = 0
    for words in stream:
        group.append(words)
        size += len(words)
        if size >= GROUP:
            yield group
            group, size = [], 0
    if group:
        yield group


class _SpooledArray:
    """An array that grows: in memory first, in an unnamed file from IN_MEMORY bytes on."""

    def __init__(self, dtype: type, folder: str | Path | None):
        self.dtype, self.folder = np.dtype(dtype), Path(folder) if folder else user_cache_path("seqloom")
        self.parts: list[np.ndarray] = []
        self.size, self.file = 0, None

    def append(self, part: np.ndarray) -> None:
        self.parts.append(part)
        self.size += part.nbytes
        if self.size > IN_MEMORY:
            try:
                if self.file is None:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    self.file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 (lives as long as the array)
                for one in self.parts:
                    self.file.write(one)
                self.file.flush()
            except OSError as error:
                raise disk_error(error, self.folder, "the encoded corpus", self.size) from error
            self.parts = []

    def array(self) -> np.ndarray:
        if self.file is None:
            return np.concatenate(self.parts) if self.parts else np.empty(0, self.dtype)
        return np.memmap(self.file, self.dtype, "r")
