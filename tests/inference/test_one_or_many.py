"""What counts as one input and what as many is one rule for every verb; what is neither is refused with what to give."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import seqloom
from seqloom.cli import main
from seqloom.decoding import Decoding
from seqloom.errors import UserError

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "v1"
VERBS: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "generate": ("gru", lambda run, texts: seqloom.generate(run, texts, max_tokens=1)),
    "score": ("gru", lambda run, texts: seqloom.score(run, texts)),
    "translate": ("rnnsearch", lambda run, texts: seqloom.translate(run, texts, max_tokens=2)),
    "embed": ("encoder", lambda run, texts: seqloom.embed(run, texts)),
    "fill_mask": ("bert", lambda run, texts: seqloom.fill_mask(run, texts)),
    "predict": ("classifier", lambda run, texts: seqloom.predict(run, texts)),
}
TEXTS = ["the cat [MASK]", "a dog [MASK]"]
Verb = tuple[str, Callable[[Any], Any]]


@pytest.fixture(scope="module", params=list(VERBS))
def verb(request: pytest.FixtureRequest) -> Verb:
    name, call = VERBS[request.param]
    run = seqloom.load(GOLDEN / name)
    return request.param, lambda texts: call(run, texts)


@pytest.mark.parametrize(
    "wrong", [None, 3, b"abc", {"a", "b"}, {"a": 1}, range(2), [1], [None], np.array([1, 2]), np.array("a")]
)
def test_what_is_no_text_is_refused_with_what_to_give(verb: Verb, wrong: Any):
    _, call = verb
    with pytest.raises(UserError, match="give") as refused:
        call(wrong)
    given = wrong[0] if isinstance(wrong, list) else wrong
    said = str(refused.value)
    assert any(kind in said for kind in ("None", type(given).__name__, "int")) and "reader" not in said


def test_many_texts_come_in_a_list_an_array_or_a_stream(verb: Verb):
    name, call = verb
    listed, stream = call(TEXTS), call(iter(TEXTS))
    assert isinstance(stream, Iterator) and isinstance(listed, np.ndarray if name == "embed" else list)
    others = [np.array(TEXTS), np.array(TEXTS, dtype=object)]
    if name != "predict":  # where a tuple of texts is one record
        others.append(tuple(TEXTS))  # type: ignore[arg-type]
    for given in others:
        found = call(given)
        assert type(found) is type(listed)
        assert np.array_equal(found, listed) if name == "embed" else found == listed
    assert len(call([])) == 0 and type(call([])) is type(listed)


def test_no_texts_have_vectors_of_the_same_length():
    run = seqloom.load(GOLDEN / "encoder")
    assert seqloom.embed(run, []).shape == (0, seqloom.embed(run, "a").shape[0])


def test_a_tuple_of_texts_is_one_record_for_predict_and_a_tuple_of_records_many():
    tagger, nli = seqloom.load(GOLDEN / "tagger"), seqloom.load(GOLDEN / "nli")
    assert seqloom.predict(tagger, ("the", "cat")).words == ["the", "cat"]
    assert len(seqloom.predict(nli, (("a cat", "a dog"), ("a cat", "a cat")))) == 2
    with pytest.raises(UserError, match="record 1 is 2 texts; give a str for each record, and several"):
        seqloom.predict(seqloom.load(GOLDEN / "classifier"), ("a", "b"))
    with pytest.raises(UserError, match="record 2 is a dict; give a tuple of 2 str"):
        seqloom.predict(nli, [("a", "b"), {"first": "a", "second": "b"}])


@pytest.mark.parametrize(
    "options, said",
    [
        ({"max_tokens": 2.5}, "max_tokens is 2.5: give a whole number"),
        ({"max_tokens": True}, "max_tokens is True: give a whole number"),
        ({"max_tokens": "5"}, "max_tokens is '5': give a whole number"),
        ({"seed": "a"}, "seed is 'a'"),
        ({"n": "a"}, "n is 'a'"),
        ({"n": None}, "n is None"),
        ({"temperature": "hot"}, "temperature is 'hot': give a number"),
        ({"stop": 5}, "stop is 5: give a str, or a list of them"),
        ({"stop": ["a", 5]}, "stop is"),
        ({"stop": b"ab"}, "stop is"),
        ({"beam": float("nan")}, "beam is nan"),
    ],
)
def test_options_have_types(options: dict[str, Any], said: str):
    with pytest.raises(UserError, match=said):
        Decoding().with_options(options)  # type: ignore[arg-type]
    with pytest.raises(UserError, match=said):
        Decoding(**options)


def test_numbers_of_numpy_are_numbers():
    made = Decoding(max_tokens=np.int64(3), temperature=np.float32(0.5), top_k=5.0)  # type: ignore[arg-type]
    assert (made.max_tokens, made.temperature, made.top_k) == (3, 0.5, 5)


def test_a_beam_beside_greedy_is_the_beam(capsys: pytest.CaptureFixture[str]):
    run = str(GOLDEN / "gru")
    outputs = []
    for options in ([], ["--greedy"], ["--temperature", "0"]):
        main(["generate", run, "the cat", "--beam", "3", "--max-tokens", "4", *options])
        outputs.append(capsys.readouterr().out)
    assert len(set(outputs)) == 1
    assert seqloom.generate(run, "the cat", beam=3, temperature=0, max_tokens=4).text in outputs[0]
    with pytest.raises(UserError, match="beam search does not sample"):
        seqloom.generate(run, "the cat", beam=3, temperature=1)


def test_a_run_prints_as_one_line():
    run = seqloom.load(GOLDEN / "gru")
    for one in (run, seqloom.quantize(run)):
        assert repr(one).startswith(f"Run({str(GOLDEN / 'gru')!r}, task='language modelling', parameters=")
    assert repr(seqloom.ensemble(run, run)).count("\n") == 0


def test_nothing_scored_has_no_perplexity(capsys: pytest.CaptureFixture[str], tmp_path: Path):
    run = next(path for path in map(GOLDEN.joinpath, ("gpt", "moe-lm")) if not seqloom.load(path).adds_eos)
    found = seqloom.score(run, "")
    assert found.perplexity is None and found.tokens == () and found.logprob == 0
    main(["score", str(run), ""])
    assert capsys.readouterr().out == "0.0000\t0\t–\t\n"
    lines = tmp_path / "lines.txt"
    lines.write_text("a\n\nb\n")
    main(["score", str(run), "--file", str(lines), "--json"])
    said = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["perplexity"] is None for one in said] == [False, True, False]
    assert [one["text"] for one in said] == ["a", "", "b"]


def test_json_has_the_input(capsys: pytest.CaptureFixture[str]):
    main(["score", str(GOLDEN / "rnnsearch"), "the cat\tTHE CAT", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert (said["text"], said["target"]) == ("the cat", "THE CAT")
    main(["fill-mask", str(GOLDEN / "bert"), "the [MASK]", "--json"])
    said = json.loads(capsys.readouterr().out)
    assert said["source"] == "the [MASK]" and said["text"].startswith("the ")
    main(["translate", str(GOLDEN / "rnnsearch"), "the cat", "--json"])
    [output] = json.loads(capsys.readouterr().out)["outputs"]
    assert "token_logprobs" not in output
    main(["translate", str(GOLDEN / "rnnsearch"), "the cat", "--beam", "1", "--json"])
    [output] = json.loads(capsys.readouterr().out)["outputs"]
    assert sum(output["token_logprobs"]) == pytest.approx(output["logprob"], abs=1e-4)


def test_a_lone_empty_text_has_no_vector(capsys: pytest.CaptureFixture[str]):
    for text in ("", " "):
        with pytest.raises(UserError, match="an empty text has no vector"):
            seqloom.embed(GOLDEN / "encoder", text)
        with pytest.raises(SystemExit):
            main(["embed", str(GOLDEN / "encoder"), text])
        assert "an empty text has no vector" in capsys.readouterr().err
    assert len(seqloom.embed(GOLDEN / "encoder", ["", "a"])) == 2


def test_every_verb_warns_once_of_what_it_does_not_know(verb: Verb, caplog: pytest.LogCaptureFixture):
    """After the results, and not for a rare word among others."""
    caplog.set_level(logging.WARNING)
    name, call = verb
    mask = " [MASK]" if name == "fill_mask" else ""
    call([f"the cat{mask}", f"the dog sees a tacat{mask}"])
    assert not [message for message in caplog.messages if "vocabulary" in message]
    for given in (["日本", "日本 the cat"], ["the 日本"] * 3):
        for texts in (
            [text + mask for text in given],
            given[0] + mask,
            iter([text + mask for text in given]),
        ):
            caplog.clear()
            found = call(texts)
            if isinstance(found, Iterator):
                next(found)
                assert not caplog.messages
                list(found)
            [message] = [message for message in caplog.messages if "of the input" in message]
            assert "not in its vocabulary" in message and "日" in message


@pytest.mark.parametrize(
    "words",
    [
        ["predict", "classifier", "日本"],
        ["translate", "rnnsearch", "日本", "日本"],
        ["fill-mask", "bert", "日本 [MASK]"],
        ["embed", "encoder", "日本", "日"],
        ["score", "rnnsearch", "日本\tTHE", "日本\tCAT"],
    ],
)
def test_every_verb_of_the_command_line_warns_once(words: list[str], capsys: pytest.CaptureFixture[str]):
    main([words[0], str(GOLDEN / words[1]), *words[2:]])
    shown = capsys.readouterr()
    assert shown.err.count("\n") == 1 and "of the input" in shown.err and shown.out
