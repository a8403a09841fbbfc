"""Counts of words: one-hot vectors, bags of words, TF-IDF, and co-occurrence in windows.

Co-occurrences are counted for corpora larger than memory.

Left out: stop words and lower-casing, which are tokenization, and windows that skip frequent words, which
word2vec has.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

import numpy as np
from scipy.sparse import csr_array

from seqloom.errors import DataError
from seqloom.files import cache_folder, disk_error, write_atomic
from seqloom.vectors.backend import load_kernels
from seqloom.vectors.count_writer import CELL, RowWriters, append, memory_map, release_pages
from seqloom.vectors.vocabulary import Corpus

COLUMNS, VALUES, STARTS = "columns.int32", "values.float64", "starts.int64"


def one_hot(ids: np.ndarray, size: int) -> csr_array:
    """(n, V): row i is zero except for a 1 in column ids[i] [A1, X26]."""
    ids = np.asarray(ids)
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        raise DataError(
            f"ids from {ids.min()} to {ids.max()} do not fit {size} words; encode with the same vocabulary"
        )
    return csr_array((np.ones(len(ids)), ids, np.arange(len(ids) + 1)), (len(ids), size))


def bag_of_words(documents: Iterable[Sequence[str]], words: Sequence[str]) -> csr_array:
    """(documents, V): how often each word occurs in each document (a list of words) [A4]."""
    from sklearn.feature_extraction.text import CountVectorizer  # takes a second to import

    return csr_array(CountVectorizer(analyzer=list, vocabulary=words).transform(documents))


def tf_idf(counts: csr_array) -> csr_array:
    """tf_dw (ln (1 + n) / (1 + n_w) + 1), rows divided by their norms; n_w of n documents contain w [A5]."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return csr_array(TfidfTransformer().fit_transform(counts))


def uniform_weight(distance: int) -> float:
    """Every word of the window counts 1."""
    return 1.0


def inverse_distance(distance: int) -> float:
    """A word at distance d counts 1 / d, as in GloVe."""
    return 1 / distance


class Cooccurrences(NamedTuple):
    """Co-occurrence counts: row w has columns[starts[w] : starts[w + 1]], ascending, and the values there.

    `columns` and `values` are memory maps.
    """

    starts: np.ndarray  # (V + 1,) int64
    columns: np.ndarray  # (cells,) int32
    values: np.ndarray  # (cells,) float64

    def matrix(self) -> csr_array:
        """(V, V), without a copy up to two billion cells: pages are read from disk when they are used."""
        size = len(self.starts) - 1
        # scipy copies the columns unless the starts have the same type
        small = len(self.columns) <= np.iinfo(np.int32).max
        starts = self.starts.astype(np.int32) if small else self.starts
        return csr_array((self.values, self.columns, starts), (size, size))

    @classmethod
    def open(cls, folder: str | Path) -> Cooccurrences:
        """The counts that `cooccurrences` has written to a folder."""
        folder = Path(folder)
        if not (folder / STARTS).is_file():
            raise DataError(f"{folder}: no finished counts here; write them with cooccurrences(…, folder=…)")
        starts = np.fromfile(folder / STARTS, np.int64)
        columns, values = memory_map(folder / COLUMNS, np.int32), memory_map(folder / VALUES, np.float64)
        if not len(columns) == len(values) == starts[-1]:
            raise DataError(f"{folder}: the files of these counts do not fit each other; count again")
        return cls(starts, columns, values)


class _Weighting(NamedTuple):
    """The weights of contexts at distance 1, 2, … before and after a word; empty for an ignored side."""

    left: np.ndarray
    right: np.ndarray


def cooccurrences(
    corpus: Corpus,
    size: int,
    window: int = 10,
    weight: Callable[[int], float] = inverse_distance,
    side: str = "both",
    memory: int = 1 << 30,
    threads: int = 2,
    folder: str | Path | None = None,
) -> Cooccurrences:
    """X_wc = Σ weight(d) over the pairs in which c is d ≤ window words from w, in the same sentence [A7, A8].

    `side` selects the words before w, after w, or both.

    Uses at most about `memory` bytes for any corpus: it is counted in chunks that fit, and the counts of the
    chunks are added up from disk. Memory and threads affect only the last bit of sums of weights like 1 / 3.
    With a folder the counts are kept there for `Cooccurrences.open`; without one they are deleted with the
    arrays.
    """
    weights = np.array([weight(distance) for distance in range(1, window + 1)], np.float64)
    if window < 1 or not (weights > 0).all():
        raise DataError(
            f"a window of {window} words with weights {weights.tolist()} cannot count; "
            "give a window of 1 or more and weights above 0"
        )
    if side not in ("both", "left", "right"):
        raise DataError(f"side {side!r} is unknown; give 'both', 'left' or 'right'")
    if threads < 1:
        raise DataError(f"{threads} threads cannot count; give at least 1")
    nothing = weights[:0]
    weighting = _Weighting(
        left=nothing if side == "right" else weights,
        right=nothing if side == "left" else weights,
    )
    chunk_words, max_cells = _buffer_sizes(len(corpus.ids), size, window, memory, threads)
    directory = Path(folder) if folder else cache_folder()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            writers = stack.enter_context(RowWriters(size, max_cells, threads))

            def new_file(name: str | None = None) -> BinaryIO:
                if name:
                    return cast(BinaryIO, stack.enter_context(open(directory / name, "w+b", buffering=0)))
                # deleted with its last user, even if that process is killed
                unnamed = tempfile.TemporaryFile(dir=directory, buffering=0)  # noqa: SIM115 (the stack closes it)
                return cast(BinaryIO, stack.enter_context(unnamed))

            if folder:
                (directory / STARTS).unlink(missing_ok=True)  # written last: marks the counts as finished
            columns = new_file(COLUMNS if folder else None)
            values = new_file(VALUES if folder else None)
            if chunk_words >= len(corpus.ids):
                lengths = _count(corpus, 0, len(corpus.ids), weighting, writers, columns, values)
            else:
                parts = [new_file() for _ in range(3)]
                lengths = _count_chunks(corpus, chunk_words, weighting, writers, columns, values, parts)
            cells = Cooccurrences(
                np.concatenate([[0], np.cumsum(lengths)]),
                memory_map(columns, np.int32),
                memory_map(values, np.float64),
            )
        if folder:
            write_atomic(directory / STARTS, cells.starts.tobytes())
    except OSError as error:
        raise disk_error(error, directory, "the counts") from error
    return cells


