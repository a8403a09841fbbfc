"""A clock that is set back, or to another century, changes nothing but the times that are shown."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

import seqloom
from seqloom import data
from seqloom.cli import main

TINY = {"model.dim": 8, "model.stack.dim": 8, "batches.width": 8, "batches.batch": 4, "train.eval_every": 2}
TEXT = Path(__file__).parents[1] / "golden" / "data" / "text.txt"


def backwards() -> Callable[[], float]:
    """A clock that goes back an hour at each look."""
    hours = iter(range(10**9))
    start = time.time()
    return lambda: start - 3600 * next(hours)


CLOCKS = {"backwards": backwards(), "epoch": lambda: 0.0, "before": lambda: -1e9, "far": lambda: 4e11}


@pytest.mark.parametrize("clock", CLOCKS.values(), ids=CLOCKS)
def test_a_wrong_clock_changes_no_bits(clock, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setenv("SEQLOOM_CACHE", str(tmp_path / "cache"))
    usual = seqloom.fit("lstm-lm", TINY, data=TEXT, steps=4, out=tmp_path / "usual", progress=False)
    monkeypatch.setattr(time, "time", clock)
    run = seqloom.fit("lstm-lm", TINY, data=TEXT, steps=4, out=tmp_path / "wrong", progress=False)
    for name in ("model.safetensors", "metrics.jsonl"):
        assert (run.folder / name).read_bytes() == (usual.folder / name).read_bytes()
    main(["runs", "list", str(tmp_path)])
    assert "finished" in capsys.readouterr().out
    assert data.prune(30).removed >= 0
    assert seqloom.runs.replay(run, from_step=0, progress=False).same
