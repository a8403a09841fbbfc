"""One text in, one result out, from Python and from the command line; scores against loops; on small runs of older versions."""

import io
import json
import logging
import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
from seqloom.cli import main
from seqloom.decoding import Decoding
from seqloom.inference.one_or_many import MAX_BLOCK
from seqloom.inference.scoring import split_into_windows

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "v1"
PROMPTS = ["the cat", "a old king sees", "", "the"]


def load(name: str) -> seqloom.Run:
    return seqloom.load(GOLDEN / name)


# One text is one text


def test_one_prompt_gives_one_result_and_a_list_a_list() -> None:
    run = load("gru")
    one = seqloom.generate(run, "the cat", max_tokens=4, seed=1)
    assert (one.prompt, one.text) == ("the cat", one.outputs[0].text)
    several = seqloom.generate(run, PROMPTS, max_tokens=4, seed=1)
    assert [found.prompt for found in several] == PROMPTS and several[0].text == one.text
    lazy = seqloom.generate(run, iter(PROMPTS), max_tokens=4, seed=1)
    assert isinstance(lazy, Iterator) and [found.text for found in lazy] == [one.text for one in several]
    assert seqloom.generate(GOLDEN / "gru", "the cat", Decoding(max_tokens=4, seed=1)) == one


def test_a_repeated_prompt_gets_the_same_texts_from_a_list_and_from_a_stream() -> None:
    run = load("gru")
    prompts = ["the cat"] * 5
    listed = [found.text for found in seqloom.generate(run, prompts, max_tokens=6)]
    assert len({*listed}) > 1
    assert [found.text for found in seqloom.generate(run, iter(prompts), max_tokens=6)] == listed


@pytest.mark.parametrize(
    "name, call",
    [
        ("gru", lambda run, texts: seqloom.generate(run, texts, max_tokens=1)),
        ("gru", seqloom.score),
        ("bert", lambda run, texts: seqloom.fill_mask(run, texts)),
        ("encoder", lambda run, texts: seqloom.embed(run, texts)),
    ],
)
def test_a_stream_is_read_as_its_results_are_used(name: str, call) -> None:
    read = 0

    def prompts() -> Iterator[str]:
        nonlocal read
        for _ in range(100_000):
            read += 1
            yield "the [MASK]"

    results = call(load(name), prompts())
    assert read == 0
    next(results)
    assert read == 1
    for _ in range(600):
        next(results)
    assert read <= 601 + MAX_BLOCK


def test_texts_of_a_stream_are_those_of_generate() -> None:
    run = load("gpt")
    for options in ({"temperature": 0}, {"seed": 3, "top_k": 5}, {"stop": ("o", "e a")}):
        [output] = seqloom.generate(run, "the cat", max_tokens=30, **options).outputs
        tokens = list(seqloom.stream(run, "the cat", max_tokens=30, **options))
        assert "".join(token.text for token in tokens) == output.text
        assert tuple(token.id for token in tokens) == output.ids
        assert [token.logprob for token in tokens] == pytest.approx(
            output.token_logprobs[: len(tokens)], abs=1e-4
        )
    with pytest.raises(ValueError, match="only one text can be streamed"):
        seqloom.stream(run, "the cat", n=2)


def test_one_text_gives_one_vector(caplog: pytest.LogCaptureFixture) -> None:
    run = load("encoder")
    texts = ["the cat sees", "a dog", "the old king hears a river"]
    vectors = seqloom.embed(run, texts)
    assert vectors.shape == (3, 4) and np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    for text, vector in zip(texts, vectors, strict=True):
        one = seqloom.embed(run, text)
        assert one.shape == (4,) and np.allclose(one, vector, atol=1e-6)
    assert np.allclose(np.stack(list(seqloom.embed(run, iter(texts)))), vectors, atol=1e-6)
    assert not caplog.records
    with caplog.at_level(logging.WARNING, "seqloom"):
        seqloom.embed(run, texts, max_input_tokens=4)
    assert [record.message for record in caplog.records] == [
        "a text is cut at 4 tokens: raise max_input_tokens"
    ]


