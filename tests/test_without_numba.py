"""Everything works where numba is missing or broken: slower, with the same results and one line that says so."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from support import numba_blocked

TESTS = Path(__file__).resolve().parent
WARNING = "): compiled kernels are off, everything runs in its plain, slower form"


def run_blocked(folder: Path, what: str, statement: str) -> tuple[dict[str, Any], list[str]]:
    """The results of `numba_blocked.py` in a process in which importing numba executes `statement`, and the lines on stderr."""
    stub = folder / "stub" / "numba"
    stub.mkdir(parents=True)
    (stub / "__init__.py").write_text(f"{statement}\n", "utf-8")
    out = folder / "out"
    out.mkdir()
    source = Path(numba_blocked.seqloom.__file__).parents[1]
    paths = [str(path) for path in (stub.parent, source, TESTS)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    script = TESTS / "support" / "numba_blocked.py"
    done = subprocess.run(
        [sys.executable, str(script), what, str(out)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr.splitlines()


def assert_one_warning(lines: list[str], reason: str) -> None:
    assert len(lines) == 1, lines
    assert lines[0].startswith("numba cannot be used (") and lines[0].endswith(reason + WARNING)


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The word vectors of this process, which has numba."""
    return numba_blocked.train_vectors(tmp_path_factory.mktemp("compiled"))


def assert_same_vectors(plain: dict[str, Any], compiled: dict[str, Any]) -> None:
    assert plain.keys() == compiled.keys() == set(numba_blocked.VECTORS)
    for kind, expected in compiled.items():
        found = plain[kind]
        assert list(found["vectors"]) == list(expected["vectors"]), kind
        for word, vector in expected["vectors"].items():
            np.testing.assert_allclose(found["vectors"][word], vector, rtol=1e-3, atol=1e-5, err_msg=kind)
        assert found["analogies"] == expected["analogies"] == [3, 3], kind
        assert not numba_blocked.observe.differences(expected["nearest"], found["nearest"], 1e-3, 1e-4), kind


def test_everything_works_without_numba(tmp_path: Path, compiled: dict[str, Any]):
    """Promises, evaluation, generation, translation, a CRF, training and int8; golden results come from runs with numba."""
    results, lines = run_blocked(
        tmp_path, "everything", "raise ModuleNotFoundError(\"No module named 'numba'\")"
    )
    assert_one_warning(lines, "No module named 'numba'")
    assert results["promises"] == []
    assert results["golden"] == []
    assert results["training"] == []
    assert 0 < results["int8"] < 0.05
    assert_same_vectors(results["vectors"], compiled)


def test_a_numba_that_fails_while_it_is_imported_is_like_none(tmp_path: Path, compiled: dict[str, Any]):
    results, lines = run_blocked(tmp_path, "a few", "raise RuntimeError('no such processor\\nsecond line')")
    assert_one_warning(lines, "no such processor second line")
    assert results["golden"] == []
    assert_same_vectors(results["vectors"], compiled)


def test_importing_word_vectors_loads_neither_numba_nor_torch():
    script = (
        "import pkgutil, sys, seqloom.vectors\n"
        "for module in pkgutil.walk_packages(seqloom.vectors.__path__, 'seqloom.vectors.'):\n"
        "    __import__(module.name)\n"
        "print([name for name in ('numba', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
