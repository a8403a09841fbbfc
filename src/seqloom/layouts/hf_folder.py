"""A folder of the Hugging Face layout, read with suspicion: config.json as plain values, weights from safetensors alone.

Nothing in it can name code to run. Whatever is missing, damaged or crafted is a ValueError of one line. Left out: pickled weights
(pytorch_model.bin), which can hold any code, and quantised ones.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from seqloom.files import read_limited

MOST = 16 << 20  # bytes of a JSON file of settings; a real one has a few thousand
CODE_KEYS = ("auto_map", "trust_remote_code", "custom_pipelines", "custom_generate", "custom_code")
FLOATS = ("F64", "F32", "F16", "BF16")
CUT = "safetensors"


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object, not too large and not too deep, that says nothing twice."""
    try:
        text = read_limited(path, MOST)
    except OSError as error:
        raise ValueError(
            f"{path}: cannot be read ({(error.strerror or str(error)).lower()}); give a folder of the Hugging Face layout"
        ) from None
    try:
        found = json.loads(text.decode(), object_pairs_hook=_no_duplicates)
    except RecursionError:
        raise ValueError(f"{path}: nested too deep to be settings; this is not a real checkpoint") from None
    except ValueError as error:
        raise ValueError(f"{path}: not valid JSON ({str(error)[:160]}); get the file again") from None
    if not isinstance(found, dict):
        raise ValueError(
            f"{path}: a JSON object is expected, not a {type(found).__name__}; get the file again"
        )
    return found


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)[:80]!r} stands in it twice")
    return made


class HFConfig:
    """The values of a config.json, each checked when asked for."""

    def __init__(self, values: dict[str, Any], source: str):
        self.values, self.source = values, source
        for word in CODE_KEYS:
            if values.get(word):
                raise ValueError(
                    f"{source}: {word} names code of its own to run, and seqloom runs none from a checkpoint; it cannot be read"
                )
        if values.get("quantization_config"):
            raise ValueError(f"{source}: the weights are quantised; give the checkpoint in 16 or 32 bits")

    def wrong(self, name: str, wanted: str) -> ValueError:
        return ValueError(
            f"{self.source}: {name} is {str(self.values.get(name))[:80]}, where {wanted} is expected"
        )

    def called(self, other: Mapping[str, str]) -> HFConfig:
        """The settings with `other` names for some of them replaced by the usual one; both may stand there if they agree."""
        values = {name: value for name, value in self.values.items() if name not in other}
        for name, usual in other.items():
            if (value := self.values.get(name)) is not None and value != values.setdefault(usual, value):
                raise ValueError(
                    f"{self.source}: {name} is {str(value)[:40]} and {usual}, which means the same, {str(values[usual])[:40]}"
                )
        return HFConfig(values, self.source)

    def count(self, name: str, default: int | None = None, least: int = 1) -> int:
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
            raise self.wrong(name, f"a whole number of at least {least}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self.values.get(name)
        value = default if value is None else value
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1e308:
            raise self.wrong(name, "a number of at least 0")
        return float(value)

    def flag(self, name: str, default: bool) -> bool:
        value = self.values.get(name)
        value = default if value is None else value
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false")
        return value

    def word(self, name: str, default: str, among: dict[str, str]) -> str:
        """What `among` says for the word."""
        value = self.values.get(name) or default
        if not isinstance(value, str) or value not in among:
            raise self.wrong(name, f"one of {', '.join(among)}")
        return among[value]

    def only(self, name: str, allowed: Any) -> None:
        """Refuse a setting that changes the model in a way it is not built for."""
        if (value := self.values.get(name)) is not None and value != allowed:
            raise ValueError(
                f"{self.source}: {name} is {str(value)[:80]}; only {json.dumps(allowed)} can be read"
            )

    def inner(self, name: str) -> HFConfig | None:
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return HFConfig(value, f"{self.source}: {name}")

    def id(self, name: str) -> list[int]:
        """Ids of a special token: none, one or several."""
        value = self.values.get(name)
        found = [] if value is None else value if isinstance(value, list) else [value]
        if any(isinstance(one, bool) or not isinstance(one, int) or one < 0 for one in found):
            raise self.wrong(name, "a token's id")
        return found


class SafetensorsFiles:
    """The tensors of one or several safetensors files, by name: shapes at once, values when asked for."""

    def __init__(self, files: list[Path]):
        self.home: dict[str, Path] = {}
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.types: dict[str, str] = {}
        for path in files:
            if path.exists() and not path.is_file():
                raise ValueError(f"{path}: it is not a regular file; get the file again")
            try:
                with safe_open(path, "pt") as opened:
                    for name in opened.keys():  # noqa: SIM118  it is no dict
                        if name in self.home:
                            raise ValueError(
                                f"{path}: {name} stands in {self.home[name].name} too; get the whole checkpoint again"
                            )
                        part = opened.get_slice(name)
                        self.home[name], self.shapes[name], self.types[name] = (
                            path,
                            tuple(part.get_shape()),
                            part.get_dtype(),
                        )
            except (SafetensorError, OSError, MemoryError) as error:
                raise ValueError(
                    f"{path}: not a whole safetensors file ({str(error)[:120]}); get the file again"
                ) from None

    def get(self, name: str) -> Tensor | None:
        if name not in self.home:
            return None
        if self.types[name] not in FLOATS:
            raise ValueError(
                f"{self.home[name]}: {name} is stored as {self.types[name]}; give the checkpoint in 16 or 32 bits"
            )
        try:
            with safe_open(self.home[name], "pt") as opened:
                return opened.get_tensor(name)
        except (SafetensorError, OSError) as error:
            raise ValueError(
                f"{self.home[name]}: {name} cannot be read ({str(error)[:120]}); get the file again"
            ) from None


def tensors(folder: Path) -> SafetensorsFiles:
    """The weights of a folder: model.safetensors, or the files that its index names."""
    if (whole := folder / f"model.{CUT}").exists():
        return SafetensorsFiles([whole])
    index = folder / f"model.{CUT}.index.json"
    if index.exists():
        named = read_json(index).get("weight_map")
        if (
            not isinstance(named, dict)
            or not named
            or not all(isinstance(file, str) for file in named.values())
        ):
            raise ValueError(f"{index}: it has no weight_map of names to files; get the file again")
        files = sorted(set(named.values()))
        for file in files:
            if Path(file).name != file or len(file) > 255 or "\\" in file or not file.endswith(f".{CUT}"):
                raise ValueError(
                    f"{index}: {file[:80]!r} is not the name of a safetensors file beside it; nothing else is opened"
                )
            if not (folder / file).is_file():
                raise ValueError(
                    f"{folder}: {file} is missing, which its index names; get the whole checkpoint again"
                )
        found = SafetensorsFiles([folder / file for file in files])
        for name, file in named.items():
            if name not in found.home or found.home[name].name != file:
                raise ValueError(
                    f"{index}: it says that {name[:80]} is in {file}, which it is not; get the whole checkpoint again"
                )
        return found
    pickled = next(
        (
            path.name
            for path in sorted(folder.iterdir())
            if path.suffix in (".bin", ".pt", ".pth", ".ckpt", ".pkl")
        ),
        None,
    )
    if pickled:
        raise ValueError(
            f"{folder}: its weights are pickled ({pickled}), a form that can hold any code, so it is not opened; get the safetensors version"
        )
    raise ValueError(
        f"{folder}: there is no model.safetensors in it; give a folder of the Hugging Face layout"
    )
