"""A line that is too long for one text ends a verb in one line, before its tokens fill the memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from seqloom.cli import main

RUN = Path(__file__).parents[1] / "golden" / "v1" / "encoder"


def test_a_line_that_is_too_long_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("seqloom.cli.inputs.MAX_LINE", 1_000)
    path = tmp_path / "texts.txt"
    path.write_text("the cat\n" + "the " * 400 + "\n", "utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["embed", str(RUN), "--file", str(path), "--out", str(tmp_path / "v.npy")])
    assert stopped.value.code == 2 and not (tmp_path / "v.npy").exists()
    assert "texts.txt:2: a line of 1,600 characters is too long for one text" in capsys.readouterr().err
