"""Counts of words: one-hot vectors, bags of words, TF-IDF, and co-occurrence in windows for corpora larger than memory.

Left out: stop words and lower-casing, which are the tokenizer's business, and windows that skip frequent words, which are word2vec's.
"""

import tempfile
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np
from platformdirs import user_cache_path
from scipy.sparse import csr_array

from seqloom.files import disk_error, write_atomic
from seqloom.vectors.backend import load_kernels
from seqloom.vectors.count_writer import CELL, RowWriters, append, memory_map, release_pages
from seqloom.vectors.vocabulary import Corpus

COLUMNS, VALUES, STARTS = "columns.int32", "values.float64", "starts.int64"


def one_hot(ids: np.ndarray, size: int) -> csr_array:
    """(n, V): row i is all zeros but a 1 at column ids[i] [A1, X26]."""
    ids = np.asarray(ids)
    if len(ids) and not 0 <= ids.min() <= ids.max() < size:
        raise ValueError(
            f"ids from {ids.min()} to {ids.max()} do not fit {size} words; encode with the same vocabulary"
        )
    return csr_array((np.ones(len(ids)), ids, np.arange(len(ids) + 1)), (len(ids), size))


def bag_of_words(documents: Iterable[Sequence[str]], words: Sequence[str]) -> csr_array:
    """(documents, V): how often each of the words occurs in each document, a list of its words; order is lost [A4]."""
    from sklearn.feature_extraction.text import CountVectorizer  # a second of loading that only this needs

    return csr_array(CountVectorizer(analyzer=list, vocabulary=words).transform(documents))


def tf_idf(counts: csr_array) -> csr_array:
    """tf_dw (ln (1 + n) / (1 + n_w) + 1), each row then divided by its length; n_w of n documents hold the word w [A5]."""
    from sklearn.feature_extraction.text import TfidfTransformer

    return csr_array(TfidfTransformer().fit_transform(counts))


def uniform_weight(distance: int) -> float:
    """Every word of the window counts 1."""
    return 1.0


def inverse_distance(distance: int) -> float:
    """A word at distance d counts 1 / d, as in GloVe."""
    return 1 / distance


class Cooccurrences(NamedTuple):
    """Co-occurrence counts: row w has the columns[starts[w]:starts[w + 1]], ascending, and the values there. The latter two are memory maps."""

    starts: np.ndarray  # (V + 1,) int64
    columns: np.ndarray  # (cells,) int32
    values: np.ndarray  # (cells,) float64

    def matrix(self) -> csr_array:
        """(V, V), without a copy up to two billion cells: pages are read from the disk when they are used."""
        size, cells = len(self.starts) - 1, len(self.columns)
        starts = (
            self.starts.astype(np.int32) if cells <= np.iinfo(np.int32).max else self.starts
        )  # scipy wants them like the columns
        return csr_array((self.values, self.columns, starts), (size, size))

    @classmethod
    def open(cls, folder: str | Path) -> "Cooccurrences":
        """The counts that `cooccurrences` has left in a folder."""
        folder = Path(folder)
        if not (folder / STARTS).is_file():
            raise ValueError(
                f"{folder}: there are no finished counts here; make them with cooccurrences(…, folder=…)"
            )
        starts = np.fromfile(folder / STARTS, np.int64)
        columns, values = memory_map(folder / COLUMNS, np.int32), memory_map(folder / VALUES, np.float64)
        if not len(columns) == len(values) == starts[-1]:
            raise ValueError(f"{folder}: the files of these counts do not fit each other; make them again")
        return cls(starts, columns, values)


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
    """X_wc = Σ weight(d) over all pairs in which c stands d ≤ window words from w, on the given side, in the same sentence [A7, A8].

    At most about `memory` bytes are used, whatever the corpus: it is counted in pieces that fit, and the counts of the pieces are added up
    from the disk. Memory and threads change nothing in the result but the last bit of weights like 1 / 3. With a folder the counts stay
    there for `Cooccurrences.open`; without one they go when the arrays go.
    """
    weights = np.array([weight(distance) for distance in range(1, window + 1)], np.float64)
    if window < 1 or not (weights > 0).all():
        raise ValueError(
            f"a window of {window} words with weights {weights.tolist()} counts nothing somewhere; give 1 or more, weights above 0"
        )
    if side not in ("both", "left", "right"):
        raise ValueError(f"side {side!r} is unknown; give 'both', 'left' or 'right'")
    if threads < 1:
        raise ValueError(f"{threads} threads cannot count; give at least 1")
    left, right = (weights[: window * (side != other)] for other in ("right", "left"))
    piece, buffer = _buffer_sizes(len(corpus.ids), size, window, memory, threads)
    place = Path(folder) if folder else user_cache_path("seqloom")
    try:
        place.mkdir(parents=True, exist_ok=True)
        with ExitStack() as stack:
            crew = stack.enter_context(RowWriters(size, buffer, threads))

            def file(name: str | None = None) -> BinaryIO:
                if name:
                    return stack.enter_context(open(place / name, "w+b", buffering=0))
                return stack.enter_context(
                    tempfile.TemporaryFile(dir=place, buffering=0)
                )  # goes with its last user, even a killed one

            if folder:
                (place / STARTS).unlink(missing_ok=True)  # written last: with it the counts are finished
            columns, values = file(folder and COLUMNS), file(folder and VALUES)
            if piece >= len(corpus.ids):
                lengths = _count(corpus, 0, len(corpus.ids), left, right, crew, columns, values)
            else:
                lengths = _count_pieces(
                    corpus, piece, left, right, crew, columns, values, [file(), file(), file()]
                )
            cells = Cooccurrences(
                np.concatenate([[0], np.cumsum(lengths)]),
                memory_map(columns, np.int32),
                memory_map(values, np.float64),
            )
        if folder:
            write_atomic(place / STARTS, cells.starts.tobytes())
    except OSError as error:
        raise disk_error(error, place, "the counts") from error
    return cells


