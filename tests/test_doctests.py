"""Every public name has an example in its docstring, and the examples are right.

The examples see `seqloom`, small trained runs (`run` is a language model of words; `translator`, `masked`, `encoder`, `classifier`)
and run in a folder of their own, which holds `input.txt`, `text.en`, `text.fr` and `reviews.tsv`.
"""

from __future__ import annotations

import doctest
import inspect
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seqloom

GOLDEN = Path(__file__).parent / "golden"
RUNS = {
    "run": "gru",
    "translator": "rnnsearch",
    "masked": "bert",
    "encoder": "encoder",
    "classifier": "classifier",
}
FILES = {
    "text.txt": "input.txt",
    "text.test.txt": "text.en",
    "translated.test.txt": "text.fr",
    "label.tsv": "reviews.tsv",
}
MODULES = {name for name in seqloom.__all__ if inspect.ismodule(getattr(seqloom, name))}


def examples(name: str) -> doctest.DocTest | None:
    """The examples in the docstring of a public name."""
    found = getattr(seqloom, name)
    finder = doctest.DocTestFinder(recurse=False, exclude_empty=True)
    for test in finder.find(found, name, module=False, globs={}):
        if any(doctest.SKIP not in example.options for example in test.examples):
            return test
    return None


@pytest.fixture(scope="module")
def namespace() -> dict[str, Any]:
    """What the examples see."""
    return {
        "seqloom": seqloom,
        **{name: seqloom.load(GOLDEN / "v1" / folder) for name, folder in RUNS.items()},
    }


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with small files, in which the examples run."""
    for source, name in FILES.items():
        shutil.copy(GOLDEN / "data" / source, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    yield tmp_path


@pytest.mark.parametrize("name", sorted({*seqloom.__all__} - MODULES))
def test_the_examples_of_a_public_name_are_right(name: str, namespace: dict[str, Any], files: Path) -> None:
    test = examples(name)
    assert test, f"seqloom.{name} has no example in its docstring"
    module = sys.modules[getattr(seqloom, name).__module__]
    test.globs = {**vars(module), **namespace}
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
