"""Work shared by torch's own threads, from inside compiled code: no second pool of threads ever stands beside torch's.

A job is a row of 64-bit numbers in memory: how many pieces were taken, how many there are, how many one turn takes; then whatever the work
needs. Threads take turns until nothing is left, so one that is held up by others takes fewer. Where torch's pool cannot be called (another
compiler's), one thread does it all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seqloom.kernels.host import (
    WORD,
    _gomp_parallel,
    call_address,
    fetch_add,
    njit_helper,
)

NEXT, NUM_TASKS, CHUNK, ARGS = 0, 1, 2, 3  # the places of a job's numbers
ROWS_PER_CHUNK = 16  # rows that a thread takes at a time


@njit_helper
def run_parallel(work, job, threads):
    """Lets `threads` threads do the `work`, a C function of the job's address, at the address `work`. An array whose address stands in the job must
    be used again after this, be it for nothing: what is not used any more is freed."""
    if threads == 1:
        call_address(work, job.ctypes.data)
    else:
        _gomp_parallel(work, job.ctypes.data, types.uint32(threads), types.uint32(0))
    job[NEXT] = 0


def parallel_call(function: Callable) -> Callable:
    """The routine that lets so many threads each call the compiled function with the same arguments, a tuple. One thread or many, they run the
    same instructions, so that results are the same bits."""

    @intrinsic
    def routine(typing, arguments, threads):
        called = types.Dispatcher(function).get_call_type(typing, arguments.types, {})

        def code(context, builder, signature, args):
            place = cgutils.alloca_once_value(builder, args[0])
            body = ir.Function(
                builder.module,
                ir.FunctionType(ir.VoidType(), [WORD]),
                builder.module.get_unique_name("seqloom_part"),
            )
            body.linkage = "internal"
            body.attributes.add("noinline")
            inside = ir.IRBuilder(body.append_basic_block())
            packed = inside.load(inside.inttoptr(body.args[0], place.type))
            found = function.get_compile_result(called)
            context.add_linking_libs([found.library])
            context.call_internal_no_propagate(
                inside, found.fndesc, called, cgutils.unpack_tuple(inside, packed)
            )
            inside.ret_void()
            kind = ir.FunctionType(ir.VoidType(), [WORD, WORD, ir.IntType(32), ir.IntType(32)])
            start, packed = (
                cgutils.get_or_insert_function(builder.module, kind, "seqloom_threads"),
                builder.ptrtoint(place, WORD),
            )
            with builder.if_else(builder.icmp_unsigned("==", args[1], WORD(1))) as (alone, several):
                with alone:
                    builder.call(body, [packed])
                with several:
                    builder.call(
                        start,
                        [
                            builder.ptrtoint(body, WORD),
                            packed,
                            builder.trunc(args[1], ir.IntType(32)),
                            ir.IntType(32)(0),
                        ],
                    )
            return context.get_dummy_value()

        return types.none(arguments, types.intp), code

    return routine


@njit_helper
def next_part(ticket):
    """The number of the next part that nobody has taken."""
    return fetch_add(ticket.ctypes.data, 1)


def parallel_parts(function: Callable) -> Callable:
    """Calls of the compiled function(ticket, bounds, work, threads, *arguments) that do all parts between the bounds: one part with all threads
    inside it, several with a thread each."""
    routine = parallel_call(function)

    @njit_helper
    def call(bounds, work, threads, *arguments):
        ticket, parts = np.zeros(1, np.int64), len(bounds) - 1
        routine((ticket, bounds, work, threads if parts == 1 else 1, *arguments), min(parts, threads))
        ticket[0] = 0

    return call


def parallel_rows(function: Callable) -> Callable:
    """Calls of the compiled function(first, last, *arguments) that do all rows, some at a time, by as many threads as find work."""

    @njit_helper
    def some(ticket, rows, arguments):
        while True:
            first = fetch_add(ticket.ctypes.data, ROWS_PER_CHUNK)
            if first >= rows:
                return
            function(first, min(first + ROWS_PER_CHUNK, rows), *arguments)

    routine = parallel_call(some)

    @njit_helper
    def call(rows, threads, *arguments):
        ticket = np.zeros(1, np.int64)
        routine((ticket, rows, arguments), min(threads, -(-rows // ROWS_PER_CHUNK)))
        ticket[0] = 0

    return call
