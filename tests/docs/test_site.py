"""The site builds without a warning, shows every verb, function and part, and needs no network."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import seqloom
from support.pages import ROOT

pytestmark = [pytest.mark.docs, pytest.mark.timeout(1200)]
LOADED = re.compile(
    r"""<(?:script|img|iframe|video|audio|source)[^>]*\ssrc=["']?(?:https?:)?//|<link[^>]*\shref=["']?(?:https?:)?//"""
    r"""|@import\s+["'(]|url\(["']?(?:https?:)?//"""
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "sphinx",
        "-q",
        "-W",
        "--keep-going",
        "-b",
        "html",
        str(ROOT / "docs"),
        str(out),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1100, check=False)
    assert done.returncode == 0, done.stderr
    return out


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    files = [path for path in site.rglob("*") if path.suffix in {".html", ".css"}]
    assert len(files) > 20
    assert not [str(path) for path in files if LOADED.search(path.read_text("utf-8"))]


@pytest.mark.parametrize(
    ("loads", "source"),
    [
        (True, '<script src="https://example.org/x.js">'),
        (True, '<link rel="stylesheet" href="//example.org/x.css">'),
        (True, "@import 'x.css'"),
        (True, "src: url(https://example.org/font.woff)"),
        (False, '<a href="https://example.org">'),
        (False, '<script src="_static/x.js">'),
    ],
)
def test_what_counts_as_loaded_from_elsewhere(loads: bool, source: str) -> None:
    assert bool(LOADED.search(source)) == loads


def test_every_verb_has_its_section(site: Path) -> None:
    from seqloom.cli import app

    page = (site / "commands.html").read_text("utf-8")
    verbs = [name for name, verb in app.resolved_commands().items() if verb.show and not name.startswith("-")]
    assert len(verbs) > 10
    assert not [verb for verb in verbs if f'id="seqloom-{verb}"' not in page]
    assert "sphinx [" not in page


def test_every_function_and_part_has_its_entry(site: Path) -> None:
    from seqloom import nn

    page = (site / "api.html").read_text("utf-8")
    functions = [name for name in seqloom.__all__ if type(getattr(seqloom, name)).__name__ == "function"]
    assert not [name for name in functions if f'id="seqloom.{name}"' not in page]
    parts = (site / "parts.html").read_text("utf-8")
    assert "<math" in parts
    classes = [part for name in nn.__all__ if isinstance(part := getattr(nn, name), type)]
    own = [part.__name__ for part in classes if part.__module__.startswith("seqloom.nn")]
    missing = [name for name in own if f">{name}<" not in parts]
    assert not missing