def test_filled_masks_are_results() -> None:
    run = load("bert")
    text = "the [MASK] sees a dog"
    one = seqloom.fill_mask(run, text, top=3)
    assert seqloom.fill_mask(run, [text, text], top=3) == [one, one]
    assert one.to_dict()["gaps"][0][0].keys() == {"token", "probability"}


# Scores


def loop_score(run: seqloom.Run, prompt: list[int], ids: list[int]) -> list[float]:
    """ln p of each id, from the whole text before it each time."""
    known, found = list(prompt), []
    for token in ids:
        with torch.no_grad():
            logits = run.model(torch.tensor([known]))[0][0, -1]
        found.append(float(torch.log_softmax(logits.double(), -1)[token]))
        known.append(token)
    return found


@pytest.mark.parametrize("name", ["gru", "lstm-words", "rotary", "alibi", "elmo"])
def test_a_score_is_that_of_a_loop(name: str) -> None:
    run = load(name)
    texts = ["the cat sees a dog", "a", "the old king"]
    end = [run.specials.eos] if run.adds_eos else []
    start = run.encode([""], as_prompt=True)[0][0].tolist()
    together = seqloom.score(run, texts)
    for text, found in zip(texts, together, strict=True):
        ids = [*run.tokenizer.encode(text, add_special_tokens=False).ids, *end]
        wanted = loop_score(run, start, ids)
        assert found.token_logprobs == pytest.approx(wanted, abs=1e-4)
        assert found.logprob == pytest.approx(sum(wanted), abs=1e-4) and len(found.tokens) == len(ids)
        assert found.perplexity == pytest.approx(math.exp(-sum(wanted) / len(ids)), rel=1e-4)
        assert seqloom.score(run, text).logprob == pytest.approx(found.logprob, abs=1e-4)
    prompt = run.encode(["the cat"], as_prompt=True)[0][0].tolist()
    after = seqloom.score(run, "the cat", " sees")
    sees = run.tokenizer.encode("sees", add_special_tokens=False).ids
    assert after.token_logprobs == pytest.approx(loop_score(run, prompt, [*sees, *end]), abs=1e-4)


@pytest.mark.parametrize("name", ["gpt", "gru", "cells"])
def test_generate_reports_the_score_of_its_own_text(name: str) -> None:
    run = load(name)
    checked = 0
    for prompt in ("", "the cat"):
        for output in seqloom.generate(run, prompt, n=6, max_tokens=8, seed=2).outputs:
            if (output.finish_reason == "stop") != run.adds_eos:
                continue  # scores of complete texts have their end
            found = seqloom.score(run, prompt, output.text)
            assert found.logprob == pytest.approx(output.logprob, abs=1e-3)
            checked += 1
    assert checked > 2


def test_translations_have_the_score_that_translate_reports() -> None:
    run = load("rnnsearch")
    sources = ["the cat sees a dog", "the old king"]
    outputs = [found.outputs[0] for found in seqloom.translate(run, sources, max_tokens=300)]
    found = seqloom.score(run, sources, [output.text for output in outputs])
    for one, output in zip(found, outputs, strict=True):
        if output.finish_reason == "stop":
            assert one.logprob == pytest.approx(output.logprob, abs=1e-3)
    alone = seqloom.score(run, sources[0], "THE CAT")
    assert alone.logprob == pytest.approx(seqloom.score(run, sources, ["THE CAT", "A"])[0].logprob, abs=1e-4)


def test_a_masked_model_scores_each_token_from_all_others() -> None:
    run = load("bert")
    found = seqloom.score(run, "the cat sees")
    first, *ids, last = [
        run.specials.bos,
        *run.tokenizer.encode("the cat sees", add_special_tokens=False).ids,
        run.specials.eos,
    ]
    mask = run.specials.mask
    wanted = []
    for place, token in enumerate(ids):
        row = [first, *ids[:place], mask, *ids[place + 1 :], last]
        with torch.no_grad():
            log_p = run.model(torch.tensor([row]))[0].log_softmax(-1)
        wanted.append(float(log_p[0, place + 1, token]))
    assert found.token_logprobs == pytest.approx(wanted, abs=1e-4)


