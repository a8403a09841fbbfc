"""Everything in `kernels/` that depends on the internals of numba, llvmlite or libtorch, checked when this
module is imported.

- the compiler: `cached_njit` and the sets of compile options, and the folder where numba keeps compiled code
  between processes;
- threads: `GOMP_parallel` of the libgomp that torch itself uses. Fallback: one thread (`run_serial`);
- BLAS: the `sgemm_` and `dgemm_` that torch is linked with, called by address. Fallback: scipy's;
- LLVM instructions that numba has no name for: a call by address, an atomic addition, a load from an
  address, a call of a compiled function in every thread.

If numba or llvmlite is missing or lacks something, the import raises ImportError, and every part uses its
plain form.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
from contextlib import contextmanager
from functools import cache
from pathlib import Path

try:
    import llvmlite.binding as llvm
    from llvmlite import ir
    from numba import cfunc, config, njit, types
    from numba.core import cgutils, typing
    from numba.extending import intrinsic
except Exception as error:
    raise ImportError(f"the compiled kernels need a working numba and llvmlite: {error}") from error

_REQUIRED = {
    "llvmlite.binding.add_symbol": (llvm, "add_symbol"),
    "numba.config.CACHE_DIR": (config, "CACHE_DIR"),
    "numba.types.ExternalFunction": (types, "ExternalFunction"),
    "numba.types.Dispatcher": (types, "Dispatcher"),
    "llvmlite.ir.IRBuilder.atomic_rmw": (ir.IRBuilder, "atomic_rmw"),
}
_missing = [name for name, (owner, attribute) in _REQUIRED.items() if not hasattr(owner, attribute)]
if _missing:
    raise ImportError(f"the compiled kernels do not support this numba: it has no {', '.join(_missing)}")

# The compiler


@cache
def cache_dir():
    """The folder of numba's cache, named by a digest of every file of this package.

    numba itself checks only the age of a function's own file, and kernels call functions of other files. Its cache is unpickled, so the folder
    is never that of a `.numba_config.yaml` in the current folder, which numba reads.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    place = os.environ.get("NUMBA_CACHE_DIR") or Path(__file__).parent / "__pycache__"
    return str(Path(place) / f"compiled-{digest[:16]}")


@contextmanager
def use_cache_dir():
    """Inside, numba stores the code of new functions in `cache_dir`."""
    before = config.CACHE_DIR
    config.CACHE_DIR = cache_dir()
    try:
        yield
    finally:
        config.CACHE_DIR = before


def uncached_njit(options):
    """A decorator that compiles with these options as part of the callers."""
    return njit(**options)


def cached_njit(options):
    """A decorator that compiles with these options and caches the code in `cache_dir`."""

    def decorate(function):
        with use_cache_dir():
            return njit(**options, cache=True)(function)

    return decorate


# The compile options of a kernel decide its bits: never merge two sets (`elementwise.py` has another).
OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz"}, "error_model": "numpy", "boundscheck": False}
njit_helper = uncached_njit(OPTIONS)
njit_entry = cached_njit(OPTIONS)
# reassociation allowed, so that LLVM vectorises a sum
njit_reassoc = uncached_njit({**OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}})

WORD = ir.IntType(64)


def c_worker(function):
    """A decorator that replaces a worker by its address: that of a C function that takes the address of a task."""
    with use_cache_dir():
        signature = typing.signature(types.void, types.intp)
        worker = cfunc(signature, cache=True, nopython=True, error_model="numpy")(function)
    _workers.append(worker)
    return worker.address


_workers: list = []  # numba frees a C function with its last reference


# Threads


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def run_serial(worker, task, num_threads, flags):
    """GOMP_parallel for one thread."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(worker)(task)


@cache
def find_gomp():
    """The address of GOMP_parallel in torch's libgomp and True, or that of `run_serial` and False. Registers
    it for compiled code.
    """
    import torch

    path = Path(torch.__file__).parent / "lib" / "libgomp.so.1"
    address, found = ctypes.cast(run_serial, ctypes.c_void_p).value, False
    for name in (str(path) if path.exists() else None, None):
        try:
            address, found = ctypes.cast(ctypes.CDLL(name).GOMP_parallel, ctypes.c_void_p).value, True
            break
        except (OSError, AttributeError):
            continue
    llvm.add_symbol("seqloom_threads", address)
    return address, found


gomp_parallel = types.ExternalFunction(
    "seqloom_threads", typing.signature(types.void, types.intp, types.intp, types.uint32, types.uint32)
)


# BLAS

_GEMM_SIGNATURE = typing.signature(types.void, *[types.intp] * 13)
# The cache of compiled code keeps these names; the address behind a name belongs to the process.
sgemm = types.ExternalFunction("seqloom_sgemm", _GEMM_SIGNATURE)
dgemm = types.ExternalFunction("seqloom_dgemm", _GEMM_SIGNATURE)


@cache
def register_blas():
    """Makes `sgemm` and `dgemm` callable from compiled code."""
    llvm.add_symbol("seqloom_sgemm", blas_address("sgemm_"))
    llvm.add_symbol("seqloom_dgemm", blas_address("dgemm_"))


def blas_address(name):
    """The address of a BLAS routine: torch's own, or scipy's where torch's build does not export it."""
    import torch

    for path in (str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"), None):
        try:
            return ctypes.cast(getattr(ctypes.CDLL(path), name), ctypes.c_void_p).value
        except (OSError, AttributeError):
            continue
    from scipy.linalg import cython_blas

    capsule = cython_blas.__pyx_capi__[name.rstrip("_")]
    get_name = ctypes.pythonapi.PyCapsule_GetName
    get_name.restype = ctypes.c_char_p
    get_name.argtypes = [ctypes.py_object]
    get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
    get_pointer.restype = ctypes.c_void_p
    get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
    return get_pointer(capsule, get_name(capsule))


# LLVM instructions


@intrinsic
def call_address(typing, worker, task):
    """Calls the C function at the address `worker` with the address of the task."""

    def code(context, builder, signature, args):
        function = builder.inttoptr(args[0], ir.FunctionType(ir.VoidType(), [WORD]).as_pointer())
        builder.call(function, [args[1]])
        return context.get_dummy_value()

    return types.none(types.intp, types.intp), code


@intrinsic
def load_arg(typing, task, index):
    """The int64 at `index` of the task."""

    def code(context, builder, signature, args):
        address = builder.add(args[0], builder.mul(args[1], WORD(8)))
        return builder.load(builder.inttoptr(address, WORD.as_pointer()))

    return types.intp(types.intp, types.intp), code


@intrinsic
def fetch_add(typing, address, amount):
    """Adds `amount` to the int64 at the address, atomically; returns the value before."""

    def code(context, builder, signature, args):
        return builder.atomic_rmw("add", builder.inttoptr(args[0], WORD.as_pointer()), args[1], "acq_rel")

    return types.intp(types.intp, types.intp), code


@intrinsic
def trailing_zeros(typing, bits):
    """The index of the lowest bit that is set."""

    def code(context, builder, signature, args):
        return builder.cttz(args[0], ir.IntType(1)(1))

    return types.uint64(types.uint64), code


def parallel_call(function):
    """A compiled routine(arguments, num_threads) in which each thread calls the compiled function with the
    same tuple of arguments.

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
