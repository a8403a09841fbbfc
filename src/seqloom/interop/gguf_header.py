"""The header of a GGUF file: its settings and the place of each tensor, checked against the size of the file.

Every count is compared with the bytes that are left before anything of that size is made, so that a crafted file can neither hang nor
fill the memory. Versions 2 and 3, little-endian. Tensor shapes are as in numpy: the last dimension varies fastest.
"""

from __future__ import annotations

import struct
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError

MAGIC = b"GGUF"
MAX_HEADER = 256 << 20  # bytes; that of a model with 250,000 tokens has 15 million
MAX_TENSORS = 100_000
MAX_KEYS = 10_000
MAX_DIMS = 4
STRING, ARRAY = 8, 9
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
# By number: the name of a type of tensors, and the values and bytes of one block.
TYPES = {
    0: ("F32", 1, 4),
    1: ("F16", 1, 2),
    2: ("Q4_0", 32, 18),
    3: ("Q4_1", 32, 20),
    6: ("Q5_0", 32, 22),
    7: ("Q5_1", 32, 24),
    8: ("Q8_0", 32, 34),
    10: ("Q2_K", 256, 84),
    11: ("Q3_K", 256, 110),
    12: ("Q4_K", 256, 144),
    13: ("Q5_K", 256, 176),
    14: ("Q6_K", 256, 210),
    30: ("BF16", 1, 2),
}


class TensorPlace(NamedTuple):
    """A tensor of a GGUF file: its type, its shape, and its bytes in the file."""

    type: str
    shape: tuple[int, ...]
    offset: int  # from the start of the file
    size: int


class GGUFHeader(NamedTuple):
    """The settings of a GGUF file and the places of its tensors."""

    path: Path
    values: dict[str, Any]
    tensors: dict[str, TensorPlace]

    def get(self, key: str, kind: type | tuple[type, ...], default: Any = None) -> Any:
        """The value of a key, which must be of this kind."""
        value = self.values.get(key, default)
        wrong_bool = isinstance(value, bool) and kind in (int, float, (int, float))
        if value is not None and (not isinstance(value, kind) or wrong_bool):
            raise DataError(f"{self.path}: {key} is a {type(value).__name__}; it is not a real checkpoint")
        return value

    def texts(self, key: str) -> list[str]:
        """The list of texts of a key; empty if there is none."""
        values = self.get(key, list, [])
        if not all(isinstance(value, str) for value in values):
            raise DataError(f"{self.path}: {key} is no list of texts; it is not a real checkpoint")
        return values


class HeaderReader:
    """Reads the header from its bytes, from start to end."""

    def __init__(self, path: Path):
        self.path = path
        self.file_size = path.stat().st_size
        with path.open("rb") as file:
            self.data = file.read(min(self.file_size, MAX_HEADER))
        self.position = 0

    def error(self, problem: str) -> DataError:
        return DataError(f"{self.path}: {problem}; it is damaged or no GGUF file, get it again")

    def require(self, size: int, what: str) -> None:
        """Raises unless `size` bytes are left."""
        if size > len(self.data) - self.position:
            raise self.error(f"it ends inside {what} at byte {self.position:,}")

    def number(self, code: str, what: str) -> Any:
        size = struct.calcsize(f"<{code}")
        self.require(size, what)
        (value,) = struct.unpack_from(f"<{code}", self.data, self.position)
        self.position += size
        return value

    def text(self, what: str) -> str:
        size = self.number("Q", what)
        self.require(size, what)
        raw = self.data[self.position : self.position + size]
        self.position += size
        try:
            return raw.decode()
        except UnicodeDecodeError:
            raise self.error(f"{what} at byte {self.position - size:,} is not UTF-8") from None

    def value(self, kind: int, key: str) -> Any:
        """The value of a key: a number, a text, or a list of them."""
        if kind == STRING:
            return self.text(f"the value of {key}")
        if kind in SCALARS:
            return self.number(SCALARS[kind], f"the value of {key}")
        if kind != ARRAY:
            raise self.error(f"{key} has the unknown type {kind}")
        item, count = self.number("I", key), self.number("Q", key)
        if item == STRING:
            self.require(8 * count, f"the {count:,} texts of {key}")
            return [self.text(f"the texts of {key}") for _ in range(count)]
        if item not in SCALARS:
            raise self.error(f"{key} is a list of the unknown type {item}")
        self.require(struct.calcsize(f"<{SCALARS[item]}") * count, f"the {count:,} numbers of {key}")
        values = struct.unpack_from(f"<{count}{SCALARS[item]}", self.data, self.position)
        self.position += struct.calcsize(f"<{count}{SCALARS[item]}")
        return list(values)