def test_windows_count_every_token_once_with_half_a_context_before_it() -> None:
    for length in (1, 5, 8, 9, 23, 64):
        prompt, ids = [0], list(range(1, length + 1))
        for context in (None, 2, 7, 8, 100):
            counted = []
            for row in split_into_windows(prompt, ids, context):
                assert len(row.ids) == len(row.next_ids) <= (context or 1000)
                for place in range(row.skip, len(row.ids)):
                    assert row.ids[place] + 1 == row.next_ids[place]
                    assert row.ids[0] == 0 or place >= (context or 0) // 2
                    counted.append(row.next_ids[place])
            assert counted == ids


def test_a_text_longer_than_the_context_is_scored() -> None:
    run = load("gpt")
    text = "the cat sees a dog " * 5
    assert len(seqloom.score(run, text).tokens) == len(text) > run.model.context


def test_wrong_scores_are_refused() -> None:
    with pytest.raises(ValueError, match="give a target for each text or picture, its translation"):
        seqloom.score(load("rnnsearch"), "the cat")
    with pytest.raises(ValueError, match="there is no target 2"):
        seqloom.score(load("gru"), ["a", "the"], ["cat"])
    with pytest.raises(ValueError, match="score does not fit this run, which predicts labels"):
        seqloom.score(load("classifier"), "a")
    with pytest.raises(ValueError, match="without targets"):
        seqloom.score(load("bert"), "a", "b")


# The command line


def test_an_option_takes_one_value(capsys: pytest.CaptureFixture) -> None:
    run = str(GOLDEN / "gru")
    words = ["--greedy", "--max-tokens", "3"]
    for command in (["--stop", "END", "the king"], ["the king", "--stop", "END"]):
        main(["generate", run, *command, *words])
        assert capsys.readouterr().out == "the king a a a\n"


def test_a_stop_string_is_written_with_escapes(capsys: pytest.CaptureFixture) -> None:
    run = load("gpt")
    seed = next(
        seed
        for seed in range(50)
        if "\n" in seqloom.generate(run, "the cat", max_tokens=60, seed=seed).text[1:]
    )
    whole = seqloom.generate(run, "the cat", max_tokens=60, seed=seed).text
    command = ["generate", str(GOLDEN / "gpt"), "the cat", "--max-tokens", "60", "--seed", str(seed)]
    main([*command, "--stop", r"\n", "--stop", "never there", "--json"])
    [output] = json.loads(capsys.readouterr().out)["outputs"]
    assert (output["text"], output["stop_reason"]) == (whole.split("\n")[0], "\n")


