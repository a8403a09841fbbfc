"""The house keeps its plan: imports run one way, files stay small, parts take plain options."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "seqloom"
FOUNDATION = {"data", "files", "generate", "measure", "models", "nn", "objectives", "text"}
MAY_IMPORT = {
    "config": set(),
    "files": set(),
    "nn": set(),
    "measure": set(),
    "world": {"files"},
    "text": {"files"},
    "data": {"text"},
    "models": {"nn"},
    "objectives": {"nn", "data"},
    "generate": {"nn"},
    "run": FOUNDATION | {"config"},
    "evaluate": FOUNDATION | {"run"},
    "train": FOUNDATION | {"config", "run", "evaluate"},
    "explain": FOUNDATION | {"config", "run"},
    "check": FOUNDATION | {"run", "train"},
    "demo": FOUNDATION | {"run", "train", "evaluate", "world"},
    "__init__": FOUNDATION | {"run", "train", "evaluate"},
    "__main__": {"cli"},
    "cli": None,  # anything
}
FILES = sorted(SOURCE.rglob("*.py"))


def room(path: Path) -> str:
    parts = path.relative_to(SOURCE).parts
    return parts[0].removesuffix(".py")


def imported(path: Path, source: Path = SOURCE) -> set[str]:
    """The rooms that a file imports from, relative imports included."""
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names = [f"{node.module}.{alias.name}" if node.module == "seqloom" else str(node.module) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and len(path.relative_to(source).parts) - node.level < 0:
            raise AssertionError(f"{path} imports from above the package")
        else:
            continue
        rooms |= {name.split(".")[1] for name in names if name.startswith("seqloom.")}
    return rooms


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_run_one_way(path: Path) -> None:
    assert room(path) in MAY_IMPORT, f"{path.name}: say in this test which rooms {room(path)} may import"
    allowed = MAY_IMPORT[room(path)]
    if allowed is not None:
        wrong = imported(path) - allowed - {room(path)}
        assert not wrong, f"{path.relative_to(SOURCE)} imports {', '.join(sorted(wrong))}, which {room(path)} must not know"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_files_stay_small_and_parts_take_plain_options(path: Path) -> None:
    text = path.read_text("utf-8")
    assert text.count("\n") <= 400, f"{path.relative_to(SOURCE)} has {text.count(chr(10))} lines: does it hold more than one thing?"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef) and room(path) != "config":  # which only hands on what it has checked
            assert node.args.kwarg is None, f"{path.relative_to(SOURCE)}: {node.name} takes any option, so typos pass"


def test_the_check_sees_a_wrong_import(tmp_path: Path) -> None:
    (tmp_path / "nn").mkdir()
    (tmp_path / "nn" / "bad.py").write_text("from seqloom.train.loop import Trainer\nfrom seqloom import run\nimport seqloom.cli\n")
    assert imported(tmp_path / "nn" / "bad.py", tmp_path) == {"train", "run", "cli"}


def test_every_verb_and_preset_stands_in_the_readme_or_help() -> None:
    presets = {path.stem for path in (SOURCE / "presets").glob("*.yaml")}
    help_text = (SOURCE / "cli.py").read_text("utf-8")
    assert all(name in help_text for name in presets), presets
