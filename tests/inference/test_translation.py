"""Translation for use: what is kept stays, what is cut joins again, files keep their form, lines keep their order."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

import polib
import pytest
from hypothesis import given
from hypothesis import strategies as st

import seqloom
from seqloom import world
from seqloom.cli import main
from seqloom.decoding import DecodingPlan
from seqloom.errors import UserError
from seqloom.fused.dispatch import fused_enabled
from seqloom.inference.completion import complete
from seqloom.inference.po_tmx import po, tmx
from seqloom.inference.segments import MAX_WORDS, map_pieces, pieces
from seqloom.inference.translation import Translation, translate
from seqloom.run import Run


@given(st.text(alphabet=st.sampled_from(list("ab .!?<>{}%sd$&;\n\t\u00a0é/\\()"))))
def test_pieces_join_to_the_text(text: str) -> None:
    assert "".join(part for part, _ in pieces(text)) == text
    assert all(part == part.strip() for part, asked in pieces(text) if asked)


@pytest.mark.parametrize(
    "text, kept",
    [
        ("Press <b>Enter</b> now", ["<b>", "</b>"]),
        ("Hello {name}, you have %d mails and %1$s more", ["{name}", "%d", "%1$s"]),
        ("See https://example.org/a?b=c for &lt;more&gt;", ["https://example.org/a?b=c", "&lt;", "&gt;"]),
        ("%(count)d files in ${place} at 100%%", ["%(count)d", "${place}", "%%"]),
        ("one\\ntwo", ["\\n"]),
    ],
)
def test_tags_and_placeholders_stay_where_they_are(text: str, kept: list[str]) -> None:
    asked = [part for part, yes in pieces(text) if yes]
    for token in kept:
        assert any(part == token for part, yes in pieces(text) if not yes)
        assert not any(token in part for part in asked)
    assert all(any(letter.isalpha() for letter in part) for part in asked)


def test_long_texts_go_by_sentences_and_by_words() -> None:
    document = " ".join(f"This is sentence number {n} of many." for n in range(200))
    asked = [part for part, yes in pieces(document) if yes]
    assert len(asked) == 200 and all(part.endswith("many.") for part in asked)
    endless = "word " * 5000
    asked = [part for part, yes in pieces(endless) if yes]
    assert (
        max(len(part.split()) for part in asked) == MAX_WORDS
        and sum(len(part.split()) for part in asked) == 5000
    )


def test_the_pieces_of_all_texts_are_worked_on_in_one_call() -> None:
    calls = []

    def work(parts: list[str]) -> list[str]:
        calls.append(parts)
        return [part.upper() for part in parts]

    assert map_pieces(["a <i>b</i>", "", "12 %", "c"], work, "".join) == ["A <i>B</i>", "", "12 %", "C"]
    assert calls == [["a", "b", "c"]]


PO = """msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"

#: main.c:1
msgid "Open {file}"
msgstr ""

msgid "Done"
msgstr "Fertig"

#, fuzzy
msgid "Old"
msgstr "wrong"