def read_header(path: Path) -> GGUFHeader:
    """The header of the file at `path`."""
    reader = HeaderReader(path)
    if reader.data[:4] != MAGIC:
        raise reader.error("it does not begin with GGUF")
    reader.position = 4
    version = reader.number("I", "the version")
    if version not in (2, 3):
        raise reader.error(f"version {version & 0xFFFFFFFF} of the format is not 2 or 3, little-endian")
    num_tensors, num_keys = reader.number("Q", "the counts"), reader.number("Q", "the counts")
    for count, limit, name in ((num_tensors, MAX_TENSORS, "tensors"), (num_keys, MAX_KEYS, "settings")):
        if count > limit:
            raise reader.error(f"{count:,} {name} are more than {limit:,}")
    values: dict[str, Any] = {}
    for _ in range(num_keys):
        key = reader.text("the name of a setting")
        if key in values:
            raise reader.error(f"the setting {key[:80]!r} is in it twice")
        values[key] = reader.value(reader.number("I", "the type of a setting"), key[:80])
    entries = [read_entry(reader) for _ in range(num_tensors)]
    alignment = values.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment not in (8, 16, 32, 64, 128, 256, 512, 1024, 4096):
        raise reader.error(f"general.alignment is {str(alignment)[:40]}")
    start = -(-reader.position // alignment) * alignment
    tensors: dict[str, TensorPlace] = {}
    for name, kind, shape, offset in entries:
        if name in tensors:
            raise reader.error(f"the tensor {name[:80]!r} is in it twice")
        tensors[name] = place(reader, name, kind, shape, start + offset)
    ends = sorted((tensor.offset, tensor.offset + tensor.size, name) for name, tensor in tensors.items())
    for (_, end, first), (begin, _, second) in pairwise(ends):
        if begin < end:
            raise reader.error(f"the tensors {first[:60]} and {second[:60]} overlap")
    return GGUFHeader(path, values, tensors)


def read_entry(reader: HeaderReader) -> tuple[str, int, tuple[int, ...], int]:
    """Name, type, shape and offset of the next tensor."""
    name = reader.text("the name of a tensor")
    dims = reader.number("I", f"the shape of {name[:60]}")
    if not 1 <= dims <= MAX_DIMS:
        raise reader.error(f"the tensor {name[:60]} has {dims} dimensions")
    sizes = [reader.number("Q", f"the shape of {name[:60]}") for _ in range(dims)]
    kind = reader.number("I", f"the type of {name[:60]}")
    return name, kind, tuple(reversed(sizes)), reader.number("Q", f"the place of {name[:60]}")


def place(reader: HeaderReader, name: str, kind: int, shape: tuple[int, ...], offset: int) -> TensorPlace:
    """The place of a tensor; raises if it is not inside the file."""
    if kind not in TYPES:
        known = ", ".join(type_name for type_name, _, _ in TYPES.values())
        raise DataError(f"{reader.path}: {name[:60]} has the type {kind}, which cannot be read; only {known}")
    type_name, block, block_bytes = TYPES[kind]
    if min(shape) < 1 or shape[-1] % block:
        raise reader.error(f"the shape {shape} of {name[:60]} does not fit {type_name}")
    size = prod(shape) // block * block_bytes
    if offset + size > reader.file_size:
        raise reader.error(f"it ends inside the tensor {name[:60]}")
    return TensorPlace(type_name, shape, offset, size)
