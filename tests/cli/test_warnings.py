"""What a run cannot do well is said in one line, before or after it is done."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tokenizers import Tokenizer

from seqloom.cli import main
from seqloom.cli.caption import caption_lines
from seqloom.cli.decoding_options import Captioning
from seqloom.cli.train import describe_results
from seqloom.decoding import Decoding
from seqloom.inference.unknown_text import UnknownText
from seqloom.text.tokenizer import BPE, Characters, Words, special_tokens

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"


def small_bytes(texts: list[str]) -> Tokenizer:
    """Byte pairs of text with one letter beyond ASCII."""
    return BPE([*texts, "\u00e8 " * 20], size=300)


@pytest.mark.parametrize(
    "make, texts, said",
    [
        (
            Characters,
            ["日本 abc", "日"],
            "3 characters of the input are not in its vocabulary ('日', '本')",
        ),
        (Words, ["abc 日本"], "1 word of the input is not in its vocabulary ('日本')"),
        (Characters, ["abc"], ""),
        (Words, ["abc ab abc cab", "abc <unk>"], ""),  # a rare word
        (Words, ["abc cab cab"], "2 words of the input are not in its vocabulary ('cab')"),
        (Words, ["abc ab abc c\u00e9b"], "1 word of the input is not in its vocabulary ('c\u00e9b')"),
        (small_bytes, ["日本 ab", "日"], "3 characters of the input are not in its vocabulary ('日', '本')"),
        (small_bytes, ["\u00e9 \u00e8"], ""),  # whose first byte begins a token
    ],
)
def test_what_a_tokenizer_does_not_know_is_counted_once(
    make: Any, texts: list[str], said: str, caplog: pytest.LogCaptureFixture
):
    tokenizer = make(["abc c ab"])
    run: Any = SimpleNamespace(folder=Path("runs/a"), tokenizer=tokenizer, specials=special_tokens(tokenizer))
    unknown = UnknownText(run)
    assert list(unknown.counted(iter(texts))) == texts
    unknown.warn()
    assert len(caplog.messages) == bool(said) and said in "".join(caplog.messages)


def test_verbs_warn_of_unknown_words(capsys: pytest.CaptureFixture[str]):
    run = str(GOLDEN / "lstm-words")
    for words in (["generate", run, "日本"], ["generate", run, "日本", "日本"], ["score", run, "日本"]):
        main([*words, *(["--max-tokens", "2"] if words[0] == "generate" else [])])
        assert capsys.readouterr().err.count("('日本')") == 1


def test_a_chat_with_a_run_without_chats_warns(capsys: pytest.CaptureFixture[str]):
    run = str(GOLDEN / "gru")
    main(["chat", run, "--once", "a", "--max-tokens", "2"])
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1 and f"seqloom train sft --from {run}" in shown.err
    for words, said in (
        (["chat", run, "--once", " "], "--once: an empty message"),
        (["chat", str(GOLDEN / "attentive"), "--once", "a"], "chat does not fit this run"),
    ):
        with pytest.raises(SystemExit) as end:
            main(words)
        assert end.value.code == 2 and said in capsys.readouterr().err


def test_the_last_line_of_a_training_says_which_step_is_kept():
    results = SimpleNamespace(valid=[], promised=None, actual=None, best_step=136, steps=480)
    run: Any = SimpleNamespace(results=results, config=SimpleNamespace(tree={"train": {}}))
    assert next(describe_results(run)).endswith("kept: step 136 of 480, the best on held-out data")
    for changed in ({"best_step": 480}, {"best_step": None}):
        vars(results).update(changed)
        assert "kept" not in next(describe_results(run))


def test_empty_captions_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    caplog.set_level(logging.WARNING)
    picture = tmp_path / "a.png"
    picture.write_bytes(b"")

    def found(run: Any, plan: Any, pictures: list[str]) -> list[Any]:
        return [SimpleNamespace(file=name, text="", outputs=[SimpleNamespace(text="")]) for name in pictures]

    monkeypatch.setattr("seqloom.inference.captioning.caption_pictures", found)
    run: Any = SimpleNamespace(folder=Path("runs/a"), decoding=None)
    monkeypatch.setattr(Decoding, "plan", lambda settings, run_settings: None)
    assert list(caption_lines(run, [str(picture)], Captioning(), 0, False)) == [f"{picture}\t\n"]
    assert caplog.messages[0].startswith("runs/a: 1 of 1 captions are empty")
