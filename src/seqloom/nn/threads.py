"""Work shared by torch's own threads, from inside compiled code: no second pool of threads ever stands beside torch's.

A job is a row of 64-bit numbers in memory: how many pieces were taken, how many there are, how many one turn takes; then whatever the work
needs. Threads take turns until nothing is left, so one that is held up by others takes fewer. Where torch's pool cannot be called (another
compiler's), one thread does it all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import numpy as np
import torch
from llvmlite import ir
from numba import cfunc, njit, types
from numba.core import cgutils, typing
from numba.extending import intrinsic

from seqloom.nn.built import compiler, kept

OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz"}, "error_model": "numpy", "boundscheck": False}
inner, compiled = njit(**OPTIONS), compiler(OPTIONS)
summed = njit(
    **{**OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}}
)  # a sum in any order is one that vectors can make
WORD = ir.IntType(64)
TAKEN, PIECES, TURN, REST = 0, 1, 2, 3  # the places of a job's numbers
SOME = 16  # rows that a thread takes at a time


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def alone(work: int, job: int, count: int, flags: int) -> None:
    """One thread that does all."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work)(job)


def pool() -> tuple[int, bool]:
    """Where the routine stands that lets torch's threads work together, and whether there is one."""
    path = Path(torch.__file__).parent / "lib" / "libgomp.so.1"
    for name in (str(path) if path.exists() else None, None):
        try:
            return ctypes.cast(ctypes.CDLL(name).GOMP_parallel, ctypes.c_void_p).value, True
        except (OSError, AttributeError):
            continue
    return ctypes.cast(alone, ctypes.c_void_p).value, False


_address, several = pool()
llvm.add_symbol("seqloom_threads", _address)
_together = types.ExternalFunction(
    "seqloom_threads", typing.signature(types.void, types.intp, types.intp, types.uint32, types.uint32)
)


@intrinsic
def directly(typing, work, job):
    """Calls the C function at the address `work` with the job's address."""

    def code(context, builder, signature, args):
        function = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [WORD]).as_pointer())
        builder.call(function, [args[1]])
        return context.get_dummy_value()

    return types.none(types.intp, types.intp), code


@inner
def share(work, job, threads):
    """Lets `threads` threads do the `work`, a C function of the job's address, at the address `work`. An array whose address stands in the job must
    be used again after this, be it for nothing: what is not used any more is freed."""
    if threads == 1:
        directly(work, job.ctypes.data)
    else:
        _together(work, job.ctypes.data, types.uint32(threads), types.uint32(0))
    job[TAKEN] = 0


def threads() -> int:
    """How many threads this caller may use."""
    return torch.get_num_threads() if several else 1


@cache
def work(kind: Callable) -> int:
    """The address of a compiled function of a job, made when first asked for."""
    with kept():
        made = cfunc(
            typing.signature(types.void, types.intp), cache=True, nopython=True, error_model="numpy"
        )(kind)
    _made.append(made)
    return made.address


_made: list = []


@intrinsic
def number(typing, job, place):
    """The job's number at a place."""

    def code(context, builder, signature, args):
        return builder.load(
            builder.inttoptr(builder.add(args[0], builder.mul(args[1], WORD(8))), WORD.as_pointer())
        )

    return types.intp(types.intp, types.intp), code


@intrinsic
def take(typing, job, amount):
    """Takes so many pieces: the first of them, which may lie beyond the last there is."""

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], WORD.as_pointer()), args[1], "acq_rel")

    return types.intp(types.intp, types.intp), code


def together(function: Callable) -> Callable:
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


@inner
def taken(ticket):
    """The number of the next part that nobody has taken."""
    return take(ticket.ctypes.data, 1)


def in_parts(function: Callable) -> Callable:
    """Calls of the compiled function(ticket, bounds, work, threads, *arguments) that do all parts between the bounds: one part with all threads
    inside it, several with a thread each."""
    routine = together(function)

    @inner
    def call(bounds, work, threads, *arguments):
        ticket, parts = np.zeros(1, np.int64), len(bounds) - 1
        routine((ticket, bounds, work, threads if parts == 1 else 1, *arguments), min(parts, threads))
        ticket[0] = 0

    return call


def by_rows(function: Callable) -> Callable:
    """Calls of the compiled function(first, last, *arguments) that do all rows, some at a time, by as many threads as find work."""

    @inner
    def some(ticket, rows, arguments):
        while True:
            first = take(ticket.ctypes.data, SOME)
            if first >= rows:
                return
            function(first, min(first + SOME, rows), *arguments)

    routine = together(some)

    @inner
    def call(rows, threads, *arguments):
        ticket = np.zeros(1, np.int64)
        routine((ticket, rows, arguments), min(threads, -(-rows // SOME)))
        ticket[0] = 0

    return call
