"""The report of what seqloom runs on."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from seqloom import __version__
from seqloom.cli import main
from seqloom.environment import env


def test_versions_folders_and_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("SEQLOOM_RUNS", str(tmp_path / "elsewhere"))
    found = env()
    assert found.versions["seqloom"] == __version__ and found.versions["torch"] == torch.__version__
    assert found.folders["cache"] == tmp_path / "cache" and found.folders["runs"] == tmp_path / "elsewhere"
    assert found.cache_size == 0 and found.memory > 0 and found.cores >= 1
    (tmp_path / "cache" / "a").write_bytes(b"12345")
    assert env().cache_size == 5 and env().variables["SEQLOOM_RUNS"] == str(tmp_path / "elsewhere")


def test_the_verb_prints_it(capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SEQLOOM_THREADS", "1")
    main(["env", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert report["threads"] == 1 and report["versions"]["torch"] == torch.__version__
    main(["env"])
    assert f"seqloom       {__version__}" in capsys.readouterr().out
