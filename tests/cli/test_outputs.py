"""What a verb writes with --out never replaces a file that was there, unless the user says so."""

from __future__ import annotations

from pathlib import Path

import pytest

import seqloom
from seqloom.cli import main


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("labels")
    rows = [f"a fine film {number}\tgood\na dull plot {number}\tbad\n" for number in range(40)]
    (folder / "table.tsv").write_text("".join(rows), "utf-8")
    data = folder / "table.tsv"
    return str(seqloom.fit("naive-bayes", data=data, out=folder / "run", progress=False).folder)


def refused(capsys: pytest.CaptureFixture, *arguments: str) -> str:
    with pytest.raises(SystemExit) as stopped:
        main(list(arguments))
    assert stopped.value.code == 2
    return capsys.readouterr().err


def test_the_input_of_predict_is_not_its_output(run: str, tmp_path: Path, capsys) -> None:
    file = tmp_path / "texts.txt"
    file.write_text("a fine film\n", "utf-8")
    arguments = ["predict", run, "--file", str(file), "--out", str(file)]
    assert "texts-2.txt, or replace it with --overwrite" in refused(capsys, *arguments)
    assert file.read_text("utf-8") == "a fine film\n"
    main([*arguments, "--overwrite"])
    assert file.read_text("utf-8").startswith("a fine film\tgood")


@pytest.mark.parametrize(
    "verb",
    [
        ("translate", "RUN", "a"),
        ("embed", "RUN", "a"),
        ("summarize", "RUN", "a"),
        ("transcribe", "RUN", "a.wav"),
        ("caption", "RUN", "a.png"),
        ("presets", "gpt"),
    ],
    ids=lambda verb: verb[0],
)
def test_an_existing_file_is_kept(verb: tuple[str, ...], run: str, tmp_path: Path, capsys) -> None:
    """It is refused before anything else is looked at."""
    file = tmp_path / "mine.npy"
    file.write_text("mine", "utf-8")
    arguments = [run if word == "RUN" else word for word in verb]
    assert "mine.npy: exists already" in refused(capsys, *arguments, "--out", str(file))
    assert file.read_text("utf-8") == "mine"


def test_a_page_replaces_a_page_only(run: str, tmp_path: Path, capsys) -> None:
    page = tmp_path / "page.html"
    for _ in range(2):
        main(["explain", run, "--out", str(page)])
    page.write_text("<!doctype html><html><body>my notes</body></html>", "utf-8")
    assert "is not a page of seqloom" in refused(capsys, "explain", run, "--out", str(page))
    assert "my notes" in page.read_text("utf-8")
