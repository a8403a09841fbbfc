"""A user's own files, from training to translation: a table, empty and endless lines, letters never seen, files that do not line up."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from seqloom.cli import main

SMALL = [
    "model.dim=8",
    "model.encoder.dim=8",
    "model.decoder.dim=8",
    "model.decoder.attention.dim=8",
    "train.steps=6",
    "train.eval_every=6",
]
WORDS = {
    "the": "le",
    "dog": "chien",
    "cat": "chat",
    "sees": "voit",
    "old": "vieux",
    "river": "fleuve",
    "and": "et",
}


def pairs(count: int = 120) -> list[tuple[str, str]]:
    names = list(WORDS)
    rows = [
        [names[(n * step + k) % len(names)] for k in range(2 + n % 5)]
        for step, n in ((3, n) for n in range(count))
    ]
    return [(" ".join(row), " ".join(WORDS[word] for word in row)) for row in rows]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    rows = pairs()
    (folder / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in rows), "utf-8")
    (folder / "a.en").write_text("".join(f"{a}\n" for a, _ in rows), "utf-8")
    (folder / "a.fr").write_text("".join(f"{b}\n" for _, b in rows), "utf-8")
    for kind in ("Words", "Characters"):
        said = ["tokenizer={type: " + kind + "}", "corpus.type=Table"]
        main(
            [
                "train",
                "rnnsearch",
                *SMALL,
                *said,
                "--data",
                str(folder / "pairs.tsv"),
                "--out",
                str(folder / kind),
                "--threads",
                "1",
            ]
        )
    return folder


def out(capsys, *arguments: str | Path) -> list[str]:
    capsys.readouterr()
    main([str(one) for one in arguments])
    return capsys.readouterr().out.split("\n")[:-1]


def wrong(capsys, *arguments: str | Path) -> str:
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main([str(one) for one in arguments])
    said = capsys.readouterr().err.strip().split("\n")
    assert end.value.code == 2 and len(said) == 1
    return said[0]


@pytest.mark.parametrize("kind", ["Words", "Characters"])
def test_a_table_of_ones_own_trains_evaluates_and_translates(place: Path, capsys, kind: str) -> None:
    numbers = json.loads(out(capsys, "evaluate", place / kind, place / "pairs.tsv", "--json")[0])["numbers"]
    assert {number["name"] for number in numbers} >= {"nats_per_token", "bleu", "chrf"}
    assert len(out(capsys, "translate", place / kind, "--file", place / "a.en", "--beam", "2")) == 120


@pytest.mark.parametrize("kind", ["Words", "Characters"])
def test_empty_endless_and_unknown_lines_keep_their_places(place: Path, capsys, kind: str) -> None:
    endless = " ".join(["the old dog sees the river"] * 834)  # 5,004 words
    lines = ["the dog", "", endless, "", "日本語", "ξένος λόγος ψυχή", "   ", "12 + 3"]
    path = place / f"{kind}.txt"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    found = out(capsys, "translate", place / kind, "--file", path, "--beam", "1")
    assert (
        len(found) == len(lines) and found[1] == found[3] == "" and found[6] == "   " and found[7] == "12 + 3"
    )
    assert len(found[2].split()) >= 84  # pieces of at most sixty words
    lines[2] = "the old dog"
    path.write_text("".join(f"{line}\n" for line in lines), "utf-8")
    assert (
        json.loads(out(capsys, "translate", place / kind, "--file", path, "--beam", "2", "--json")[2])[
            "source"
        ]
        == "the old dog"
    )
    aligned = out(capsys, "translate", place / kind, "--file", path, "--beam", "1", "--align")
    assert all("|||" in line for line in aligned) and aligned[7] == "12 + 3 ||| 0-0 1-1 2-2"
    found = out(
        capsys,
        "translate",
        place / kind,
        "--file",
        path,
        "--beam",
        "2",
        "--unk",
        "replace",
        "--coverage",
        "0.2",
    )
    assert len(found) == len(lines) and not any("<unk>" in line for line in found)


def test_a_source_of_unknown_words_alone_gives_those_words_back_or_others(
    place: Path, capsys, monkeypatch
) -> None:
    """Nothing in it is known; whatever comes out is made of known words, or with --unk replace of the source's own too."""
    for options, allowed in (
        ((), set(WORDS) | set(WORDS.values())),
        (("--unk", "replace"), {*WORDS, *WORDS.values(), "qux", "zork"}),
    ):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"qux zork\n")))
        [line] = out(capsys, "translate", place / "Words", *options)
        assert set(line.split()) <= allowed


