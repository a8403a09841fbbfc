"""The notebook runs from its first cell to its last, in a fresh folder, within two minutes on a quiet machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.pages import ROOT

NOTEBOOK = ROOT / "docs" / "first-look.ipynb"


@pytest.mark.docs
@pytest.mark.timeout(1200)
def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=1100, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    shown = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert not [output for output in shown if output.get("name") == "stderr"]
    assert sum("text/html" in output.get("data", {}) for output in shown) >= 3


def test_the_notebook_is_small() -> None:
    assert NOTEBOOK.stat().st_size < 100_000
