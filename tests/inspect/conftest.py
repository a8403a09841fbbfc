"""Small trained runs of every family, for inspection."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seqloom.run import Run, load

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Run]:
    """Opens a run by name, once in a module, from a copy of its folder."""
    folder = tmp_path_factory.mktemp("golden")
    opened: dict[str, Run] = {}

    def open_run(name: str) -> Run:
        if name not in opened:
            opened[name] = load(shutil.copytree(GOLDEN / name, folder / name))
        return opened[name]

    return open_run
