"""Every public name has an example in its docstring, and the examples are right.

Public names are those of `seqloom` and of its modules `data`, `inspect`, `runs`, `vectors` and `world`. (Those of `nn` and `models` have
an equation instead, and a row in the tests of promises; results of functions are shown by the functions.)

The examples see `seqloom`, small trained runs (`run` and `gpt` are language models of words; `translator`, `masked`, `encoder`, `classifier`)
and run in a folder of their own, which holds `input.txt`, `text.en`, `text.fr` and `reviews.tsv`.
"""

from __future__ import annotations

import doctest
import inspect
import shutil
import sys
from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest

import seqloom
from seqloom.results import Result

GOLDEN = Path(__file__).parent / "golden"
RUNS = {
    "run": "gru",
    "gpt": "alibi",
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
PARTS = {"models", "nn"}
MODULES = {name for name in seqloom.__all__ if inspect.ismodule(getattr(seqloom, name))}


def public_names() -> list[str]:
    """The names of `seqloom`, and those of its modules, such as `data.show`, without the classes of their results."""
    names = [*sorted({*seqloom.__all__} - MODULES)]
    for module in sorted(MODULES - PARTS):
        values = {name: resolve(f"{module}.{name}") for name in getattr(seqloom, module).__all__}
        names += [
            f"{module}.{name}"
            for name, value in values.items()
            if callable(value) and not (inspect.isclass(value) and issubclass(value, Result))
        ]
    return names


def resolve(name: str) -> Any:
    return attrgetter(name)(seqloom)


def examples(name: str) -> doctest.DocTest | None:
    """The examples in the docstring of a public name."""
    found = resolve(name)
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


def test_the_modules_of_the_package_are_public() -> None:
    assert {"data", "inspect", "runs", "vectors", "world", *PARTS} <= MODULES
    assert {"inspect.attention", "data.show", "runs.list", "capture", "change"} <= set(public_names())


@pytest.mark.parametrize("name", public_names())
def test_the_examples_of_a_public_name_are_right(name: str, namespace: dict[str, Any], files: Path) -> None:
    test = examples(name)
    assert test, f"seqloom.{name} has no example in its docstring"
    module = sys.modules[resolve(name).__module__]
    test.globs = {**vars(module), **namespace}
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
    runner.run(test, out=report.append)
    assert not runner.failures, "".join(report)