def test_prompts_come_from_arguments_files_or_stdin(
    capsys: pytest.CaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, options = str(GOLDEN / "gru"), ["--max-tokens", "3", "--json"]
    main(["generate", run, "the cat", "a dog", *options])
    wanted = capsys.readouterr().out
    file = tmp_path / "prompts.txt"
    file.write_text("the cat\na dog\n", "utf-8")
    main(["generate", run, "--file", str(file), *options])
    assert capsys.readouterr().out == wanted
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the cat\na dog\n")))
    main(["generate", run, *options])
    assert capsys.readouterr().out == wanted
    with pytest.raises(SystemExit) as left:
        main(["generate", run, str(file)])
    assert left.value.code == 2 and f"read it with --file {file}" in capsys.readouterr().err


def test_json_is_the_result(capsys: pytest.CaptureFixture) -> None:
    def told(*words: str) -> dict:
        main([words[0], str(GOLDEN / words[1]), *words[2:], "--json"])
        return json.loads(capsys.readouterr().out)

    assert told("generate", "gru", "the", "--max-tokens", "3", "--seed", "4") == (
        seqloom.generate(load("gru"), "the", max_tokens=3, seed=4).to_dict()
    )
    assert told("score", "gru", "the cat") == seqloom.score(load("gru"), "the cat").to_dict()
    assert told("fill-mask", "bert", "a [MASK]", "--top", "2") == (
        seqloom.fill_mask(load("bert"), "a [MASK]", top=2).to_dict()
    )


def test_alternatives_of_a_token_hold_the_greedy_one(capsys: pytest.CaptureFixture) -> None:
    main(
        [
            "generate",
            str(GOLDEN / "gru"),
            "the",
            *["--greedy", "--max-tokens", "4", "--top-logprobs", "3", "--json"],
        ]
    )
    [output] = json.loads(capsys.readouterr().out)["outputs"]
    assert len(output["top_logprobs"]) == len(output["tokens"]) == 4
    for token, log_p, alternatives in zip(
        output["tokens"], output["token_logprobs"], output["top_logprobs"], strict=True
    ):
        assert len(alternatives) == 3 and alternatives[0]["token"] == token
        assert alternatives[0]["logprob"] == pytest.approx(log_p, abs=1e-4)


def test_score_prints_a_line_for_each_text(capsys: pytest.CaptureFixture) -> None:
    main(["score", str(GOLDEN / "rnnsearch"), "the cat\tTHE CAT", "--per-token"])
    line, *tokens = capsys.readouterr().out.splitlines()
    log_p, count, perplexity, *pair = line.split("\t")
    assert pair == ["the cat", "THE CAT"] and int(count) == len(tokens)
    assert float(perplexity) == pytest.approx(math.exp(-float(log_p) / len(tokens)), rel=1e-3)
    assert sum(float(token.split()[0]) for token in tokens) == pytest.approx(float(log_p), abs=1e-3)
    with pytest.raises(SystemExit) as left:
        main(["score", str(GOLDEN / "rnnsearch"), "the cat"])
    assert left.value.code == 2 and "one tab between them" in capsys.readouterr().err


def test_vectors_are_written_whole(capsys: pytest.CaptureFixture, tmp_path: Path) -> None:
    out = tmp_path / "x.npy"
    main(["embed", str(GOLDEN / "encoder"), "the cat", "a dog", "--out", str(out), "-q"])
    assert capsys.readouterr().out == f"vectors: {out}\n"
    assert np.allclose(np.load(out), seqloom.embed(load("encoder"), ["the cat", "a dog"]), atol=1e-6)


def test_the_right_verb_and_the_right_option_are_named(capsys: pytest.CaptureFixture) -> None:
    for words, message in (
        (["generate", "rnnsearch", "a"], "which translates; use: seqloom translate"),
        (["generate", "bert", "a"], "use: seqloom fill-mask"),
        (["embed", "rnnsearch", "a"], "use: seqloom translate"),
        (["generate", "gru", "a", "--max-new-tokens", "3"], "here it is --max-tokens"),
        (["generate", "gru", "a", "--beam", "2", "--top-k", "3"], "beam search does not sample"),
        (["generate", "gru", "a", "--beam", "2", "--logprobs"], "use --beam 1"),
        (["generate", "gru", "a", "--greedy", "--temperature", "2"], "drop one of them"),
    ):
        with pytest.raises(SystemExit) as left:
            main([words[0], str(GOLDEN / words[1]), *words[2:]])
        assert left.value.code == 2 and message in capsys.readouterr().err
    main(["generate", str(GOLDEN / "gru"), "a", "--length", "2", "--samples", "2"])
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2 and "--length is now --max-tokens" in err


# Older names of Python


@pytest.mark.parametrize("name", sorted(seqloom.OLD_NAMES))
def test_an_older_name_works_and_says_the_present_one(name: str) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        found = getattr(seqloom, name)
    present = seqloom.OLD_NAMES[name][2]
    assert callable(found) and [str(one.message) for one in caught] == [f"seqloom.{name} is now {present}"]
    assert name not in seqloom.__all__


def test_fill_gives_a_list_for_one_text_as_before() -> None:
    text = "the [MASK] sees"
    assert seqloom.fill(load("bert"), text, 3) == [seqloom.fill_mask(load("bert"), text, top=3)]


def test_a_quantized_run_is_a_new_one() -> None:
    run = load("gpt")
    before = seqloom.score(run, "the cat")
    rounded = seqloom.quantize(run)
    assert seqloom.score(run, "the cat") == before
    assert 0 < abs(seqloom.score(rounded, "the cat").logprob - before.logprob) < 0.1
    assert rounded.decoding == run.decoding