msgid "%d line"
msgid_plural "%d lines"
msgstr[0] ""
msgstr[1] ""
"""


def test_a_catalogue_is_filled_in_and_nothing_else_changes(tmp_path: Path) -> None:
    path = tmp_path / "a.po"
    path.write_text(PO, "utf-8")
    written = tmp_path / "b.po"
    written.write_text(po(path, lambda texts: [f"<{text}>" for text in texts]), "utf-8")
    found = {entry.msgid: entry for entry in polib.pofile(str(written))}
    assert found["Open {file}"].msgstr == "<Open {file}>" and found["Open {file}"].occurrences == [
        ("main.c", "1")
    ]
    assert found["Done"].msgstr == "Fertig" and not found["Done"].fuzzy
    assert found["Old"].msgstr == "<Old>" and found["Open {file}"].fuzzy
    assert found["%d line"].msgstr_plural == {0: "<%d line>", 1: "<%d lines>"}
    path.write_bytes(b"\xff\xfe\0")
    with pytest.raises(ValueError, match="not a PO file"):
        po(path, list)


TMX = """<?xml version="1.0"?><tmx version="1.4"><header srclang="en-US"/><body>
<tu><tuv xml:lang="en-US"><seg>One <bpt i="1"/>two</seg></tuv></tu>
<tu><tuv xml:lang="en-US"><seg>Three</seg></tuv><tuv xml:lang="de"><seg>Drei</seg></tuv></tu>
<tu><tuv xml:lang="fr"><seg>Quatre</seg></tuv></tu></body></tmx>"""


def test_a_memory_gets_the_missing_language(tmp_path: Path) -> None:
    path = tmp_path / "a.tmx"
    path.write_text(TMX, "utf-8")
    root = ElementTree.fromstring(
        tmx(path, lambda texts: [text.upper() for text in texts], None, "de").encode()
    )
    german = [
        one.find("seg").text
        for one in root.iter("tuv")
        if one.get("{http://www.w3.org/XML/1998/namespace}lang") == "de"
    ]
    assert german == ["ONE TWO", "Drei"]
    path.write_text(
        TMX.replace('<?xml version="1.0"?>', '<!DOCTYPE a [<!ENTITY b "c">]>').replace("Three", "&b;"),
        "utf-8",
    )
    with pytest.raises(ValueError, match="not a TMX file"):
        tmx(path, list, None, "de")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Run:
    """A translator of the world that has only begun to learn."""
    folder = tmp_path_factory.mktemp("translate")
    world.write(folder / "world", train=400, valid=20, test=20)
    sides = [
        [str(folder / "world" / f"{side}.{tongue}") for tongue in ("en", "fr")] for side in ("train", "valid")
    ]
    options = [
        "model.dim=16",
        "tokenizer.size=300",
        "train.steps=20",
        "model.encoder.layers=1",
        "model.decoder.layers=1",
    ]
    return seqloom.fit(
        "world", *options, data=sides[0], valid=sides[1], out=folder / "run", progress=False, threads=1
    )


LINES = ["The cat sleeps.", "", "   ", "§§ 12 €", "The dog {name} sees the <b>cat</b>.", "The old bank " * 60]


def test_lines_keep_their_order_and_a_batch_is_each_alone(run: Run) -> None:
    together = translate(run, LINES, beam=2, n=2)
    for line, found in zip(LINES, together, strict=True):
        alone = translate(run, line, beam=2, n=2)
        assert found.source == alone.source == line
        assert [one.text for one in found.outputs] == [one.text for one in alone.outputs]
        scores = [one.score for one in alone.outputs]
        assert [one.score for one in found.outputs] == pytest.approx(scores, abs=1e-3)
    assert [found.text for found in together[1:4]] == ["", "   ", "§§ 12 €"]
    assert "{name}" in together[4].text and "<b>" in together[4].text
    [[plain]] = complete(run, LINES[:1], DecodingPlan(beam=2))
    assert together[0].text == plain.text


def test_one_text_is_one_translation_and_a_stream_a_stream(run: Run) -> None:
    """With the run's own search; a folder is as good as a run."""
    one = translate(run, "The cat sleeps.")
    assert isinstance(one, Translation) and one.source == "The cat sleeps."
    assert translate(run.folder, ["The cat sleeps."]) == [one]
    [[plain]] = complete(run, ["The cat sleeps."], DecodingPlan(beam=5, length_penalty=0.6))
    assert one.text == plain.text and one.outputs[0].logprob == pytest.approx(plain.logprob)
    taken = 0

    def endless() -> Iterator[str]:
        nonlocal taken
        while True:
            taken += 1
            yield "The cat sleeps."

    found = translate(run, endless(), beam=1)
    assert taken == 0 and next(found).text == next(found).text and taken <= 3
    with pytest.raises(ValueError, match="text 2 is a int, not a str"):
        translate(run, ["a", 3])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="no decoding option 'nbest'; here it is n"):
        translate(run, "a", nbest=2)  # type: ignore[call-overload]


