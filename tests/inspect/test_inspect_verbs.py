"""The verbs `inspect …` on small runs: what they print, the pages they write, and what they refuse."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from seqloom.cli import main

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
LINES = "the old cat sees a river\na cat\n\nthe river sees the old man\na man sees a cat\nthe cat sees\n"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("verbs")
    for name in ("gpt", "gru", "transformer", "bert"):
        shutil.copytree(GOLDEN / name, folder / name)
    (folder / "texts.txt").write_text(LINES, "utf-8")
    (folder / "source.txt").write_text("the cat sees\na river\n", "utf-8")
    (folder / "target.txt").write_text("eht tac sees\na revir\n", "utf-8")
    (folder / "empty.txt").write_text("\n\n", "utf-8")
    return folder


COMMANDS = {
    "attention": "gpt TEXT --edges 3",
    "gates": "gru TEXT",
    "heads": "gpt --file FILE --max-texts 2",
    "gradients": "gru --file FILE --max-texts 2",
    "geometry": "gpt gru --file FILE",
    "similarity": "gpt bert --file FILE --estimate biased",
    "contexts": "gpt cat --file FILE",
    "beam": "transformer TEXT --why tac",
}


def run_verb(place: Path, verb: str, words: str, *more: str) -> None:
    names = {"TEXT": "the cat", "FILE": str(place / "texts.txt")}
    arguments = [names.get(word, word) for word in words.split()]
    arguments = [str(place / word) if (place / word).is_dir() else word for word in arguments]
    main(["inspect", verb, *arguments, "-q", *more])


@pytest.mark.parametrize("verb", COMMANDS)
def test_a_verb_prints_lines_json_and_a_page_that_needs_no_network(place: Path, verb: str, capsys):
    run_verb(place, verb, COMMANDS[verb])
    lines = capsys.readouterr().out.splitlines()
    page = Path(lines[-1].removeprefix("page: "))
    assert page == place / COMMANDS[verb].split()[0] / "reports" / f"{verb}.html" and len(lines) > 1
    text = page.read_text("utf-8")
    assert len(text) < 2_000_000 and "<table" in text and "prefers-color-scheme: dark" in text
    assert "src=" not in text and "https://" not in text.replace("http://www.w3.org", "")
    run_verb(place, verb, COMMANDS[verb], "--json", "--out", str(place / "own.html"))
    report = json.loads(capsys.readouterr().out)
    assert report["page"] == str(place / "own.html") and len(report) > 2 - (verb == "geometry")


def test_tokens_and_activations_are_tables(place: Path, capsys):
    main(["inspect", "tokens", str(place / "gpt"), "a cat"])
    assert len(capsys.readouterr().out.splitlines()) == 1 + len("a cat")
    main(["inspect", "tokens", str(place / "gpt"), "a cat", "--json"])
    assert json.loads(capsys.readouterr().out)["tokens"][0]["start"] == 0
    main(["inspect", "activations", str(place / "gpt")])
    assert "stack.blocks.0.attention.weights" in capsys.readouterr().out


def test_geometry_draws_a_line_for_each_run(place: Path, capsys):
    run_verb(place, "geometry", "gpt gru --file FILE", "--json")
    report = json.loads(capsys.readouterr().out)
    assert [Path(one["run"]).name for one in report["runs"]] == ["gpt", "gru"]
    assert Path(report["page"]).read_text("utf-8").count("<path d=") >= 2 * 5


def test_alignment_has_both_formats_and_its_older_name(place: Path, capsys):
    files = [str(place / name) for name in ("transformer", "source.txt", "target.txt")]
    main(["inspect", "alignment", *files])
    pharaoh = capsys.readouterr().out
    assert [len(line.split()) for line in pharaoh.splitlines()] == [3, 2]
    main(["align", *files])
    older = capsys.readouterr()
    assert older.out == pharaoh and "align is now: seqloom inspect alignment" in older.err
    main(["inspect", "alignment", *files, "--format", "lexicon"])
    lexicon = capsys.readouterr().out
    assert all(len(line.split("\t")) == 2 for line in lexicon.splitlines()) and lexicon
    main(["align", *files, "--lexicon", str(place / "made.tsv")])
    assert (place / "made.tsv").read_text("utf-8") == lexicon


def test_why_of_translate_says_its_present_name(place: Path, capsys):
    main(["translate", str(place / "transformer"), "the cat", "--why", "tac"])
    found = capsys.readouterr()
    assert "translate --why is now: seqloom inspect beam" in found.err and "answer" in found.out
    main(["inspect", "beam", str(place / "transformer"), "the cat", "--why", "tac"])
    assert set(found.out.splitlines()) <= set(capsys.readouterr().out.splitlines())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("heads gru TEXT", "no attention"),
        ("heads gpt --file EMPTY", "no line with a word"),
        ("gates gpt TEXT", "no recurrent cells"),
        ("contexts gpt king --file FILE", "occurs in 0 of"),
        ("coreference gpt", "needs a translator"),
        ("beam bert TEXT", "no search"),
        ("similarity gpt nowhere --file FILE", "not a run folder"),
        ("similarity gpt gpt --file FILE --estimate other", "other"),
        ("geometry gpt --file nowhere.txt", "nowhere.txt"),
        ("alignment gpt source.txt target.txt", "inspect alignment does not fit"),
        ("tokens gpt texts.txt", "this is a file"),
    ],
)
def test_wrong_inputs_are_one_line(place: Path, words: str, message: str, capsys, monkeypatch):
    monkeypatch.chdir(place)
    names = {"TEXT": "the cat", "FILE": "texts.txt", "EMPTY": "empty.txt"}
    with pytest.raises(SystemExit) as stopped:
        main(["inspect", *(names.get(word, word) for word in words.split()), "-q"])
    error = capsys.readouterr().err
    assert stopped.value.code == 2 and message in error and len(error.splitlines()) == 1
