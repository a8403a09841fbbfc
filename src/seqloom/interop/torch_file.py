"""Tensors out of a torch checkpoint without unpickling it: its program is read as data, and nothing in it is ever called or imported.

A .pt file is a zip of raw numbers and one pickle, which is a program for a stack machine that may call any function of Python. Here that
program is walked by a machine that knows containers, numbers, texts and the few words that mean a tensor. At any other word it stops
and says so, and a word is all it ever is: none is looked up.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

TYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "BoolStorage": torch.bool,
}
ALLOWED_GLOBALS = {
    "collections OrderedDict",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_parameter",
}
ALLOWED_GLOBALS |= {f"torch {name}" for name in TYPES}
PLAIN = {"BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8", "BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT"}
CONSTANT = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MAX_BYTES = 64 << 20  # bytes of the program; a real one has a few hundred thousand
MARK = object()


class GlobalName(NamedTuple):
    """A name in the program, which stays a name."""

    name: str


class Storage(NamedTuple):
    """The numbers of an entry of the zip."""

    dtype: torch.dtype
    key: str
    count: int


class LazyTensor(NamedTuple):
    """A tensor that is not read yet."""

    stored: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class TorchFile:
    """What a torch checkpoint holds: `value` is its tree, in which tensors are `Lazy`; `read` gives one."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
            names = self.zip.namelist()
            program = next(name for name in names if name.count("/") == 1 and name.endswith("/data.pkl"))
            self.root = program.removesuffix("data.pkl")
            if self.zip.getinfo(program).file_size > MAX_BYTES:
                raise ValueError("its program is too long")
            if any(one.compress_type != zipfile.ZIP_STORED for one in self.zip.infolist()):
                raise ValueError("its entries are packed, which torch never does")
            if f"{self.root}byteorder" in names and self.zip.read(f"{self.root}byteorder") != b"little":
                raise ValueError("its numbers are not little-endian")
            self.value = parse_pickle(self.zip.read(program))
        except (
            OSError,
            zipfile.BadZipFile,
            StopIteration,
            RuntimeError,
            EOFError,
        ):  # encrypted, or of a method unknown
            raise ValueError(
                f"{path}: not a checkpoint of torch in its zip form; nothing else is opened, since it could run code"
            ) from None
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if type(error) is ValueError else "its program makes no sense"
            raise ValueError(
                f"{path}: cannot be read without running what it says ({reason[:160]}); give a checkpoint of plain tensors"
            ) from None

    def read(self, lazy: LazyTensor) -> Tensor:
        (dtype, key, count), last = lazy.stored, lazy.offset
        try:
            data = self.zip.read(f"{self.root}data/{key}")
        except (KeyError, OSError, zipfile.BadZipFile, RuntimeError, EOFError):
            raise ValueError(
                f"{self.path}: its numbers {key} are missing or damaged; get the file again"
            ) from None
        for size, stride in zip(lazy.size, lazy.stride, strict=True):
            last += (size - 1) * stride
        if len(data) != count * dtype.itemsize or last >= count or 0 in lazy.size:
            raise ValueError(
                f"{self.path}: its numbers {key} do not fill the tensor they are for; get the file again"
            )
        flat = torch.frombuffer(bytearray(data), dtype=dtype)
        return flat.as_strided(lazy.size, lazy.stride, lazy.offset).clone()


def parse_pickle(program: bytes) -> Any:
    """The value that a pickle program describes, of containers, numbers, texts and tensors alone."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        place = max(index for index, one in enumerate(stack) if one is MARK)
        found = stack[place + 1 :]
        del stack[place:]
        return found

    for code, argument, _ in pickletools.genops(program):
        name = code.name
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name in PLAIN:
            stack.append(argument)
        elif name in CONSTANT:
            stack.append(CONSTANT[name])
        elif name == "MARK":
            stack.append(MARK)
        elif name in ("EMPTY_DICT", "EMPTY_LIST", "EMPTY_TUPLE"):
            stack.append({"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}[name]())
        elif name in ("TUPLE1", "TUPLE2", "TUPLE3"):
            count = int(name[-1])
            stack[-count:] = [tuple(stack[-count:])]
        elif name == "TUPLE":
            stack.append(tuple(since_mark()))
        elif name == "SETITEMS":
            pairs = since_mark()
            set_items(stack[-1], pairs[::2], pairs[1::2])
        elif name == "SETITEM":
            value, key = stack.pop(), stack.pop()
            set_items(stack[-1], [key], [value])
        elif name == "APPENDS":
            items = since_mark()
            stack[-1].extend(items)
        elif name == "APPEND":
            item = stack.pop()
            stack[-1].append(item)
        elif name in ("BINPUT", "LONG_BINPUT"):
            memo[argument] = stack[-1]
        elif name == "MEMOIZE":
            memo[len(memo)] = stack[-1]
        elif name in ("BINGET", "LONG_BINGET"):
            stack.append(memo[argument])
        elif name == "GLOBAL":
            stack.append(word(argument))
        elif name == "STACK_GLOBAL":
            last, module = stack.pop(), stack.pop()
            stack.append(word(f"{module} {last}"))
        elif name == "BINPERSID":
            stack.append(stored(stack.pop()))
        elif name == "REDUCE":
            arguments, called = stack.pop(), stack.pop()
            stack.append(build(called, arguments))
        elif name == "BUILD":
            stack.pop()  # what a module remembers about its parameters
        else:
            raise ValueError(f"it uses {name}")
    raise ValueError("it does not end")


def set_items(where: Any, keys: list[Any], values: list[Any]) -> None:
    """Entries of a dict, whose keys are texts or numbers: the hash of a nest of pairs takes time without end."""
    if type(where) is not dict or not all(type(key) in (str, int) for key in keys):
        raise ValueError("it fills a dict with what has no name")
    where.update(zip(keys, values, strict=True))


def word(name: str) -> GlobalName:
    if name not in ALLOWED_GLOBALS:
        raise ValueError(f"it names {name.replace(' ', '.')}")
    return GlobalName(name)


def stored(reference: tuple) -> Storage:
    kind, dtype, key, _, count = reference
    if (
        kind != "storage"
        or not isinstance(key, str)
        or not key.isdigit()
        or not isinstance(count, int)
        or not 0 <= count < 2**40
    ):
        raise ValueError("it refers to numbers in an unknown way")
    return Storage(TYPES[dtype.name.removeprefix("torch ")], key, count)


def build(called: GlobalName, arguments: tuple) -> Any:
    name = called.name
    if name == "collections OrderedDict" and arguments == ():
        return {}
    if name == "torch._utils _rebuild_tensor_v2":
        of, offset, size, stride = arguments[:4]
        numbers = [offset, *size, *stride]
        if (
            not isinstance(of, Storage)
            or len(size) != len(stride)
            or not all(type(one) is int and 0 <= one < 2**40 for one in numbers)
        ):
            raise ValueError("a tensor in it has no sensible shape")
        return LazyTensor(of, offset, tuple(size), tuple(stride))
    if name == "torch._utils _rebuild_parameter" and isinstance(arguments[0], LazyTensor):
        return arguments[0]
    raise ValueError(f"it calls {name.replace(' ', '.')} in an unknown way")
