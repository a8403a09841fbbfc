"""What seqloom runs on: versions, the machine, extras and folders."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

from seqloom.results import Result
from seqloom.train.process import installed_version, machine_memory, processor_name

PACKAGES = ("torch", "numpy", "numba", "tokenizers", "safetensors", "scikit-learn", "sacrebleu", "cyclopts")
VARIABLES = (
    *("SEQLOOM_RUNS", "SEQLOOM_DATA", "SEQLOOM_CACHE", "SEQLOOM_THREADS", "SEQLOOM_LOG"),
    *(
        "OMP_NUM_THREADS",
        "NO_COLOR",
        "COLUMNS",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "RANK",
        "WORLD_SIZE",
        "LOCAL_RANK",
    ),
)


@dataclass(frozen=True)
class Environment(Result):
    """What a report of a bug should name. A package that is not installed has the version None; memory and cache are in bytes."""

    versions: dict[str, str | None]
    system: str
    processor: str
    cores: int
    threads: int
    memory: int
    devices: tuple[str, ...]
    extras: dict[str, bool]
    folders: dict[str, Path]
    cache_size: int
    variables: dict[str, str]


def env() -> Environment:
    """The versions, the machine, the installed extras and the folders that seqloom uses.

    >>> env().devices
    ('cpu',)
    """
    import torch

    from seqloom import __version__
    from seqloom.files import cache_folder

    cache = cache_folder()
    folders = {"runs": Path(os.environ.get("SEQLOOM_RUNS") or "runs").resolve(), "cache": cache}
    if data := os.environ.get("SEQLOOM_DATA"):
        folders["data"] = Path(data)
    versions: dict[str, str | None] = {"seqloom": __version__, "python": platform.python_version()}
    return Environment(
        versions=versions | {name: installed_version(name) for name in PACKAGES},
        system=platform.platform(),
        processor=processor_name(),
        cores=os.cpu_count() or 1,
        threads=torch.get_num_threads(),
        memory=machine_memory(),
        devices=("cpu",),
        extras=installed_extras(),
        folders=folders,
        cache_size=folder_size(cache),
        variables={name: os.environ[name] for name in VARIABLES if name in os.environ},
    )


def installed_extras() -> dict[str, bool]:
    """Whether all packages of each extra are installed; empty if seqloom itself is not an installed package."""
    try:
        requirements = requires("seqloom") or ()
    except PackageNotFoundError:
        return {}
    extras: dict[str, bool] = {}
    for requirement in requirements:  # such as: tensorboard>=2.18; extra == "tensorboard"
        found = re.match(r"""([\w.-]+).*extra == ["'](\w+)""", requirement)
        if found and found[1] != "seqloom":
            extras[found[2]] = extras.get(found[2], True) and installed_version(found[1]) is not None
    return extras


def folder_size(folder: Path) -> int:
    """The bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
