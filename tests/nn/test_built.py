"""Compiled code is kept by what it comes from."""

from __future__ import annotations

import re
from pathlib import Path

import seqloom.nn
from seqloom.nn import built

ROOM = Path(seqloom.nn.__file__).parent


def test_every_file_that_is_compiled_counts():
    """A file left out could change and its callers run on with the old code."""
    compiled = {
        path.stem
        for path in ROOM.glob("*.py")
        if re.search(r"^from numba|^import numba", path.read_text("utf-8"), re.M)
    }
    compiled |= {
        path.stem
        for path in ROOM.glob("*.py")
        if re.search(r"^from seqloom.nn.(kernels|threads) import", path.read_text("utf-8"), re.M)
    }
    assert set(built.FILES) == compiled - {"built"}


def test_another_content_is_another_place(tmp_path, monkeypatch):
    now = Path(built.folder()).name
    for name in built.FILES:
        (tmp_path / f"{name}.py").write_bytes((ROOM / f"{name}.py").read_bytes())
    monkeypatch.setattr(built, "__file__", str(tmp_path / "built.py"))
    same = Path(built.folder.__wrapped__()).name
    with (tmp_path / "kernels.py").open("a") as file:
        file.write("# changed")
    assert Path(built.folder.__wrapped__()).name != same == now
