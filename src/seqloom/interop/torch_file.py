"""Reads the tensors of a torch checkpoint without unpickling it: nothing in the file is called or imported.

A .pt file is a zip of raw numbers and one pickle, which is a program for a stack machine that can call any
Python function. `parse_pickle` interprets that program with containers, numbers, strings and the few global
names that describe a tensor. Any other opcode or name is an error, and a name is never looked up.
"""

from __future__ import annotations

import pickletools
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.errors import DataError

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
LITERALS = {
    "BINUNICODE",
    "SHORT_BINUNICODE",
    "BINUNICODE8",
    "BININT",
    "BININT1",
    "BININT2",
    "LONG1",
    "BINFLOAT",
}
CONSTANTS = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
MAX_BYTES = 64 << 20  # of the pickle; a real one has a few hundred thousand
MARK = object()


class GlobalName(NamedTuple):
    """A global name in the pickle; it is never resolved."""

    name: str


class Storage(NamedTuple):
    """An entry of the zip that holds raw numbers."""

    dtype: torch.dtype
    key: str
    length: int


class LazyTensor(NamedTuple):
    """A tensor whose values are not read yet."""

    storage: Storage
    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


class TorchFile:
    """A torch checkpoint. `value` is its contents with `LazyTensor` for tensors; `read` reads one."""

    def __init__(self, path: Path):
        self.path = path
        try:
            self.zip = zipfile.ZipFile(path)
            names = self.zip.namelist()
            program = next(name for name in names if name.count("/") == 1 and name.endswith("/data.pkl"))
            self.root = program.removesuffix("data.pkl")
            if self.zip.getinfo(program).file_size > MAX_BYTES:
                raise DataError("its pickle is too long")
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in self.zip.infolist()):
                raise DataError("its entries are compressed, which torch never does")
            if f"{self.root}byteorder" in names and self.zip.read(f"{self.root}byteorder") != b"little":
                raise DataError("its numbers are not little-endian")
            self.value = parse_pickle(self.zip.read(program))
        # RuntimeError: encrypted, or an unknown compression method
        except (OSError, zipfile.BadZipFile, StopIteration, RuntimeError, EOFError):
            raise DataError(
                f"{path}: not a checkpoint of torch in its zip format; "
                "nothing else is opened, since it could run code"
            ) from None
        except (ValueError, IndexError, KeyError, TypeError, AttributeError) as error:
            reason = str(error) if isinstance(error, DataError) else "its pickle is malformed"
            raise DataError(
                f"{path}: cannot be read without running its pickle ({reason[:160]}); "
                "give a checkpoint of plain tensors"
            ) from None

    def read(self, lazy: LazyTensor) -> Tensor:
        """The values of a tensor."""
        dtype, key, length = lazy.storage
        try:
            data = self.zip.read(f"{self.root}data/{key}")
        except (KeyError, OSError, zipfile.BadZipFile, RuntimeError, EOFError):
            raise DataError(
                f"{self.path}: its storage {key} is missing or damaged; get the file again"
            ) from None
        last = lazy.offset
        for size, stride in zip(lazy.size, lazy.stride, strict=True):
            last += (size - 1) * stride
        if len(data) != length * dtype.itemsize or last >= length or 0 in lazy.size:
            raise DataError(f"{self.path}: its storage {key} is too small for its tensor; get the file again")
        flat = torch.frombuffer(bytearray(data), dtype=dtype)
        return flat.as_strided(lazy.size, lazy.stride, lazy.offset).clone()


def parse_pickle(program: bytes) -> Any:
    """The value that a pickle describes: containers, numbers, strings and tensors only."""
    stack: list[Any] = []
    memo: dict[int, Any] = {}

    def since_mark() -> list[Any]:
        position = max(index for index, item in enumerate(stack) if item is MARK)
        items = stack[position + 1 :]
        del stack[position:]
        return items

    argument: Any
    for opcode, argument, _ in pickletools.genops(program):
        name = opcode.name
        if name in ("PROTO", "FRAME"):
            continue
        if name == "STOP":
            return stack.pop()
        if name in LITERALS:
            stack.append(argument)
        elif name in CONSTANTS:
            stack.append(CONSTANTS[name])
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
            value = stack.pop()
            key = stack.pop()
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
            stack.append(global_name(argument))
        elif name == "STACK_GLOBAL":
            attribute = stack.pop()
            module = stack.pop()
            stack.append(global_name(f"{module} {attribute}"))
        elif name == "BINPERSID":
            stack.append(storage(stack.pop()))
        elif name == "REDUCE":
            arguments = stack.pop()
            function = stack.pop()
            stack.append(build(function, arguments))
        elif name == "BUILD":
            stack.pop()  # attributes of a parameter, which are not needed
        else:
            raise DataError(f"it uses {name}")
    raise DataError("it does not end")


def set_items(target: Any, keys: list[Any], values: list[Any]) -> None:
    """Sets entries of a dict. Keys are strings or integers: hashing nested tuples could take for ever."""
    if type(target) is not dict or not all(type(key) in (str, int) for key in keys):
        raise DataError("it has a dict with a key that is neither a string nor an integer")
    target.update(zip(keys, values, strict=True))


def global_name(name: str) -> GlobalName:
    """The name, if it is one of those that describe a tensor."""
    if name not in ALLOWED_GLOBALS:
        raise DataError(f"it names {name.replace(' ', '.')}")
    return GlobalName(name)


def storage(reference: tuple[Any, ...]) -> Storage:
    """The storage that a persistent id describes."""
    tag, dtype, key, _, length = reference
    if (
        tag != "storage"
        or not isinstance(key, str)
        or not key.isdigit()
        or not isinstance(length, int)
        or not 0 <= length < 2**40
    ):
        raise DataError("it refers to a storage in an unknown way")
    return Storage(TYPES[dtype.name.removeprefix("torch ")], key, length)


def build(function: GlobalName, arguments: tuple[Any, ...]) -> Any:
    """The value of a call to one of the allowed names."""
    name = function.name
    if name == "collections OrderedDict" and arguments == ():
        return {}
    if name == "torch._utils _rebuild_tensor_v2":
        source, offset, size, stride = arguments[:4]
        integers = [offset, *size, *stride]
        if (
            not isinstance(source, Storage)
            or len(size) != len(stride)
            or not all(type(value) is int and 0 <= value < 2**40 for value in integers)
        ):
            raise DataError("a tensor in it has an impossible shape")
        return LazyTensor(source, offset, tuple(size), tuple(stride))
    if name == "torch._utils _rebuild_parameter" and isinstance(arguments[0], LazyTensor):
        return arguments[0]
    raise DataError(f"it calls {name.replace(' ', '.')} in an unknown way")
