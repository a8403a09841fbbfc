"""The pages name only what exists: imports in their Python examples, links, files of the project."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").glob("*.md"))]
SOURCE = ROOT / "src" / "seqloom"


def exists(module: str, name: str | None = None) -> bool:
    """Whether a module, or a name in it, which may be a module too, can be imported."""
    try:
        imported = importlib.import_module(module)
    except ImportError:
        return False
    return name is None or hasattr(imported, name) or exists(f"{module}.{name}")


def missing_imports(page: str) -> list[str]:
    """The imports from seqloom in Python examples that do not work."""
    missing = []
    for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            module = node.module or "" if isinstance(node, ast.ImportFrom) else ""
            if not isinstance(node, ast.ImportFrom) or not module.startswith("seqloom"):
                continue
            if not exists(module):
                missing.append(module)
                continue
            missing += [f"{module}.{alias.name}" for alias in node.names if not exists(module, alias.name)]
    return missing


def missing_files(page: str, folder: Path) -> list[str]:
    """Links and files in backticks that do not exist. A path is relative to the project or to src/seqloom."""
    links = [target for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page)]
    missing = [target for target in links if not (folder / target).exists()]
    for path in re.findall(r"`((?:[a-z_0-9]+/)+[a-z_0-9]+\.(?:py|yaml|md))(?:::\w+)?`", page):
        if not any((base / path).exists() for base in (ROOT, SOURCE)):
            missing.append(path)
    return missing


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_imports_in_examples_work(path: Path) -> None:
    text = path.read_text("utf-8")
    if path.name == "CONTRIBUTING.md":
        text = text.replace(
            "from seqloom.fused.leaky import leaky_recurrence\n", ""
        )  # a module of the page itself
    assert not missing_imports(text)


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_files_and_links_exist(path: Path) -> None:
    assert not missing_files(path.read_text("utf-8"), path.parent)


def test_a_missing_name_is_found() -> None:
    page = "```python\nfrom seqloom.nn import LSTM, Nothing\nfrom seqloom.nowhere import x\n```"
    assert missing_imports(page) == ["seqloom.nn.Nothing", "seqloom.nowhere"]
    assert missing_files("[a](nowhere.md) `nn/nowhere.py` `nn/cells.py`", ROOT / "docs") == [
        "nowhere.md",
        "nn/nowhere.py",
    ]