def test_files_that_do_not_line_up_are_one_line(place: Path, capsys, tmp_path: Path) -> None:
    (tmp_path / "short.fr").write_text("le chien\n", "utf-8")
    files = ["--data", place / "a.en", tmp_path / "short.fr", "--out", tmp_path / "run"]
    said = wrong(capsys, "train", "rnnsearch", *SMALL, "tokenizer.size=300", *files)
    assert (
        "a.en has 120 lines" in said
        and "short.fr has 1; make them line up" in said
        and not (tmp_path / "run").exists()
    )
    (tmp_path / "bad.tsv").write_text("the\tle\ndog\n", "utf-8")
    said = wrong(
        capsys,
        "train",
        "rnnsearch",
        *SMALL,
        "corpus.type=Table",
        "--data",
        tmp_path / "bad.tsv",
        "--out",
        tmp_path / "run",
    )
    assert "bad.tsv:2: 1 cells, but the first row has 2" in said


def test_an_ensemble_of_unlike_tokenizers_is_one_line(place: Path, capsys) -> None:
    said = wrong(
        capsys, "translate", place / "Words", "--file", place / "a.en", "--ensemble", place / "Characters"
    )
    assert "its tokenizer differs from that of" in said and "tokenizer.type=File" in said


def test_what_needs_attention_says_so(place: Path, capsys) -> None:
    small = [f"model.{side}.{what}" for side in ("encoder", "decoder") for what in ("dim=8", "layers=1")]
    said = [
        "model.dim=8",
        *small,
        "train.steps=2",
        "train.eval_every=2",
        "tokenizer={type: Words}",
        "corpus.type=Table",
    ]
    main(
        [
            "train",
            "seq2seq",
            *said,
            "--data",
            str(place / "pairs.tsv"),
            "--out",
            str(place / "blind"),
            "--threads",
            "1",
        ]
    )
    for options in (["--align"], ["--coverage-penalty", "0.2"], ["--replace-unknowns"]):
        assert "has no attention over its source" in wrong(
            capsys, "translate", place / "blind", "--file", place / "a.en", *options
        )
    assert len(out(capsys, "translate", place / "blind", "--file", place / "a.en")) == 120
    both = out(
        capsys,
        "translate",
        place / "blind",
        "--file",
        place / "a.en",
        "--ensemble",
        place / "Words",
        "--beam",
        "2",
        "--align",
    )
    assert len(both) == 120 and all("|||" in line for line in both)


def test_a_second_stage_goes_on_from_a_run(place: Path, capsys) -> None:
    """GNMT's: another objective on the weights of a finished run, with its tokenizer."""
    said = [
        "objective={type: mixed_reward, samples: 2}",
        "train.steps=2",
        "train.eval_every=2",
        "corpus.type=Table",
        "tokenizer={type: Words}",
        *SMALL[:4],
    ]
    files = ["--from", place / "Words", "--data", place / "pairs.tsv", "--out", place / "two"]
    main(["train", "rnnsearch", *said, *map(str, files), "--threads", "1"])
    first, second = ((place / name / "tokenizer.json").read_text("utf-8") for name in ("Words", "two"))
    assert (
        first == second
        and len(out(capsys, "translate", place / "two", "--file", place / "a.en", "--beam", "1")) == 120
    )
