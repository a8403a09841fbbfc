"""Co-occurrence counting: the fast form of `vectors/plain/cooccurrence.py`, called by `vectors/counts.py`; no
GIL is held.

A row of the count matrix is computed as in Gustavson's sparse product: an inverted index gives all
occurrences of a word, their contexts add up in one dense row, which stays in the cache, and the touched cells
are written in the order of their columns. Neither a hash table nor a sort is needed. Arrays: the stream of
ids int32, offsets and positions int64, weights by distance float64 (W,), columns int32, values float64.
Counting both halves of a symmetric matrix at once would save half the additions and lose the order. Fallback:
the numpy form.
"""

from typing import NamedTuple

import numpy as np

from seqloom.kernels.host import cached_njit, trailing_zeros

BOUNDARY = -1  # between sentences
PREFETCH_DISTANCE = 32  # occurrences whose windows are fetched together
njit_nogil = cached_njit({"nogil": True})


class Scratch(NamedTuple):
    """One thread's row of sums; `total`, `groups` and `blocks` are zero between two rows."""

    total: np.ndarray  # (V,) float64
    touched: np.ndarray  # (V + 1,) int32: columns in the order of their first touch
    groups: np.ndarray  # a bit for each column
    blocks: np.ndarray  # a bit for each element of groups
    warm: np.ndarray  # (1,): the sum of values that are loaded only to fetch them


def make_scratch(size: int) -> Scratch:
    """The scratch of one thread for rows of `size` columns."""
    groups = np.zeros((size >> 6) + 1, np.uint64)
    blocks = np.zeros((size >> 12) + 1, np.uint64)
    return Scratch(np.zeros(size), np.empty(size + 1, np.int32), groups, blocks, np.zeros(1, np.int64))


@njit_nogil
def write_stream(ids, starts, first, begin, end, out):
    """Writes ids[begin:end] to `out`, a BOUNDARY at both ends and before each sentence; starts[first] is the
    first start > begin.
    """
    out[0] = BOUNDARY
    n = 1
    for i in range(begin, end):
        if first < len(starts) and starts[first] == i:
            out[n] = BOUNDARY
            n += 1
            while first < len(starts) and starts[first] == i:  # several times for empty sentences
                first += 1
        out[n] = ids[i]
        n += 1
    out[n] = BOUNDARY
    return n + 1


@njit_nogil
def inverted_index(stream, skip, count, word_offsets, positions):
    """positions[word_offsets[w]:word_offsets[w + 1]] ← the positions of word w in the stream, for the `count`
    words after the first `skip`.

    The words before and after these are context only. `word_offsets` has V + 1 elements and comes as zeros.
    """
    begin = 0
    num_words = 0
    while num_words < skip:
        num_words += stream[begin] != BOUNDARY
        begin += 1
    end = begin
    num_words = 0
    while num_words < count:
        if stream[end] != BOUNDARY:
            word_offsets[stream[end] + 1] += 1
            num_words += 1
        end += 1
    for word in range(1, len(word_offsets)):
        word_offsets[word] += word_offsets[word - 1]
    for i in range(begin, end):
        word = stream[i]
        if word != BOUNDARY:
            positions[word_offsets[word]] = i
            word_offsets[word] += 1
    for word in range(len(word_offsets) - 1, 0, -1):  # each offset has advanced to the next word's
        word_offsets[word] = word_offsets[word - 1]
    word_offsets[0] = 0


@njit_nogil
def add_cell(row, n, column, value):
    """total[column] += value; returns the new number of touched columns. Without a branch, which would be
    mispredicted for half of them.
    """
    before = row.total[column]
    row.total[column] = before + value
    row.touched[n] = column
    return np.uint32(n + np.uint32(before == 0))


@njit_nogil
def flush_row(row, touched, columns, values, n):
    """Writes the touched cells from n on, by column, and sets the row to zero; returns the new end."""
    for i in range(touched):
        column = np.uint64(row.touched[i])
        group = column >> np.uint64(6)
        row.groups[group] |= np.uint64(1) << (column & np.uint64(63))
        row.blocks[group >> np.uint64(6)] |= np.uint64(1) << (group & np.uint64(63))
    for block in range(len(row.blocks)):
        upper = row.blocks[block]
        row.blocks[block] = 0
        while upper:
            group = (np.uint64(block) << np.uint64(6)) + trailing_zeros(upper)
            upper &= upper - np.uint64(1)
            lower = row.groups[group]
            row.groups[group] = 0
            while lower:
                column = (group << np.uint64(6)) + trailing_zeros(lower)
                lower &= lower - np.uint64(1)
                columns[n] = column
                values[n] = row.total[column]
                row.total[column] = 0
                n += 1
    return n


@njit_nogil
def count_rows(stream, word_offsets, positions, left, right, first, last, row, lengths, columns, values):
    """Rows first … last − 1 of X_wc = Σ left[d − 1] [c is d before w] + right[d − 1] [c is d after w],
    windows cut at a BOUNDARY [A7, A8].

    Fills `lengths` (cells of each row), `columns` and `values`; returns the number of cells.
    """
    n = 0
    for word in range(first, last):
        touched = np.uint32(0)
        for group in range(word_offsets[word], word_offsets[word + 1], PREFETCH_DISTANCE):
            batch = positions[group : min(group + PREFETCH_DISTANCE, word_offsets[word + 1])]
            # here many loads wait for memory at once, in the loop below one after another
            for position in batch:
                low = max(position - len(left), 0)
                high = min(position + len(right), len(stream) - 1)
                row.warm[0] += stream[low] + stream[high]
            for position in batch:
                for d in range(len(left)):
                    context = stream[position - 1 - d]
                    if context == BOUNDARY:
                        break
                    touched = add_cell(row, touched, np.uint32(context), left[d])
                for d in range(len(right)):
                    context = stream[position + 1 + d]
                    if context == BOUNDARY:
                        break
                    touched = add_cell(row, touched, np.uint32(context), right[d])
        end = flush_row(row, touched, columns, values, n)
        lengths[word - first] = end - n
        n = end
    return n


@njit_nogil
def merge_rows(starts, old_columns, old_values, row, lengths, columns, values):
    """The sum of several matrices of `count_rows`: row w of matrix r has the old cells from starts[r, w] to
    starts[r, w + 1].
    """
    n = 0
    for word in range(starts.shape[1] - 1):
        touched = np.uint32(0)
        for matrix in range(len(starts)):
            for k in range(starts[matrix, word], starts[matrix, word + 1]):
                touched = add_cell(row, touched, np.uint32(old_columns[k]), old_values[k])
        end = flush_row(row, touched, columns, values, n)
        lengths[word] = end - n
        n = end
    return n
