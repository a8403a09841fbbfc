"""Rows of counts, computed by several threads and written to files in order.

Memory holds one block of rows for each thread and one that is being written. Left out: processes, since the
kernels release the GIL.
"""

from __future__ import annotations

import mmap
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO

import numpy as np

from seqloom.vectors.backend import load_kernels

CELL = 12  # bytes of a column and a value


class RowWriters:
    """Threads that compute rows of `size` columns, and buffers for blocks of `max_cells` cells."""

    def __init__(self, size: int, max_cells: int, threads: int) -> None:
        self.size = size
        self.max_cells = max_cells
        self.threads = threads
        self.pool = ThreadPoolExecutor(threads)
        self.scratch: SimpleQueue[object] = SimpleQueue()
        self.buffers: SimpleQueue[tuple[np.ndarray, np.ndarray]] = SimpleQueue()
        for _ in range(threads):
            self.scratch.put(load_kernels("cooccurrence").make_scratch(size))
        for _ in range(threads + 1):
            self.buffers.put((np.empty(max_cells, np.int32), np.empty(max_cells, np.float64)))

    def __enter__(self) -> RowWriters:
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def write(
        self, bounds: np.ndarray, work: Callable[..., int], columns: BinaryIO, values: BinaryIO
    ) -> np.ndarray:
        """Appends all rows of a matrix to two files; returns the number of cells of each row.

        `bounds` holds the maximum number of cells of each row; work(first, last, scratch, lengths, columns,
        values) computes the rows of a block and returns their number of cells.
        """
        lengths = np.zeros(len(bounds), np.int64)
        pending: deque[Future[tuple[int, np.ndarray, np.ndarray]]] = deque()

        def compute(first: int, last: int) -> tuple[int, np.ndarray, np.ndarray]:
            block_columns, block_values = self.buffers.get()
            scratch = self.scratch.get()
            n = work(first, last, scratch, lengths[first:last], block_columns, block_values)
            self.scratch.put(scratch)
            return n, block_columns, block_values

        def write_next() -> None:
            n, block_columns, block_values = pending.popleft().result()
            append(columns, block_columns[:n])
            append(values, block_values[:n])
            self.buffers.put((block_columns, block_values))

        for first, last in blocks(bounds, self.max_cells):
            pending.append(self.pool.submit(compute, first, last))
            if len(pending) > self.threads:
                write_next()
        while pending:
            write_next()
        return lengths


def blocks(bounds: np.ndarray, max_cells: int) -> Iterator[tuple[int, int]]:
    """Splits rows into blocks (first, last + 1) of at most `max_cells` cells; no single row has more."""
    ends = np.cumsum(bounds)
    first = 0
    while first < len(bounds):
        before = ends[first - 1] if first else 0
        last = int(np.searchsorted(ends, before + max_cells, "right"))
        yield first, last
        first = last


def append(file: BinaryIO, array: np.ndarray) -> None:
    """Writes all bytes of an array to an unbuffered file, whose `write` may accept only some of them."""
    rest = array.data.cast("B") if array.size else memoryview(b"")
    while rest:
        rest = rest[file.write(rest) :]


def memory_map(file: BinaryIO | Path, dtype: type) -> np.ndarray:
    """A file as a read-only array; an empty file, which cannot be mapped, gives an empty array."""
    size = file.stat().st_size if isinstance(file, Path) else file.seek(0, 2)
    return np.memmap(file, dtype, "r") if size else np.empty(0, dtype)


def release_pages(*arrays: np.ndarray) -> None:
    """Releases the memory pages of memory-mapped arrays; they are read from disk again when needed."""
    for array in arrays:
        if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            array.base.madvise(mmap.MADV_DONTNEED)