def _buffer_sizes(words: int, size: int, window: int, memory: int, threads: int) -> tuple[int, int]:
    """Words counted at a time, and cells of a thread's buffer; buffers take at most two fifths."""
    fixed = threads * 13 * size + 64 * size + 16 * window  # scratch; offsets, bounds, lengths and starts
    per_cell = CELL * (threads + 1)
    per_word = 12  # bytes: its id, its position and, at worst, a boundary
    min_corpus = per_word * 4000
    required = fixed + per_cell * size + min_corpus
    if memory < required:
        raise DataError(
            f"{memory:,} bytes of memory are too few to count {size:,} words; give at least {required:,}"
        )
    affordable = (memory - fixed - min_corpus) // per_cell
    max_cells = max(size, min(2_000_000, memory * 2 // 5 // per_cell, affordable))
    chunk_words = (memory - fixed - per_cell * max_cells) // per_word
    return min(chunk_words, 1 << 30, max(words, 1)), max_cells


def _count_chunks(
    corpus: Corpus,
    chunk_words: int,
    weighting: _Weighting,
    writers: RowWriters,
    columns: BinaryIO,
    values: BinaryIO,
    parts: list[BinaryIO],
) -> np.ndarray:
    """Counts each chunk into the files `parts` (columns, values, starts), then adds the chunks up by row."""
    cells = 0
    bounds = np.zeros(writers.size, np.int64)
    for begin in range(0, len(corpus.ids), chunk_words):
        end = min(begin + chunk_words, len(corpus.ids))
        lengths = _count(corpus, begin, end, weighting, writers, parts[0], parts[1])
        bounds += lengths
        append(parts[2], cells + np.concatenate([[0], np.cumsum(lengths)]))
        cells += int(lengths.sum())
    old_columns, old_values = memory_map(parts[0], np.int32), memory_map(parts[1], np.float64)
    starts = memory_map(parts[2], np.int64).reshape(-1, writers.size + 1)

    def add_up(first: int, last: int, *out: object) -> int:
        merge_rows = load_kernels("cooccurrence").merge_rows
        n: int = merge_rows(starts[:, first : last + 1], old_columns, old_values, *out)
        release_pages(old_columns, old_values)
        return n

    return writers.write(np.minimum(bounds, writers.size), add_up, columns, values)


def _count(
    corpus: Corpus,
    begin: int,
    end: int,
    weighting: _Weighting,
    writers: RowWriters,
    columns: BinaryIO,
    values: BinaryIO,
) -> np.ndarray:
    """Counts the contexts of the words begin … end − 1, including context words before and after these."""
    left, right = weighting
    low, high = max(begin - len(left), 0), min(end + len(right), len(corpus.ids))
    ids = corpus.ids[low:high]
    if len(ids) and not 0 <= ids.min() <= ids.max() < writers.size:
        raise DataError(
            f"ids from {ids.min()} to {ids.max()} do not fit {writers.size} words; encode with the same vocabulary"
        )
    kernels = load_kernels("cooccurrence")
    first, last = np.searchsorted(corpus.starts, [low, high], "right")
    stream = np.empty(len(ids) + (last - first) + 2, np.int32)
    stream = stream[: kernels.write_stream(corpus.ids, corpus.starts, first, low, high, stream)]
    release_pages(corpus.ids)
    offsets = np.zeros(writers.size + 1, np.int64)
    positions = np.empty(end - begin, np.int32)
    kernels.inverted_index(stream, begin - low, end - begin, offsets, positions)
    bounds = np.minimum(np.diff(offsets) * (len(left) + len(right)), writers.size)

    def count_rows(first: int, last: int, *out: object) -> int:
        n: int = kernels.count_rows(stream, offsets, positions, left, right, first, last, *out)
        return n

    return writers.write(bounds, count_rows, columns, values)