def _buffer_sizes(words: int, size: int, window: int, memory: int, threads: int) -> tuple[int, int]:
    """(words counted at a time, cells of a thread's buffer): at most two fifths for the buffers, what is left for the corpus."""
    fixed = threads * 13 * size + 64 * size + 16 * window  # scratch; heads, bounds, lengths and starts
    each, least = CELL * (threads + 1), 12 * 4000  # 12 bytes a word: its id, its place and, at worst, an edge
    if memory < fixed + each * size + least:
        raise ValueError(
            f"{memory:,} bytes of memory are too few to count {size:,} words; give at least {fixed + each * size + least:,}"
        )
    buffer = max(size, min(2_000_000, memory * 2 // 5 // each, (memory - fixed - least) // each))
    return min((memory - fixed - each * buffer) // 12, 1 << 30, max(words, 1)), buffer


def _count_pieces(
    corpus: Corpus,
    piece: int,
    left: np.ndarray,
    right: np.ndarray,
    crew: RowWriters,
    columns: BinaryIO,
    values: BinaryIO,
    parts: list[BinaryIO],
) -> np.ndarray:
    """Counts piece by piece into the files of parts, then adds the pieces up row by row."""
    cells, bounds = 0, np.zeros(crew.size, np.int64)
    for begin in range(0, len(corpus.ids), piece):
        lengths = _count(corpus, begin, min(begin + piece, len(corpus.ids)), left, right, crew, *parts[:2])
        bounds += lengths
        append(parts[2], cells + np.concatenate([[0], np.cumsum(lengths)]))
        cells += int(lengths.sum())
    old = memory_map(parts[0], np.int32), memory_map(parts[1], np.float64)
    starts = memory_map(parts[2], np.int64).reshape(-1, crew.size + 1)

    def add_up(first: int, last: int, *out: object) -> int:
        n = load_kernels("cooccurrence").merge_rows(starts[:, first : last + 1], *old, *out)
        release_pages(*old)
        return n

    return crew.write(np.minimum(bounds, crew.size), add_up, columns, values)


def _count(
    corpus: Corpus,
    begin: int,
    end: int,
    left: np.ndarray,
    right: np.ndarray,
    crew: RowWriters,
    columns: BinaryIO,
    values: BinaryIO,
) -> np.ndarray:
    """Counts the contexts of the words begin … end − 1, some of which lie before and after these."""
    low, high = max(begin - len(left), 0), min(end + len(right), len(corpus.ids))
    ids = corpus.ids[low:high]
    if len(ids) and not 0 <= ids.min() <= ids.max() < crew.size:
        raise ValueError(
            f"ids from {ids.min()} to {ids.max()} do not fit {crew.size} words; encode with the same vocabulary"
        )
    kernels = load_kernels("cooccurrence")
    first, last = np.searchsorted(corpus.starts, [low, high], "right")
    stream = np.empty(len(ids) + (last - first) + 2, np.int32)
    stream = stream[: kernels.write_stream(corpus.ids, corpus.starts, first, low, high, stream)]
    release_pages(corpus.ids)
    heads, places = np.zeros(crew.size + 1, np.int64), np.empty(end - begin, np.int32)
    kernels.inverted_index(stream, begin - low, end - begin, heads, places)
    bounds = np.minimum(np.diff(heads) * (len(left) + len(right)), crew.size)

    def rows(first: int, last: int, *out: object) -> int:
        return kernels.count_rows(stream, heads, places, left, right, first, last, *out)

    return crew.write(bounds, rows, columns, values)
