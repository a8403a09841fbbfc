"""Loops shared by torch's own threads, called from inside compiled code: no second thread pool beside torch's.

A task is an int64 array: the index of the next item that no thread has taken (NEXT), the number of items (NUM_ITEMS), how many items a
thread takes at a time (CHUNK), then the worker's arguments from ARGS on. A worker is a C function of the task's address (`host.c_address`);
each thread takes chunks until none are left, so a thread that is held up takes fewer. Every item is computed by the same instructions
whatever the number of threads, so the results have the same bits. Fallback: without torch's libgomp one thread does all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seqloom.kernels.host import WORD, call_address, fetch_add, find_gomp, gomp_parallel, njit_helper

find_gomp()

NEXT, NUM_ITEMS, CHUNK, ARGS = 0, 1, 2, 3  # indices in a task
ROWS_PER_CHUNK = 16  # rows that a thread takes at a time


class Workers(NamedTuple):
    """What a kernel needs to share its products among threads."""

    gemm_address: int  # of small_gemm.f32_worker
    num_threads: int


@njit_helper
def run_parallel(worker, task, num_threads):
    """Calls the C function at the address `worker` with the task in each of `num_threads` threads.

    Keep a reference to every array whose address is in `task` until this returns; numba frees an array after its last use.
    """
    if num_threads == 1:
        call_address(worker, task.ctypes.data)
    else:
        gomp_parallel(worker, task.ctypes.data, types.uint32(num_threads), types.uint32(0))
    task[NEXT] = 0


def parallel_call(function: Callable) -> Callable:
    """A compiled routine(arguments, num_threads) in which each thread calls the compiled function with the same tuple of arguments.

    One thread or many, they run the same instructions, so the results have the same bits.
    """

    @intrinsic
    def routine(typing, arguments, num_threads):
        call_type = types.Dispatcher(function).get_call_type(typing, arguments.types, {})

        def code(context, builder, signature, args):
            # the body of a thread: a C function that unpacks the arguments from the address it gets
            packed = cgutils.alloca_once_value(builder, args[0])
            body = ir.Function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [WORD]),
                builder.module.get_unique_name("seqloom_part"),
            )
            body.linkage = "internal"
            body.attributes.add("noinline")
            inside = ir.IRBuilder(body.append_basic_block())
            values = inside.load(inside.inttoptr(body.args[0], packed.type))
            result = function.get_compile_result(call_type)
            context.add_linking_libs([result.library])
            context.call_internal_no_propagate(
                inside, result.fndesc, call_type, cgutils.unpack_tuple(inside, values)
            )
            inside.ret_void()

            int32 = ir.IntType(32)
            start_type = ir.FunctionType(ir.VoidType(), [WORD, WORD, int32, int32])
            start = cgutils.get_or_insert_function(builder.module, start_type, "seqloom_threads")
            address = builder.ptrtoint(packed, WORD)
            one_thread = builder.icmp_unsigned("==", args[1], WORD(1))
            with builder.if_else(one_thread) as (serial, parallel):
                with serial:
                    builder.call(body, [address])
                with parallel:
                    count = builder.trunc(args[1], int32)
                    builder.call(start, [builder.ptrtoint(body, WORD), address, count, int32(0)])
            return context.get_dummy_value()

        return types.none(arguments, types.intp), code

    return routine


@njit_helper
def next_part(counter):
    """The index of the next part that no thread has taken."""
    return fetch_add(counter.ctypes.data, 1)


def parallel_parts(function: Callable) -> Callable:
    """A compiled call(row_bounds, workers, *arguments) of the compiled function(counter, row_bounds, workers, *arguments).

    It computes all parts between the bounds: a single part with all threads inside its products, several parts with one thread each.
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
    """A compiled call(rows, num_threads, *arguments) of the compiled function(row_begin, row_end, *arguments), in chunks of rows."""

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
