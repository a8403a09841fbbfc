"""Every verb of `inspect` on every family: it works, or one line says why not."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from seqloom.cli import main

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TRANSLATORS = ("rnnsearch", "convs2s", "transformer")
RUNS = ("lstm", *TRANSLATORS, "bert", "gpt", "encoder", "classifier", "tagger")
TEXT = "the old cat"
LINES = "the old cat sees a river\na cat sees\nthe river sees the old man\na man sees a cat\nthe cat sees\n"
VERBS = {
    "tokens": "RUN TEXT",
    "activations": "RUN",
    "attention": "RUN TEXT --edges 5",
    "trace": "RUN TEXT",
    "gates": "RUN TEXT",
    "gradients": "RUN --file LOSS --max-texts 2",
    "heads": "RUN --file LOSS --max-texts 2",
    "geometry": "RUN --file LINES",
    "similarity": "RUN RUN --file LINES",
    "coreference": "RUN --pairs 1",
    "contexts": "RUN cat --file LINES",
    "beam": "RUN TEXT --max-tokens 5",
    "alignment": "RUN SOURCE TARGET",
    "patch": "RUN aa ab",
}
NO_ATTENTION = dict.fromkeys(("lstm", "classifier", "tagger"), "no attention")
NOT_TRANSLATORS = [name for name in RUNS if name not in TRANSLATORS]
NO_LANGUAGE_MODEL = [name for name in RUNS if name not in ("lstm", "gpt")]
# what cannot be shown, and why; a pair that is not here works
WHY_NOT: dict[str, dict[str, str]] = {
    "attention": NO_ATTENTION,
    "heads": NO_ATTENTION,
    "gates": dict.fromkeys(("convs2s", "transformer", "bert", "gpt", "encoder"), "no recurrent cells"),
    "gradients": {"encoder": "no loss"},
    "geometry": {"tagger": "not from a Tagger"},
    "similarity": {"tagger": "not from a Tagger"},
    "contexts": {"tagger": "not from a Tagger"},
    "coreference": {
        **dict.fromkeys(NOT_TRANSLATORS, "needs a translator of the world"),
        **dict.fromkeys(TRANSLATORS, "train it on the world"),
    },
    "beam": dict.fromkeys(("bert", "encoder", "classifier", "tagger"), "does not generate text"),
    "alignment": dict.fromkeys(NOT_TRANSLATORS, "inspect alignment does not fit this run"),
    "patch": {
        **dict.fromkeys(NO_LANGUAGE_MODEL, "needs a language model"),
        "lstm": "the same answer",  # a model of a few steps goes on alike after both texts
    },
}


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("matrix")
    for name in RUNS:
        shutil.copytree(GOLDEN / name, folder / name)
    files = {
        "LINES": LINES,
        "PAIRS": "the old cat\tun chat\na man\tun homme\n",
        "SOURCE": "the cat\n",
        "TARGET": "eht\n",
    }
    for name, text in files.items():
        (folder / name).write_text(text, "utf-8")
    return folder


def words_of(place: Path, verb: str, name: str) -> list[str]:
    loss = "PAIRS" if name in TRANSLATORS else "LINES"
    meaning = {"RUN": str(place / name), "TEXT": TEXT, "LOSS": str(place / loss)}
    meaning |= {word: str(place / word) for word in ("LINES", "SOURCE", "TARGET")}
    return ["inspect", verb, *(meaning.get(word, word) for word in VERBS[verb].split()), "-q"]


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_shows_a_run_or_says_why_not(place: Path, verb: str, name: str, capsys):
    why_not = WHY_NOT.get(verb, {}).get(name)
    if why_not is None:
        main([*words_of(place, verb, name), "--json"])
        shown = capsys.readouterr()
        assert json.loads(shown.out) and not shown.err
        return
    with pytest.raises(SystemExit) as end:
        main(words_of(place, verb, name))
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and why_not in shown.err and not shown.out


ONE_TEXT = ["attention", "trace", "gates", "tokens", "activations", "beam"]


@pytest.mark.parametrize("verb", ONE_TEXT)
@pytest.mark.parametrize("text", ["", "   "])
def test_an_empty_text_is_one_line(place: Path, verb: str, text: str, capsys):
    run = str(place / ("lstm" if verb == "gates" else "gpt"))
    with pytest.raises(SystemExit) as end:
        main(["inspect", verb, run, text, "-q"])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and "empty" in shown.err


@pytest.mark.parametrize("verb", VERBS)
def test_a_wrong_run_is_one_line_with_the_nearest(place: Path, verb: str, capsys, monkeypatch):
    monkeypatch.chdir(place)
    words = [word if word != str(place / "gpt") else "gtp" for word in words_of(place, verb, "gpt")]
    with pytest.raises(SystemExit) as end:
        main(words)
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and "gtp" in shown.err


LONG = "the old cat sees a river " * 17_000  # 102,000 words


@pytest.mark.parametrize(
    ("verb", "name"),
    [
        ("attention", "bert"),
        ("attention", "rnnsearch"),
        ("attention", "encoder"),
        ("trace", "lstm"),
        ("gates", "lstm"),
        ("tokens", "gpt"),
        ("activations", "lstm"),
    ],
)
def test_a_hundred_thousand_tokens_are_read_in_windows(place: Path, verb: str, name: str, capsys, tmp_path):
    more = [] if verb in ("tokens", "activations") else ["--out", str(tmp_path / "page.html")]
    more += ["--edges", "3", "--max-tokens", "12"] if verb == "attention" else []
    main(["inspect", verb, str(place / name), LONG, "-q", *more])
    shown = capsys.readouterr().out
    if more:
        assert "window 1 of" in shown and (tmp_path / "page.html").stat().st_size < 2_000_000
    assert shown


@pytest.mark.parametrize("verb", ["beam", "patch"])
def test_a_hundred_thousand_tokens_that_cannot_be_read_are_one_line(place: Path, verb: str, capsys):
    texts = [LONG, LONG] if verb == "patch" else [LONG]
    with pytest.raises(SystemExit) as end:
        main(["inspect", verb, str(place / "gpt"), *texts, "-q"])
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and "shorte" in shown.err
