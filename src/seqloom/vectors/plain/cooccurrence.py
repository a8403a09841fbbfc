"""The loops of co-occurrence counting in numpy.

The plain form of `kernels/cooccurrence.py`. Weights are added in the same order as there, so the counts have
the same bits.
"""

from __future__ import annotations

import numpy as np

BOUNDARY = -1  # separates sentences


def make_scratch(size: int) -> None:
    """This form needs no scratch."""


def write_stream(
    ids: np.ndarray, starts: np.ndarray, first: int, begin: int, end: int, out: np.ndarray
) -> int:
    """Writes ids[begin:end] to `out`, with a BOUNDARY around each sentence; returns the length.

    starts[first] is the first start > begin.
    """
    inner = starts[first : np.searchsorted(starts, end)]
    inner = np.unique(inner)  # empty sentences repeat their start
    stream = np.insert(ids[begin:end], inner - begin, BOUNDARY)
    out[0] = BOUNDARY
    out[1 : 1 + len(stream)] = stream
    out[1 + len(stream)] = BOUNDARY
    return len(stream) + 2


def inverted_index(
    stream: np.ndarray, skip: int, count: int, offsets: np.ndarray, positions: np.ndarray
) -> None:
    """positions[offsets[w] : offsets[w + 1]] ← where word w is in the stream.

    Indexes the `count` words after the first `skip`.

    The words before and after these are context only. `offsets` has V + 1 elements.
    """
    counted = np.flatnonzero(stream != BOUNDARY)[skip : skip + count]
    words = stream[counted]
    offsets[0] = 0
    offsets[1:] = np.cumsum(np.bincount(words, minlength=len(offsets) - 1))
    positions[: len(counted)] = counted[np.argsort(words, kind="stable")]


def count_rows(
    stream: np.ndarray,
    offsets: np.ndarray,
    positions: np.ndarray,
    left: np.ndarray,
    right: np.ndarray,
    first: int,
    last: int,
    scratch: None,
    lengths: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
) -> int:
    """Rows first … last − 1 of X [A7, A8].

    X_wc = Σ left[d − 1] [c is d before w] + right[d − 1] [c is d after w]

    Windows end at a BOUNDARY. Fills `lengths` (cells of each row), `columns` and `values`; returns the number
    of cells.
    """
    distances = np.concatenate([-np.arange(1, len(left) + 1), np.arange(1, len(right) + 1)])
    weights = np.concatenate([left, right])
    n = 0
    for word in range(first, last):
        centers = positions[offsets[word] : offsets[word + 1]].astype(np.int64)
        contexts = stream[np.clip(centers[:, None] + distances, 0, len(stream) - 1)]
        inside = contexts != BOUNDARY
        for side in (slice(0, len(left)), slice(len(left), None)):  # nothing counts beyond the first boundary
            inside[:, side] = np.logical_and.accumulate(inside[:, side], axis=1)
        found = contexts[inside]
        added = np.broadcast_to(weights, contexts.shape)[inside]
        end = _write_row(found, added, columns, values, n)
        lengths[word - first] = end - n
        n = end
    return n


def merge_rows(
    starts: np.ndarray,
    old_columns: np.ndarray,
    old_values: np.ndarray,
    scratch: None,
    lengths: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
) -> int:
    """The sum of several matrices, in the form of `count_rows`.

    Row w of matrix r is the old cells from starts[r, w] to starts[r, w + 1].
    """
    n = 0
    for word in range(starts.shape[1] - 1):
        cells = np.concatenate([np.arange(run[word], run[word + 1]) for run in starts])
        end = _write_row(old_columns[cells], old_values[cells], columns, values, n)
        lengths[word] = end - n
        n = end
    return n


def _write_row(found: np.ndarray, added: np.ndarray, columns: np.ndarray, values: np.ndarray, n: int) -> int:
    """Sums `added` by column, in order, and appends the cells at n; returns the new end."""
    distinct, index = np.unique(found, return_inverse=True)
    end = n + len(distinct)
    columns[n:end] = distinct
    values[n:end] = np.bincount(index, weights=added, minlength=len(distinct))
    return end
