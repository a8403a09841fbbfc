"""A corpus as ids: its vocabulary, counted while streaming, and its word ids, on disk if they are many.

A corpus has one sentence per line (or per element of an iterable), with words separated by white space. Words
outside the vocabulary are dropped before windows are formed, so that a window spans them. A line longer than
1 MB is read as several sentences, so that memory does not grow with the file.

Left out: lower-casing, punctuation and phrases, which are tokenization, and approximate counting: every
distinct word is held in memory once.
"""

import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, repeat
from pathlib import Path
from typing import IO, NamedTuple, cast

import numpy as np

from seqloom.errors import DataError
from seqloom.files import cache_folder, disk_error
from seqloom.text.corpus import Reader
from seqloom.text.lines import blocks

# A file, several files, a reader (its first field), or sentences: texts or lists of words.
Source = str | Path | Sequence[Path] | Reader | Iterable[str | Sequence[str]]
IN_MEMORY = 64 << 20  # bytes above which ids move to disk
GROUP = 1 << 17  # words encoded by one call, approximately


class VocabOptions(NamedTuple):
    """The words that get a vector: the `max_vocab` most frequent of those that occur `min_count` times."""

    min_count: int = 5
    max_vocab: int | None = None


@dataclass(frozen=True)
class Vocabulary:
    """Words by descending count, equal counts in order of appearance.

    `corpus_words` counts every word of the corpus.
    """

    words: list[str]
    counts: np.ndarray  # (V,) int64
    corpus_words: int

    @classmethod
    def build(cls, source: Source, min_count: int = 5, max_size: int | None = None) -> "Vocabulary":
        """The words that occur at least `min_count` times; of those the `max_size` most frequent ones."""
        if min_count < 1 or (max_size is not None and max_size < 1):
            raise DataError(
                f"a minimum count of {min_count} and a limit of {max_size} words leave no vocabulary; give at least 1"
            )
        counter: Counter[str] = Counter()
        for words in sentences(source):
            counter.update(words)
        if not counter:
            raise DataError("the corpus has no words; give text with words separated by spaces")
        ranked = counter.most_common(max_size)
        frequent = [(word, count) for word, count in ranked if count >= min_count]
        if not frequent:
            word, count = ranked[0]
            raise DataError(
                f"no word occurs {min_count} times (the most frequent, {word!r}, has {count}); "
                "lower --min-count or give more text"
            )
        counts = np.array([count for _, count in frequent], np.int64)
        return cls([word for word, _ in frequent], counts, counter.total())

    def __len__(self) -> int:
        return len(self.words)

    @cached_property
    def total(self) -> int:
        """How often all words of the vocabulary occur together."""
        return int(self.counts.sum())

    @cached_property
    def index(self) -> dict[str, int]:
        """The row of each word."""
        return {word: row for row, word in enumerate(self.words)}


class Corpus(NamedTuple):
    """Sentence i is `ids[starts[i] : starts[i + 1]]`.

    Both arrays are memory maps of unnamed files if the corpus is large.
    """

    ids: np.ndarray  # (N,) int32
    starts: np.ndarray  # (sentences + 1,) int64


def sentences(source: Source) -> Iterator[Sequence[str]]:
    """The words of each sentence."""
    for sentence in _texts(source):
        words = sentence.split() if isinstance(sentence, str) else sentence
        if words:
            yield words


def _texts(source: Source) -> Iterable[str | Sequence[str]]:
    """The sentences of a source: texts, or lists of words."""
    if isinstance(source, str | Path):
        return _lines([Path(source)])
    if isinstance(source, Reader):
        return (record[0] for record in source)
    if isinstance(source, Sequence) and source:
        paths = [path for path in source if isinstance(path, Path)]
        if len(paths) == len(source):
            return _lines(paths)
    return cast(Iterable[str | Sequence[str]], source)


def _lines(paths: Sequence[Path]) -> Iterator[str]:
    for path in paths:
        for text in blocks(path):
            yield from text.split("\n")


def encode(source: Source, vocabulary: Vocabulary, folder: str | Path | None = None) -> Corpus:
    """The ids of the corpus, without words outside the vocabulary and without empty sentences.

    Large arrays are stored in an unnamed file in `folder` (by default the user's cache), which is deleted
    with the arrays.
    """
    ids, starts = _SpooledArray(np.int32, folder), _SpooledArray(np.int64, folder)
    starts.append(np.zeros(1, np.int64))
    find = vocabulary.index.get
    end = 0
    for group in _groups(sentences(source)):
        lengths = np.fromiter(map(len, group), np.int64, len(group))
        rows = np.fromiter(map(find, chain.from_iterable(group), repeat(-1)), np.int32, lengths.sum())
        in_vocabulary = rows >= 0
        lengths = np.add.reduceat(in_vocabulary, np.cumsum(lengths) - lengths, dtype=np.int64)
        ids.append(rows[in_vocabulary])
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
    """An array that grows: in memory up to IN_MEMORY bytes, then in an unnamed file."""

    def __init__(self, dtype: type, folder: str | Path | None) -> None:
        self.dtype: np.dtype = np.dtype(dtype)
        self.folder = Path(folder) if folder else cache_folder()
        self.parts: list[np.ndarray] = []
        self.size = 0
        self.file: IO[bytes] | None = None

    def append(self, part: np.ndarray) -> None:
        self.parts.append(part)
        self.size += part.nbytes
        if self.size > IN_MEMORY:
            try:
                if self.file is None:
                    self.folder.mkdir(parents=True, exist_ok=True)
                    self.file = tempfile.TemporaryFile(dir=self.folder)  # noqa: SIM115 (it lives as long as the array)
                for waiting in self.parts:
                    self.file.write(waiting.data)
                self.file.flush()
            except OSError as error:
                raise disk_error(error, self.folder, "the encoded corpus", self.size) from error
            self.parts = []

    def array(self) -> np.ndarray:
        if self.file is None:
            return np.concatenate(self.parts) if self.parts else np.empty(0, self.dtype)
        return np.memmap(self.file, self.dtype, "r")
