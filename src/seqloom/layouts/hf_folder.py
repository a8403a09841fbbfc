"""Reads untrusted folders of the Hugging Face layout: config.json as plain values, safetensors only.

No file in the folder can cause code to run. A missing, damaged or crafted file raises a ValueError of one
line. Left out: pickled weights (pytorch_model.bin), which can hold any code, and quantised weights.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqloom.errors import DataError
from seqloom.files import read_limited

MAX_JSON_BYTES = 16 << 20  # a real config.json has a few thousand
CODE_KEYS = ("auto_map", "trust_remote_code", "custom_pipelines", "custom_generate", "custom_code")
FLOATS = ("F64", "F32", "F16", "BF16")
SUFFIX = "safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object of limited size and depth, without duplicate keys."""
    try:
        text = read_limited(path, MAX_JSON_BYTES)
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({(error.strerror or str(error)).lower()}); "
            "give a folder of the Hugging Face layout"
        ) from None
    try:
        values = json.loads(text.decode(), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise DataError(f"{path}: nested too deep to be settings; this is not a real checkpoint") from None
    except ValueError as error:
        raise DataError(f"{path}: not valid JSON ({str(error)[:160]}); get the file again") from None
    if not isinstance(values, dict):
        raise DataError(
            f"{path}: a JSON object is expected, not a {type(values).__name__}; get the file again"
        )
    return values


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{duplicate[:80]!r} is in it twice")
    return values


class HFConfig:
    """The values of a config.json, each checked when it is read."""

    def __init__(self, values: dict[str, Any], source: str):
        self.values = values
        self.source = source
        for key in CODE_KEYS:
            if values.get(key):
                raise DataError(
                    f"{source}: {key} names code to run, and seqloom runs no code from a checkpoint; "
                    "it cannot be read"
                )
        if values.get("quantization_config"):
            raise DataError(f"{source}: the weights are quantised; give the checkpoint in 16 or 32 bits")

    def error(self, name: str, expected: str) -> DataError:
        return DataError(
            f"{self.source}: {name} is {str(self.values.get(name))[:80]}, where {expected} is expected"
        )

    def with_aliases(self, aliases: Mapping[str, str]) -> HFConfig:
        """The config with alternative keys replaced by the usual ones; both may be given if they agree."""
        values = {name: value for name, value in self.values.items() if name not in aliases}
        for name, usual in aliases.items():
            if (value := self.values.get(name)) is not None and value != values.setdefault(usual, value):
                raise DataError(
                    f"{self.source}: {name} is {str(value)[:40]}, but {usual}, which means the same, "
                    f"is {str(values[usual])[:40]}"
                )
        return HFConfig(values, self.source)

    def count(self, name: str, default: int | None = None) -> int:
        """A positive integer."""
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value < 2**31:
            raise self.error(name, "a whole number of at least 1")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e308:
            raise self.error(name, "a number of at least 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.error(name, "true or false")
        return value

    def choice(self, name: str, default: str, choices: Mapping[str, str]) -> str:
        """The entry of `choices` for the value."""
        value = self.values.get(name) or default
        if not isinstance(value, str) or value not in choices:
            raise self.error(name, f"one of {', '.join(choices)}")
        return choices[value]

    def require_value(self, name: str, allowed: Any) -> None:
        """Rejects a value that changes the model in a way that our parts do not implement."""
        if (value := self.values.get(name)) is not None and value != allowed:
            raise DataError(
                f"{self.source}: {name} is {str(value)[:80]}; only {json.dumps(allowed)} can be read"
            )

    def section(self, name: str) -> HFConfig | None:
        """A nested object."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.error(name, "an object")
        return HFConfig(value, f"{self.source}: {name}")

    def id(self, name: str) -> list[int]:
        """Ids of a special token: none, one or several."""
        value = self.values.get(name)
        if value is None:
            return []
        ids = value if isinstance(value, list) else [value]
        if any(isinstance(index, bool) or not isinstance(index, int) or index < 0 for index in ids):
            raise self.error(name, "a token's id")
        return ids


class SafetensorsFiles:
    """The tensors of one or several safetensors files by name. Shapes are read at once, values in `get`."""

    def __init__(self, files: list[Path]):
        self.file_of: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, str] = {}
        for path in files:
            if path.exists() and not path.is_file():
                raise DataError(f"{path}: it is not a regular file; get the file again")
            try:
                with safe_open(path, "pt") as opened:
                    for name in opened.keys():  # noqa: SIM118  safe_open is not a dict
                        if name in self.file_of:
                            raise DataError(
                                f"{path}: {name} is in {self.file_of[name].name} too; "
                                "get the whole checkpoint again"
                            )
                        header = opened.get_slice(name)
                        self.file_of[name] = path
                        self.shapes[name] = tuple(header.get_shape())
                        self.types[name] = header.get_dtype()
            except (SafetensorError, OSError, MemoryError) as error:
                raise DataError(
                    f"{path}: not an intact safetensors file ({str(error)[:120]}); get the file again"
                ) from None

    def get(self, name: str) -> Tensor:
        """The tensor of that name."""
        path = self.file_of[name]
        if self.types[name] not in FLOATS:
            raise DataError(
                f"{path}: {name} is stored as {self.types[name]}; give the checkpoint in 16 or 32 bits"
            )
        try:
            with safe_open(path, "pt") as opened:
                return opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise DataError(
                f"{path}: {name} cannot be read ({str(error)[:120]}); get the file again"
            ) from None


def tensors(folder: Path) -> SafetensorsFiles:
    """The weights of a folder: model.safetensors, or the files that its index names."""
    single = folder / f"model.{SUFFIX}"
    if single.exists():
        return SafetensorsFiles([single])
    index = folder / f"model.{SUFFIX}.index.json"
    if index.exists():
        return _indexed_tensors(folder, index)
    pickle_suffixes = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
    pickled = [path.name for path in sorted(folder.iterdir()) if path.suffix in pickle_suffixes]
    if pickled:
        raise DataError(
            f"{folder}: its weights are pickled ({pickled[0]}), a format that can hold any code, "
            "so it is not opened; get the safetensors version"
        )
    raise DataError(
        f"{folder}: there is no model.safetensors in it; give a folder of the Hugging Face layout"
    )


def _indexed_tensors(folder: Path, index: Path) -> SafetensorsFiles:
    """The weights in the files that an index names; only safetensors files beside the index are opened."""
    weight_map = read_json(index).get("weight_map")
    if (
        not isinstance(weight_map, dict)
        or not weight_map
        or not all(isinstance(file, str) for file in weight_map.values())
    ):
        raise DataError(f"{index}: it has no weight_map of names to files; get the file again")
    files = sorted(set(weight_map.values()))
    for file in files:
        if Path(file).name != file or len(file) > 255 or "\\" in file or not file.endswith(f".{SUFFIX}"):
            raise DataError(
                f"{index}: {file[:80]!r} is not the name of a safetensors file beside it; "
                "nothing else is opened"
            )
        if not (folder / file).is_file():
            raise DataError(
                f"{folder}: {file} is missing, which its index names; get the whole checkpoint again"
            )
    tensors = SafetensorsFiles([folder / file for file in files])
    for name, file in weight_map.items():
        if name not in tensors.file_of or tensors.file_of[name].name != file:
            raise DataError(
                f"{index}: it says that {name[:80]} is in {file}, but it is not there; "
                "get the whole checkpoint again"
            )
    return tensors
