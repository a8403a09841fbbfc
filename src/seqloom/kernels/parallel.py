"""Loops shared by torch's own threads, called from inside compiled code: no second thread pool beside
torch's.

A task is an int64 array: the index of the next item that no thread has taken (NEXT), the number of items
(NUM_ITEMS), how many items a thread takes at a time (CHUNK), then the worker's arguments from ARGS on. A
worker is a C function of the task's address (`host.c_worker`); each thread takes chunks until none are left,
so a thread that is held up takes fewer. Every item is computed by the same instructions whatever the number
of threads, so the results have the same bits. Fallback: without torch's libgomp one thread does all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numba import types

from seqloom.kernels.host import call_address, fetch_add, find_gomp, gomp_parallel, njit_helper, parallel_call

HAS_GOMP: bool = find_gomp()[1]

NEXT, NUM_ITEMS, CHUNK, ARGS = 0, 1, 2, 3  # indices in a task
ROWS_PER_CHUNK = 16  # rows that a thread takes at a time


class Workers(NamedTuple):
    """What a kernel needs to share its products among threads."""

    gemm_address: int  # of small_gemm.f32_worker
    num_threads: int


@njit_helper
def run_parallel(worker, task, num_threads):
    """Calls the C function at the address `worker` with the task in each of `num_threads` threads.

    Keep a reference to every array whose address is in `task` until this returns; numba frees an array after
    its last use.
    """
    if num_threads == 1:
        call_address(worker, task.ctypes.data)
    else:
        gomp_parallel(worker, task.ctypes.data, types.uint32(num_threads), types.uint32(0))
    task[NEXT] = 0


@njit_helper
def next_part(counter):
    """The index of the next part that no thread has taken."""
    return fetch_add(counter.ctypes.data, 1)


def parallel_parts(function: Callable) -> Callable:
    """A compiled call(row_bounds, workers, *arguments) of the compiled function(counter, row_bounds, workers,
    *arguments).

    It computes all parts between the bounds: a single part with all threads inside its products, several
    parts with one thread each.
    """
    routine = parallel_call(function)

    @njit_helper
    def call(row_bounds, workers, *arguments):
        counter = np.zeros(1, np.int64)
        parts = len(row_bounds) - 1
        inner = Workers(workers.gemm_address, workers.num_threads if parts == 1 else 1)
        routine((counter, row_bounds, inner, *arguments), min(parts, workers.num_threads))
        counter[0] = 0  # keeps the array until here

    return call


def parallel_rows(function: Callable) -> Callable:
    """A compiled call(rows, num_threads, *arguments) of the compiled function(row_begin, row_end,
    *arguments), in chunks of rows.
    """

    @njit_helper
    def take_chunks(counter, rows, arguments):
        while True:
            row_begin = fetch_add(counter.ctypes.data, ROWS_PER_CHUNK)
            if row_begin >= rows:
                return
            function(row_begin, min(row_begin + ROWS_PER_CHUNK, rows), *arguments)

    routine = parallel_call(take_chunks)

    @njit_helper
    def call(rows, num_threads, *arguments):
        counter = np.zeros(1, np.int64)
        routine((counter, rows, arguments), min(num_threads, -(-rows // ROWS_PER_CHUNK)))
        counter[0] = 0  # keeps the array until here

    return call
