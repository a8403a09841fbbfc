"""The attacks in the form that each commit runs, and, with the marker `attack`, tens of times as many. Each runs in a process of its own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from attack import Count
from attack.__main__ import run_attack
from attack.before import BEFORE
from attack.no_pickle import scan
from attack.playground import Playground

SHORT = {
    "parsers": 0.2,
    "malicious": 1.0,
    "no_pickle": 1.0,
    "options": 1.0,
    "data_files": 1.0,
    "hostile_texts": 0.25,
}
LONG = {"parsers": 40.0, "options": 40.0, "data_files": 4.0}


def run(name: str, amount: float) -> list[Count]:
    counts, _ = run_attack(name, 0, amount)
    for count in counts:
        count.assert_none_failed()
    return counts


@pytest.mark.timeout(1800)  # only against a hang
@pytest.mark.parametrize("name", SHORT)
def test_no_case_fails(name: str) -> None:
    assert sum(count.cases for count in run(name, SHORT[name])) >= 40


@pytest.mark.attack
@pytest.mark.timeout(36_000)
@pytest.mark.parametrize("name", LONG)
def test_no_case_fails_in_many(name: str) -> None:
    run(name, LONG[name])


def test_the_scan_finds_what_it_looks_for(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("attack.no_pickle.SOURCE", tmp_path)
    path = tmp_path / "bad.py"
    path.write_text(
        "import pickle, torch\nimport numpy as np\ntorch.load('x')\nnp.load('x', allow_pickle=True)\neval('1')\n",
        "utf-8",
    )
    found = list(scan(path))
    assert len(found) == 4 and all(one.startswith("bad.py:") for one in found)


def test_the_playground_becomes_as_it_was(tmp_path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    playground = Playground(folder)
    before = playground.present()
    playground.restore()
    assert playground.num_restored == 0
    (folder / "text.txt").write_text("other", "utf-8")
    (folder / "new" / "deep").mkdir(parents=True)
    (folder / "new" / "deep" / "file").write_text("x", "utf-8")
    shutil.rmtree(folder / "gpt")
    (folder / "gpt").write_text("a file now", "utf-8")
    (folder / "label.tsv").unlink()
    (folder / "label.tsv").mkdir()
    playground.restore()
    assert playground.num_restored == 1 and playground.present().keys() == before.keys()
    for path in playground.original.rglob("*"):
        if path.is_file():
            assert (folder / path.relative_to(playground.original)).read_bytes() == path.read_bytes()


def test_the_counts_of_before_are_those_of_classes() -> None:
    source = "".join(
        path.read_text("utf-8") for path in Path(__file__).parent.glob("*.py") if path.stem != "before"
    )
    named = [name.removesuffix(" of an interrupted run").removeprefix("damaged ") for name in BEFORE]
    assert all(f'"{name}"' in source for name in named)
