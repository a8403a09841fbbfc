"""The loops of co-occurrence counting, compiled and without the GIL.

A row of the count matrix is gathered as in Gustavson's sparse product: all occurrences of a word are visited through an inverted index,
their contexts add up in one dense row that stays in the cache, and the touched cells are read off in order of their columns. Neither a hash
table nor a sort is needed. Left out: counting the two halves of a symmetric matrix at once, which saves half the additions and loses the order.
"""

from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

BOUNDARY = -1  # stands between sentences
PREFETCH_DISTANCE = 32  # occurrences whose windows are fetched together


class Scratch(NamedTuple):
    """One thread's row in the making; between two rows all of it that matters is zero."""

    total: np.ndarray  # (V,) float64
    touched: np.ndarray  # (V + 1,) int32: columns in the order of their first touch
    groups: np.ndarray  # a bit for each column
    blocks: np.ndarray  # a bit for each element of groups
    warm: np.ndarray  # (1,) where loads end that only fetch


def make_scratch(size: int) -> Scratch:
    """The scratch of one thread for rows of `size` columns."""
    groups, blocks = np.zeros((size >> 6) + 1, np.uint64), np.zeros((size >> 12) + 1, np.uint64)
    return Scratch(np.zeros(size), np.empty(size + 1, np.int32), groups, blocks, np.zeros(1, np.int64))


@intrinsic
def trailing_zeros(context, bits):
    """The place of the lowest bit that is set: one instruction, which numba has no name for."""
    return types.uint64(types.uint64), lambda context, builder, signature, args: builder.cttz(
        args[0], ir.IntType(1)(1)
    )


@njit(nogil=True, cache=True)
def write_stream(
    ids: np.ndarray, starts: np.ndarray, first: int, begin: int, end: int, out: np.ndarray
) -> int:
    """Writes ids[begin:end] to `out`, an EDGE at both ends and before each start of a sentence; starts[first] is the first one > begin."""
    out[0], n = BOUNDARY, 1
    for i in range(begin, end):
        if first < len(starts) and starts[first] == i:
            out[n], n = BOUNDARY, n + 1
            while first < len(starts) and starts[first] == i:  # more than once where sentences are empty
                first += 1
        out[n], n = ids[i], n + 1
    out[n] = BOUNDARY
    return n + 1


@njit(nogil=True, cache=True)
def inverted_index(stream: np.ndarray, skip: int, count: int, heads: np.ndarray, places: np.ndarray) -> None:
    """places[heads[w]:heads[w + 1]] ← where word w stands in the stream, for the `count` words after the first `skip`.

    The words before and after these are context only. `heads` has V + 1 elements and comes as zeros.
    """
    begin, seen = 0, 0
    while seen < skip:
        seen += stream[begin] != BOUNDARY
        begin += 1
    end, seen = begin, 0
    while seen < count:
        if stream[end] != BOUNDARY:
            heads[stream[end] + 1] += 1
            seen += 1
        end += 1
    for word in range(1, len(heads)):
        heads[word] += heads[word - 1]
    for i in range(begin, end):
        word = stream[i]
        if word != BOUNDARY:
            places[heads[word]] = i
            heads[word] += 1
    for word in range(len(heads) - 1, 0, -1):  # each head has moved to where the next word's was
        heads[word] = heads[word - 1]
    heads[0] = 0


@njit(nogil=True, cache=True)
def add_cell(row: Scratch, n: np.uint32, column: np.uint32, value: float) -> np.uint32:
    """total[column] += value. Returns how many columns are touched now. No branch: half of the new columns would be mispredicted."""
    before = row.total[column]
    row.total[column] = before + value
    row.touched[n] = column
    return np.uint32(n + np.uint32(before == 0))


@njit(nogil=True, cache=True)
def flush_row(row: Scratch, touched: int, columns: np.ndarray, values: np.ndarray, n: int) -> int:
    """Appends the touched cells at n, by column, and leaves the row zero. Returns the new end."""
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
                columns[n], values[n] = column, row.total[column]
                row.total[column] = 0
                n += 1
    return n


@njit(nogil=True, cache=True)
def count_rows(
    stream: np.ndarray, heads: np.ndarray, places: np.ndarray, left: np.ndarray, right: np.ndarray, first: int, last: int,
    row: Scratch, lengths: np.ndarray, columns: np.ndarray, values: np.ndarray,
) -> int:  # fmt: skip
    """The rows first … last − 1 of X_wc = Σ left[d − 1] [c stands d before w] + right[d − 1] [c stands d after w], windows cut at an EDGE
    [A7, A8]. Fills `lengths` (cells of each row), `columns` and `values`; returns the number of cells."""
    n = 0
    for word in range(first, last):
        touched = np.uint32(0)
        for group in range(heads[word], heads[word + 1], PREFETCH_DISTANCE):
            near = places[group : min(group + PREFETCH_DISTANCE, heads[word + 1])]
            for place in near:  # many loads wait for memory at once here; one after another in the loop below
                row.warm[0] += (
                    stream[max(place - len(left), 0)] + stream[min(place + len(right), len(stream) - 1)]
                )
            for place in near:
                for d in range(len(left)):
                    context = stream[place - 1 - d]
                    if context == BOUNDARY:
                        break
                    touched = add_cell(row, touched, np.uint32(context), left[d])
                for d in range(len(right)):
                    context = stream[place + 1 + d]
                    if context == BOUNDARY:
                        break
                    touched = add_cell(row, touched, np.uint32(context), right[d])
        end = flush_row(row, touched, columns, values, n)
        lengths[word - first] = end - n
        n = end
    return n


@njit(nogil=True, cache=True)
def merge_rows(
    starts: np.ndarray,
    old_columns: np.ndarray,
    old_values: np.ndarray,
    row: Scratch,
    lengths: np.ndarray,
    columns: np.ndarray,
    values: np.ndarray,
) -> int:
    """The sum of several matrices, as `count` gives it: row w of matrix r is the old cells from starts[r, w] to starts[r, w + 1]."""
    n = 0
    for word in range(starts.shape[1] - 1):
        touched = np.uint32(0)
        for run in range(len(starts)):
            for k in range(starts[run, word], starts[run, word + 1]):
                touched = add_cell(row, touched, np.uint32(old_columns[k]), old_values[k])
        end = flush_row(row, touched, columns, values, n)
        lengths[word] = end - n
        n = end
    return n
