"""Rows of counts, made by several threads and written to files in order.

Memory holds one block of rows for each thread and one that is being written. Left out: processes, since the kernels run without the GIL.
"""

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
    """Threads with what each needs to make rows of `size` columns, and room for blocks of `buffer` cells."""

    def __init__(self, size: int, buffer: int, threads: int):
        self.size, self.buffer, self.threads = size, buffer, threads
        self.pool = ThreadPoolExecutor(threads)
        self.scratch: SimpleQueue[object] = SimpleQueue()
        self.room: SimpleQueue[tuple[np.ndarray, np.ndarray]] = SimpleQueue()
        for _ in range(threads):
            self.scratch.put(load_kernels("cooccurrence").make_scratch(size))
        for _ in range(threads + 1):
            self.room.put((np.empty(buffer, np.int32), np.empty(buffer, np.float64)))

    def __enter__(self) -> "RowWriters":
        return self

    def __exit__(self, *error: object) -> None:
        self.pool.shutdown(cancel_futures=True)

    def write(
        self, bounds: np.ndarray, work: Callable[..., int], columns: BinaryIO, values: BinaryIO
    ) -> np.ndarray:
        """Appends all rows of a matrix to two files; returns how many cells each row has.

        `bounds` holds the most cells each row can have; work(first, last, scratch, lengths, columns, values) makes the rows of a block.
        """
        lengths = np.zeros(len(bounds), np.int64)
        waiting: deque[Future] = deque()

        def make(first: int, last: int) -> tuple[int, np.ndarray, np.ndarray]:
            room, scratch = self.room.get(), self.scratch.get()
            n = work(first, last, scratch, lengths[first:last], *room)
            self.scratch.put(scratch)
            return n, *room

        def keep() -> None:
            n, *room = waiting.popleft().result()
            append(columns, room[0][:n])
            append(values, room[1][:n])
            self.room.put(tuple(room))

        for first, last in blocks(bounds, self.buffer):
            waiting.append(self.pool.submit(make, first, last))
            if len(waiting) > self.threads:
                keep()
        while waiting:
            keep()
        return lengths


def blocks(bounds: np.ndarray, most: int) -> Iterator[tuple[int, int]]:
    """Cuts rows into blocks (first, last + 1) whose bounds add up to `most` at most; no bound is above it."""
    ends = np.cumsum(bounds)
    first = 0
    while first < len(bounds):
        before = ends[first - 1] if first else 0
        last = int(np.searchsorted(ends, before + most, "right"))
        yield first, last
        first = last


def append(file: BinaryIO, array: np.ndarray) -> None:
    """Writes all bytes of an array to an unbuffered file: a nearly full disk takes a part first and refuses afterwards."""
    rest = memoryview(array).cast("B") if array.size else b""
    while rest:
        rest = rest[file.write(rest) :]


def memory_map(file: BinaryIO | Path, dtype: type) -> np.ndarray:
    """A file as an array; an empty one cannot be mapped."""
    size = file.stat().st_size if isinstance(file, Path) else file.seek(0, 2)
    return np.memmap(file, dtype, "r") if size else np.empty(0, dtype)


def release_pages(*arrays: np.ndarray) -> None:
    """Gives back the memory through which arrays on the disk were read; it fills again when they are."""
    for array in arrays:
        if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
            array.base.madvise(mmap.MADV_DONTNEED)
