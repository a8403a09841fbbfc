"""What is read of texts that are too long: a word that is cut in half is left out, and runs that are compared read the same."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from seqloom.cli import main
from seqloom.errors import DataError
from seqloom.inspect import contexts, geometry, similarity
from seqloom.inspect.shared_texts import before_word, characters_read, share, token_limit
from seqloom.inspect.vector_pages import geometry_page, similarity_page

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
WORD = "river"
SHORT = ["the river", "a river", "river man", "cat, river, man"]  # shorter than any context


def cut_at(run, characters: int) -> list[str]:
    """A text whose word ends so many characters after the last one that the run reads."""
    limit = token_limit(run, 512)
    before, _ = run.specials.frame(run.adds_eos)
    filler = "a " * 600
    start = limit - len(before) - len(WORD) + characters
    return [f"{filler[: start - 1]} {WORD} sees the man"]


@pytest.mark.parametrize("characters", [1, len(WORD) - 1, len(WORD)])
def test_a_word_that_is_cut_in_half_is_left_out_and_counted(runs, characters: int, tmp_path: Path, capsys):
    """Its vector at the embedding would be the mean of some of its letters only."""
    run = runs("gpt")
    whole = contexts(run, WORD, [*SHORT, *cut_at(run, 0)])
    assert len(whole.contexts) == 5 and whole.left_out == 0
    assert whole.static_mean_cosine == pytest.approx(1, abs=1e-6)
    texts = [*SHORT, *cut_at(run, characters)]
    found = contexts(run, WORD, texts)
    assert len(found.contexts) == 4 and found.left_out == 1
    assert found.static_mean_cosine == pytest.approx(1, abs=1e-6)
    (tmp_path / "texts.txt").write_text("\n".join(texts))
    words = ["inspect", "contexts", str(run.folder), WORD, "--file", str(tmp_path / "texts.txt"), "-q"]
    main([*words, "--out", str(tmp_path / "page.html")])
    said = "1 more occurrence is not read whole"
    assert said in capsys.readouterr().out and said in (tmp_path / "page.html").read_text()
    main([*words, "--json"])
    assert json.loads(capsys.readouterr().out)["left_out"] == 1
    with pytest.raises(DataError, match="1 of 2 occurrences are read whole"):
        contexts(run, WORD, [SHORT[0], *cut_at(run, characters)])


LONG = "the old cat sees a river and a man sees the cat near the old river " * 30


def context_of(run) -> int:
    assert run.model.context is not None
    return run.model.context


def test_runs_that_are_compared_read_the_same_of_a_long_text(runs, caplog):
    """A run of a short context and one of any: what the second reads is what the first reads too."""
    narrow, wide = runs("gpt"), runs("lstm")
    texts = [*SHORT, LONG]
    alone = [geometry(run, texts) for run in (narrow, wide)]
    assert alone[0].cut == alone[1].cut == 1 and alone[0].tokens != alone[1].tokens
    for run in (narrow, wide):
        assert f"{run.folder}: 1 of 5 texts are cut at {token_limit(run, 512)} tokens" in caplog.text
    caplog.clear()
    both = geometry([narrow, wide], texts)
    assert "1 of 5 texts are cut to the part that every run reads whole" in caplog.text
    assert all(str(run.folder) in caplog.text for run in (narrow, wide))
    part = share([narrow, wide], texts, 512).texts[-1]
    assert LONG.startswith(f"{part} ") and len(part) > context_of(narrow) - 12
    for one, run in zip(both.runs, (narrow, wide), strict=True):
        ids, mask = run.encode([*SHORT, part])
        assert one.tokens == int(mask.sum()) and ids.shape[1] <= token_limit(run, 512) and one.cut == 1
        same = geometry(run, [*SHORT, part])
        assert same.layers == one.layers and same.cut == 0
    compared = similarity(narrow, wide, texts)
    assert compared.tokens == tuple(one.tokens for one in both.runs) and compared.cut == 1
    assert np.array_equal(compared.cka, similarity(narrow, wide, [*SHORT, part]).cka)
    page = geometry_page(both.runs)
    for one in both.runs:
        assert f"{Path(one.run).name}: 5 texts, 1 of them cut, {one.tokens:,} tokens" in page
    page = similarity_page(compared, "a", "b")
    assert "1 of them cut to the part that both runs read whole" in page and f"a {compared.tokens[0]}" in page


def test_the_order_of_runs_and_texts_that_fit_change_nothing(runs):
    narrow, wide = runs("gpt"), runs("lstm")
    assert (
        share([narrow, wide], [LONG, *SHORT], 512).texts == share([wide, narrow], [LONG, *SHORT], 512).texts
    )
    assert share([narrow, wide], SHORT, 512) == (SHORT, 0)
    assert share([narrow], [LONG], 512) == ([LONG], 0)


@pytest.mark.parametrize(
    "names", [("gpt", "lstm"), ("gpt", "bert"), ("gpt2", "lstm"), ("transformer", "encoder")]
)
@pytest.mark.parametrize("text", [LONG, "x" * 3000, "río 小さな猫 🙂🙃 " * 200, "a\n\nb " * 500])
def test_every_run_reads_the_shared_part_whole(runs, names: tuple[str, str], text: str):
    chosen = [runs(name) for name in names]
    for most in (16, 40, 512):
        [part] = share(chosen, [text], most).texts
        assert part and text.startswith(part)
        for run in chosen:
            limit = token_limit(run, most)
            assert characters_read(run, part, limit) == len(part)
            assert run.encode([part])[0].shape[1] <= limit


def test_texts_of_which_the_runs_can_read_nothing_are_named(runs):
    with pytest.raises(DataError, match=r"text 1: .* leave it out"):
        share([runs("bert"), runs("encoder")], ["a", LONG], 2)


@pytest.mark.parametrize(
    ("text", "end", "part"),
    [("ab cd", 4, "ab"), ("ab cd", 2, "ab"), ("ab cd", 3, "ab"), ("abcd", 3, "abc"), (" abc", 3, " ab")],
)
def test_a_text_is_cut_before_a_word(text: str, end: int, part: str):
    assert before_word(text, end) == part


def test_the_verbs_say_what_each_run_read(tmp_path: Path, capsys):
    for name in ("gpt", "gru"):
        shutil.copytree(GOLDEN / name, tmp_path / name)
    (tmp_path / "t.txt").write_text("\n".join([*SHORT, LONG]))
    pair = [str(tmp_path / "gpt"), str(tmp_path / "gru"), "--file", str(tmp_path / "t.txt"), "-q"]
    main(["inspect", "geometry", *pair])
    lines = capsys.readouterr().out.splitlines()
    for name in ("gpt", "gru"):
        assert any(line.startswith(f"{tmp_path / name}: 5 texts, 1 of them cut, ") for line in lines)
    assert any("every run reads the same part" in line for line in lines)
    main(["inspect", "similarity", *pair])
    assert "1 of them cut to the part that both runs read whole; tokens: " in capsys.readouterr().out
    main(["inspect", "geometry", *pair, "--json"])
    assert [one["cut"] for one in json.loads(capsys.readouterr().out)["runs"]] == [1, 1]


def test_runs_that_are_none_are_said(runs):
    for wrong in ([], None, 3):
        with pytest.raises(DataError, match="give a run, or a list of runs"):
            geometry(wrong, SHORT)
