"""Folders that are no runs, names with a slip, and texts without words: one line says what to do."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from seqloom.cli import main

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


def refused(capsys, *words: str) -> str:
    """The one line with which a command is refused."""
    with pytest.raises(SystemExit) as end:
        main(list(words))
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and not shown.out
    return shown.err


@pytest.fixture
def runs(tmp_path: Path, monkeypatch) -> Path:
    """A folder with the runs `shake` and `encoder` and the word vectors `words`."""
    monkeypatch.chdir(tmp_path)
    for source, name in (("gru", "shake"), ("encoder", "encoder"), ("vectors-cbow", "words")):
        shutil.copytree(GOLDEN / source, tmp_path / "runs" / name)
    return tmp_path / "runs"


def test_word_vectors_are_named_where_a_run_is_expected(runs: Path, capsys):
    assert "use: seqloom vectors nearest runs/words WORD" in refused(capsys, "generate", "runs/words", "a")


def test_clean_skips_word_vectors(runs: Path, capsys):
    main(["runs", "clean", "runs/shake", "runs/words"])
    shown = capsys.readouterr()
    assert "runs/shake" in shown.out and "runs/words" not in shown.out
    assert "runs/words: word vectors" in shown.err


def test_a_wrong_name_gets_the_nearest_run(runs: Path, capsys):
    for name in ("runs/shaek", "shake"):
        assert "did you mean runs/shake?" in refused(capsys, "generate", name, "a")
    assert "seqloom train PRESET" in refused(capsys, "generate", "runs/zzz", "a")


def test_a_preset_or_a_text_in_the_place_of_a_run(runs: Path, capsys):
    assert "gpt: a preset, not a run; train it first: seqloom train gpt" in refused(
        capsys, "generate", "gpt", "a"
    )
    assert "'a fine film': there is no such run; the run comes first" in refused(
        capsys, "predict", "a fine film"
    )


def test_an_empty_text_is_not_embedded_and_blank_lines_are_counted(runs: Path, capsys):
    assert "empty text" in refused(capsys, "embed", "runs/encoder", "the cat", " ")
    Path("lines.txt").write_text("the cat\n\na dog\n", "utf-8")
    main(["embed", "runs/encoder", "--file", "lines.txt"])
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 3 and "blank lines: 1" in shown.err


def test_the_texts_of_the_patch_examples_have_as_many_characters(capsys):
    main(["inspect", "patch", "--help"])
    pairs = re.findall(r'inspect patch \S+ "([^"]+)" "([^"]+)"', capsys.readouterr().out)
    assert len(pairs) == 3 and all(len(clean) == len(corrupted) for clean, corrupted in pairs)