def test_the_command_reads_texts_files_and_stdin_and_explains_itself(
    run: Run, tmp_path: Path, capsys, monkeypatch
) -> None:
    text = tmp_path / "text.en"
    text.write_text("The cat sleeps.\n\nThe dog sleeps.\n", "utf-8")
    main(["translate", str(run.folder), "--file", str(text), "--beam", "2"])
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == 4 and lines[1] == ""
    main(["translate", str(run.folder), "The cat sleeps.", "The dog sleeps.", "--beam", "2"])
    assert capsys.readouterr().out.split("\n") == [lines[0], lines[2], ""]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"The cat sleeps.\n")))
    main(["translate", str(run.folder), "--beam", "3", "--nbest", "2", "--json"])
    captured = capsys.readouterr()
    found = json.loads(captured.out)
    assert "--nbest is now --n" in captured.err
    scores = [one["score"] for one in found["outputs"]]
    assert len(scores) == 2 and scores[0] >= scores[1]
    assert found == json.loads(json.dumps(translate(run, "The cat sleeps.", beam=3, n=2).to_dict()))
    main(
        ["translate", str(run.folder), "--file", str(text), "--beam", "2", "--out", str(tmp_path / "out.fr")]
    )
    assert (tmp_path / "out.fr").read_text("utf-8").split("\n") == lines and capsys.readouterr().out == ""
    main(["translate", str(run.folder), "The cat sleeps.", "--why", "Le chat dort.", "--beam", "1", "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] in ("search error", "model error", "found") and told["asked"] == "Le chat dort."
    assert all(" " not in key for key in told)


def test_out_is_written_as_lines_are_ready_and_appears_when_it_is_whole(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """The file is never held in memory: each block is on its way to the disk before the next is read."""
    from seqloom.cli import translate as command

    out = tmp_path / "out.fr"
    hidden: list[list[int]] = []

    def source() -> Iterator[str]:
        for _ in range(4):
            hidden.append([path.stat().st_size for path in tmp_path.iterdir()])
            assert not out.exists()
            yield "The cat sleeps. " * 400

    monkeypatch.setattr(command, "iterate_files", lambda files: source())
    main(["translate", str(run.folder), "--file", "x", "--beam", "1", "--out", str(out)])
    assert [path.name for path in tmp_path.iterdir()] == ["out.fr"] and len(out.read_text().splitlines()) == 4
    assert hidden[-1][0] > 0

    def broken() -> Iterator[str]:
        yield "The cat sleeps."
        raise UserError("x:2: broken")

    monkeypatch.setattr(command, "iterate_files", lambda files: broken())
    out.unlink()
    with pytest.raises(SystemExit):
        main(["translate", str(run.folder), "--file", "x", "--beam", "1", "--out", str(out)])
    assert list(tmp_path.iterdir()) == [] and "x:2: broken" in capsys.readouterr().err


def test_an_option_takes_one_value(run: Run, capsys: pytest.CaptureFixture) -> None:
    """--ensemble does not swallow the text after it."""
    main(["translate", str(run.folder), "--ensemble", str(run.folder), "The cat sleeps.", "--beam", "1"])
    together = capsys.readouterr().out
    main(["translate", str(run.folder), "The cat sleeps.", "--beam", "1"])
    assert capsys.readouterr().out == together


@pytest.mark.parametrize(
    "arguments, sentence",
    [
        (["--file", "nowhere.txt"], "nowhere.txt"),
        (["--file", "{tmx}"], "--target-lang"),
        (["--file", "{text}", "--n", "9"], "beam at least as wide"),
        (["--file", "{binary}"], "NUL byte"),
        (["{text}"], "this is a file; read it with --file"),
        (["--file", "{tmx}", "{text}"], "translated by itself"),
        (["a cat", "--file", "{text}"], "not both"),
    ],
)
def test_mistakes_are_one_line(run: Run, tmp_path: Path, capsys, arguments: list[str], sentence: str) -> None:
    (tmp_path / "a.tmx").write_text(TMX, "utf-8")
    (tmp_path / "a.txt").write_text("The cat.\n", "utf-8")
    (tmp_path / "a.bin").write_bytes(b"a\0b")
    names = {"{tmx}": "a.tmx", "{text}": "a.txt", "{binary}": "a.bin"}
    with pytest.raises(SystemExit) as end:
        main(
            [
                "translate",
                str(run.folder),
                *(str(tmp_path / names[one]) if one in names else one for one in arguments),
            ]
        )
    said = capsys.readouterr().err.strip().split("\n")
    assert end.value.code == 2 and len(said) == 1 and sentence in said[0]


def test_workers_that_read_attention_do_not_disturb_one_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Coverage reads the weights of the plain form. A switch of the whole process was turned back by one worker while
    another still read, which ended the command with code 2 and left fast forms off for everybody."""
    run = Path(__file__).parents[1] / "golden" / "v1" / "transformer"
    text = tmp_path / "eight.en"
    text.write_text("".join(f"the old king sees {count} dogs\n" for count in range(8)), "utf-8")
    command = ["translate", str(run), "--file", str(text), "--coverage-penalty", "0.2", "--beam", "2"]
    main(command)
    expected = capsys.readouterr().out
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads take turns as often as they can
    try:
        for _ in range(5):
            main([*command, "--workers", "2"])
            assert capsys.readouterr().out == expected
            assert fused_enabled()
    finally:
        sys.setswitchinterval(interval)
