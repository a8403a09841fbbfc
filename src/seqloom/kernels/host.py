"""Compiled code, and where it is kept between processes."""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import llvmlite.binding as llvm
import torch
from llvmlite import ir
from numba import cfunc, config, njit, types
from numba.core import typing
from numba.extending import intrinsic


@cache
def cache_dir() -> str:
    """The folder of numba's cache. Its name is a digest of every file of this package: numba itself looks only at the age of a function's own
    file, and kernels call functions of other files."""
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return str(Path(config.CACHE_DIR or Path(__file__).parent / "__pycache__") / f"compiled-{digest[:16]}")


@contextmanager
def use_cache_dir() -> Iterator[None]:
    """Inside, what numba compiles is kept there."""
    before, config.CACHE_DIR = config.CACHE_DIR, cache_dir()
    try:
        yield
    finally:
        config.CACHE_DIR = before


def cached_njit(options: dict[str, object]) -> Callable[[Callable], Callable]:
    """What compiles a function with these options and keeps it."""

    def compiled(function: Callable) -> Callable:
        with use_cache_dir():
            return njit(**options, cache=True)(function)

    return compiled


OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz"}, "error_model": "numpy", "boundscheck": False}
njit_helper, njit_entry = njit(**OPTIONS), cached_njit(OPTIONS)
njit_reassoc = njit(
    **{**OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}}
)  # a sum in any order is one that vectors can make
WORD = ir.IntType(64)


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def run_serial(work: int, job: int, count: int, flags: int) -> None:
    """One thread that does all."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(work)(job)


def find_gomp() -> tuple[int, bool]:
    """Where the routine stands that lets torch's threads work together, and whether there is one."""
    path = Path(torch.__file__).parent / "lib" / "libgomp.so.1"
    for name in (str(path) if path.exists() else None, None):
        try:
            return ctypes.cast(ctypes.CDLL(name).GOMP_parallel, ctypes.c_void_p).value, True
        except (OSError, AttributeError):
            continue
    return ctypes.cast(run_serial, ctypes.c_void_p).value, False


_address, HAVE_GOMP = find_gomp()
llvm.add_symbol("seqloom_threads", _address)
_gomp_parallel = types.ExternalFunction(
    "seqloom_threads", typing.signature(types.void, types.intp, types.intp, types.uint32, types.uint32)
)


@intrinsic
def call_address(typing, work, job):
    """Calls the C function at the address `work` with the job's address."""

    def code(context, builder, signature, args):
        function = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [WORD]).as_pointer())
        builder.call(function, [args[1]])
        return context.get_dummy_value()

    return types.none(types.intp, types.intp), code


def num_threads() -> int:
    """How many threads this caller may use."""
    return torch.get_num_threads() if HAVE_GOMP else 1


@cache
def c_address(kind: Callable) -> int:
    """The address of a compiled function of a job, made when first asked for."""
    with use_cache_dir():
        made = cfunc(
            typing.signature(types.void, types.intp), cache=True, nopython=True, error_model="numpy"
        )(kind)
    _made.append(made)
    return made.address


_made: list = []


@intrinsic
def load_arg(typing, job, place):
    """The job's number at a place."""

    def code(context, builder, signature, args):
        return builder.load(
            builder.inttoptr(builder.add(args[0], builder.mul(args[1], WORD(8))), WORD.as_pointer())
        )

    return types.intp(types.intp, types.intp), code


@intrinsic
def fetch_add(typing, job, amount):
    """Takes so many pieces: the first of them, which may lie beyond the last there is."""

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], WORD.as_pointer()), args[1], "acq_rel")

    return types.intp(types.intp, types.intp), code
