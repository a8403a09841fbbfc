"""Everything in `kernels/` that depends on the internals of numba, llvmlite or libtorch, checked when this module is imported.

- the compiler: `cached_njit` and the sets of compile options, and the folder where numba keeps compiled code between processes;
- threads: `GOMP_parallel` of the libgomp that torch itself uses. Fallback: one thread (`run_serial`);
- BLAS: the `sgemm_` and `dgemm_` that torch is linked with, called by address. Fallback: scipy's;
- LLVM instructions that numba has no name for: a call by address, an atomic addition, a load from an address.

If numba or llvmlite is missing or lacks something, the import raises ImportError, and every part uses its plain form.
"""

from __future__ import annotations

import ctypes
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

try:
    import llvmlite.binding as llvm
    from llvmlite import ir
    from numba import cfunc, config, njit, types
    from numba.core import typing
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
def cache_dir() -> str:
    """The folder of numba's cache, named by a digest of every file of this package.

    numba itself checks only the age of a function's own file, and kernels call functions of other files.
    """
    sources = sorted(Path(__file__).parent.glob("*.py"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return str(Path(config.CACHE_DIR or Path(__file__).parent / "__pycache__") / f"compiled-{digest[:16]}")


@contextmanager
def use_cache_dir() -> Iterator[None]:
    """Inside, numba stores the code of new functions in `cache_dir`."""
    before = config.CACHE_DIR
    config.CACHE_DIR = cache_dir()
    try:
        yield
    finally:
        config.CACHE_DIR = before


def cached_njit(options: dict[str, object]) -> Callable[[Callable], Callable]:
    """A decorator that compiles with these options and caches the code in `cache_dir`."""

    def decorate(function: Callable) -> Callable:
        with use_cache_dir():
            return njit(**options, cache=True)(function)

    return decorate


# The compile options of a kernel decide its bits: never merge two sets (`elementwise.py` has another).
OPTIONS = {"nogil": True, "fastmath": {"contract", "nsz"}, "error_model": "numpy", "boundscheck": False}
njit_helper = njit(**OPTIONS)
njit_entry = cached_njit(OPTIONS)
# reassociation allowed, so that LLVM vectorises a sum
njit_reassoc = njit(**{**OPTIONS, "fastmath": {"contract", "nsz", "reassoc"}})

WORD = ir.IntType(64)


@cache
def c_address(function: Callable) -> int:
    """The address of a worker, compiled when first asked for: a C function that takes the address of a task."""
    with use_cache_dir():
        signature = typing.signature(types.void, types.intp)
        worker = cfunc(signature, cache=True, nopython=True, error_model="numpy")(function)
    _workers.append(worker)
    return worker.address


_workers: list = []  # numba frees a C function with its last reference


# Threads


@ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
def run_serial(worker: int, task: int, num_threads: int, flags: int) -> None:
    """GOMP_parallel for one thread."""
    ctypes.CFUNCTYPE(None, ctypes.c_void_p)(worker)(task)


@cache
def find_gomp() -> tuple[int, bool]:
    """The address of GOMP_parallel in torch's libgomp and True, or that of `run_serial` and False. Registers it for compiled code."""
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


def num_threads() -> int:
    """How many threads the caller may use: torch's number, or 1 without libgomp."""
    import torch

    return torch.get_num_threads() if find_gomp()[1] else 1


# BLAS

_GEMM_SIGNATURE = typing.signature(types.void, *[types.intp] * 13)
# The cache of compiled code keeps these names; the address behind a name belongs to the process.
sgemm = types.ExternalFunction("seqloom_sgemm", _GEMM_SIGNATURE)
dgemm = types.ExternalFunction("seqloom_dgemm", _GEMM_SIGNATURE)


@cache
def register_blas() -> None:
    """Makes `sgemm` and `dgemm` callable from compiled code."""
    llvm.add_symbol("seqloom_sgemm", blas_address("sgemm_"))
    llvm.add_symbol("seqloom_dgemm", blas_address("dgemm_"))


def blas_address(name: str) -> int:
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
