"""What a finished run writes: where it stops, what it repeats, how sure it was; with weights in bytes and several workers."""

import io
import json
import threading
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.cli import main
from seqloom.decoding import DecodingPlan, RandomSampler, generate_batch, parallel_map
from seqloom.decoding.workers import _cancelled
from seqloom.evaluation import evaluate
from seqloom.inference.completion import Completion, Execution, complete
from seqloom.inference.old_functions import answer
from seqloom.inference.streaming import stream_plan
from seqloom.inference.translation import translate

GPT = [
    "model.dim=16",
    "model.stack.layers=1",
    "model.stack.heads=2",
    "batches.width=16",
    "model.stack.position.length=16",
    "tokenizer.type=Characters",
]
PAIRS = ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=200", "train.average_checkpoints=0"]


def streamed(run: seqloom.Run, prompt: str, plan: DecodingPlan) -> str:
    return "".join(token.text for token in stream_plan(run, prompt, plan))


@pytest.fixture
def gpt(tmp_path: Path, text: Path) -> seqloom.Run:
    return seqloom.fit(
        "gpt",
        *GPT,
        "train.steps=30",
        "train.eval_every=30",
        data=[str(text)],
        out=tmp_path / "gpt",
        progress=False,
    )


@pytest.fixture
def translator(tmp_path: Path, parallel: list[Path]) -> seqloom.Run:
    data = [str(path) for path in parallel]
    return seqloom.fit(
        "transformer",
        *PAIRS,
        "train.steps=10",
        "train.eval_every=10",
        data=data,
        out=tmp_path / "pairs",
        progress=False,
    )


def test_a_text_ends_before_its_stop_string(gpt: seqloom.Run) -> None:
    """Wherever tokens begin and end, in company, beyond the context, and streamed."""
    free = complete(gpt, ["the king", "a"], DecodingPlan(max_tokens=60))
    for place in (3, 17, 40):
        for size in (1, 2, 5):
            stop = free[0][0].text[place : place + size]
            found = complete(
                gpt,
                ["the king", "a"],
                DecodingPlan(
                    max_tokens=60,
                    stop=(
                        stop,
                        "never there",
                    ),
                ),
            )
            for (one,), (whole,) in zip(found, free, strict=True):
                assert one.text == whole.text.split(stop)[0] and (one.finish_reason == "stop") == (
                    stop in whole.text or whole.finish_reason == "stop"
                )
            assert (
                streamed(gpt, "the king", DecodingPlan(max_tokens=60, stop=(stop, "never there")))
                == found[0][0].text
            )


def test_a_run_named_like_a_preset_is_itself(
    gpt: seqloom.Run, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(gpt.folder.parent)
    assert seqloom.load("gpt").config.tree == gpt.config.tree
    assert seqloom.explain("./gpt").parameters == gpt.results.parameters.total
    assert seqloom.explain("gpt").parameters == 927_488 != gpt.results.parameters.total
    again = seqloom.fit("./gpt", out="gpt", progress=False)
    assert complete(again, ["the"], DecodingPlan(max_tokens=5)) == complete(
        gpt, ["the"], DecodingPlan(max_tokens=5)
    )
    begun = seqloom.fit(
        "gpt",
        "batches.width=16",
        "train.steps=1",
        "train.eval_every=1",
        data=[str(text)],
        base="gpt",
        out="begun",
        progress=False,
    )
    assert begun.config.tree["model"] == gpt.config.tree["model"]


def test_a_lone_dash_is_stdin(
    gpt: seqloom.Run,
    translator: seqloom.Run,
    tmp_path: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture,
) -> None:
    def said(typed: str, *words: str) -> str:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(typed.encode())))
        monkeypatch.setattr("seqloom.text.lines._spooled", {})
        main([*words])
        return capsys.readouterr().out

    assert said("the\na\n", "generate", str(gpt.folder), "-", "--max-tokens", "3") == said(
        "", "generate", str(gpt.folder), "the", "a", "--max-tokens", "3"
    )
    assert len(said("the king\na dog\n", "translate", str(translator.folder), "-").splitlines()) == 2
    assert said(text.read_text(), "evaluate", str(gpt.folder), "-") == said(
        "", "evaluate", str(gpt.folder), str(text)
    )
    out = str(tmp_path / "piped")
    small = [*GPT, "train.steps=1", "train.eval_every=1"]
    assert out in said(text.read_text(), "train", "gpt", *small, "--data", "-", "--out", out)
    with pytest.raises(SystemExit):
        main(["generate", str(gpt.folder), "-x"])
    assert "-x" in capsys.readouterr().err


def test_mistakes_are_named(gpt: seqloom.Run) -> None:
    for options, message in (
        ({"stop": [""]}, "empty stop"),
        ({"stop": ["a"], "width": 2}, "beam search supports neither"),
        ({"repetition": 2.0, "width": 2}, "beam search supports neither"),
        ({"repetition": -1.0}, "repetition"),
        ({"samples": 0}, "at least 1 text"),
        ({"samples": 2, "width": 2}, "does not sample: drop --samples"),
        ({"workers": 0}, "workers"),
    ):
        with pytest.raises(ValueError, match=message):
            answer(gpt, ["a"], length=3, **options)
    with pytest.raises(TypeError, match="no option 'lenght': choose from width, penalty, length"):
        answer(gpt, ["a"], lenght=3)


def old_form(found: list[list[Completion]]) -> list[list[tuple]]:
    """Completions as `answer` returned them."""
    return [
        [
            (
                one.text,
                one.logprob,
                one.score,
                one.finish_reason == "stop",
                one.ids,
                one.token_logprobs,
                "length" if one.finish_reason == "length" else "end" if one.stop_reason is None else "stop",
            )
            for one in completions
        ]
        for completions in found
    ]


def test_answer_is_generation_with_keyword_options(gpt: seqloom.Run, translator: seqloom.Run) -> None:
    sampled = DecodingPlan(
        max_tokens=9, sampler=RandomSampler(0.9), n=2, stop=("z",), seed=3, repetition_penalty=1.3
    )
    options = {"length": 9, "samples": 2, "stop": ["z"], "seed": 3, "repetition": 1.3}
    assert answer(gpt, ["the king"], RandomSampler(0.9), **options) == old_form(
        complete(gpt, ["the king"], sampled)
    )
    searched = DecodingPlan(max_tokens=9, beam=3, n=2, length_penalty=1.0, allow_unk=True)
    options = {
        "length": 9,
        "width": 3,
        "nbest": 2,
        "penalty": 1.0,
        "unknown": True,
        "tokens": 100,
        "workers": 2,
    }
    assert seqloom.answer(translator, ["the king"], **options) == old_form(
        complete(translator, ["the king"], searched)
    )


def test_log_probabilities_are_those_of_teacher_forcing(gpt: seqloom.Run) -> None:
    for (one,) in complete(
        gpt, ["the king", "a"], DecodingPlan(sampler=RandomSampler(1.2), max_tokens=7, seed=5)
    ):
        assert sum(one.token_logprobs) == pytest.approx(one.logprob, abs=1e-5)
        assert len(one.token_logprobs) == len(one.ids) + (one.finish_reason == "stop")
    (one,) = complete(gpt, ["the"], DecodingPlan(max_tokens=5))[0]
    ids, _ = gpt.encode(["the"], as_prompt=True)
    with torch.no_grad():
        logits, _ = gpt.model(torch.cat([ids, torch.tensor([one.ids])], 1))
    log_p = logits[0].log_softmax(-1)
    wanted = [float(log_p[ids.shape[1] - 1 + t, token]) for t, token in enumerate(one.ids)]
    assert one.token_logprobs[: len(one.ids)] == pytest.approx(wanted, abs=1e-4)


def test_workers_change_no_text(gpt: seqloom.Run, translator: seqloom.Run) -> None:
    texts = ["the king", "a", "the old dog sees", "never", "then a river", "the cat"]
    threads = torch.get_num_threads()
    for run, decoding in (
        (gpt, DecodingPlan(sampler=RandomSampler(top_k=5), max_tokens=30, seed=2)),
        (translator, DecodingPlan(beam=3, max_tokens=10)),
    ):
        alone = complete(run, texts, decoding)
        for workers in (2, 5):
            found = complete(run, texts, decoding, Execution(workers=workers))
            assert [[one.text for one in texts] for texts in found] == [
                [one.text for one in texts] for texts in alone
            ]
    assert torch.get_num_threads() == threads
    one = [found.text for found in translate(translator, texts)]
    assert one == [found.text for found in translate(translator, texts)]


def test_generation_in_a_cancelled_worker_ends_at_its_next_step(gpt: seqloom.Run) -> None:
    begun = threading.Barrier(2)

    def work(item: int) -> None:
        begun.wait()
        if item:
            raise KeyboardInterrupt
        _cancelled.get().wait(60)
        generate_batch(gpt.model, torch.tensor([[3]]), max_tokens=10, stop_ids=())
        done.append(item)

    done: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        parallel_map(work, [1, 0], 2)
    assert not done


def test_json_tells_what_ended_a_text(gpt: seqloom.Run, capsys: pytest.CaptureFixture) -> None:
    def told(*words: str) -> tuple[dict, str]:
        main(["generate", str(gpt.folder), "the king", "--json", *words])
        out, err = capsys.readouterr()
        return json.loads(out), err

    free, err = told("--greedy", "--max-tokens", "5")
    [output] = free["outputs"]
    assert (output["finish_reason"], output["stop_reason"]) == ("length", None)
    assert output["logprob"] < 0 and err == ""
    [stopped] = told("--greedy", "--stop", output["text"][1])[0]["outputs"]
    assert (stopped["finish_reason"], stopped["stop_reason"]) == ("stop", output["text"][1])
    found, err = told("--beam", "2", "--max-tokens", "40")
    [output] = found["outputs"]
    assert (output["finish_reason"], output["stop_reason"]) == ("length", "context")
    assert "context of 16 tokens is full" in err


def test_quantised_runs_are_nearly_the_same(gpt: seqloom.Run, translator: seqloom.Run, text: Path) -> None:
    before = {number.name: number.value for number in evaluate(gpt, [str(text)])}
    quantized = seqloom.quantize(gpt)
    after = {number.name: number.value for number in evaluate(quantized, [str(text)])}
    assert 0 < abs(after["perplexity"] / before["perplexity"] - 1) < 0.01
    assert {number.name: number.value for number in evaluate(gpt, [str(text)])} == before  # gpt itself stays
    assert complete(seqloom.quantize(translator), ["the king"], DecodingPlan(beam=3, max_tokens=5))
    with pytest.raises(ValueError, match="int8"):
        seqloom.quantize(gpt, "int2")


def test_the_command_line_has_it_all(
    gpt: seqloom.Run, translator: seqloom.Run, text: Path, capsys: pytest.CaptureFixture
) -> None:
    run = str(gpt.folder)

    def said(*words: str) -> str:
        main([*words])
        return capsys.readouterr().out

    whole = said("generate", run, "the king", "--greedy", "--max-tokens", "30", "--json")
    free = json.loads(whole)["outputs"][0]["text"]
    stop = free[9:12]
    assert (
        said("generate", run, "the king", "--greedy", "--max-tokens", "30", "--stop", stop)
        == "the king" + free.split(stop)[0] + "\n"
    )
    told = json.loads(
        said("generate", run, "the king", "--greedy", "--max-tokens", "5", "--logprobs", "--json")
    )
    [output] = told["outputs"]
    assert "".join(output["tokens"]) == output["text"]
    assert len(output["token_logprobs"]) == 5 and max(output["token_logprobs"]) < 0
    lines = said("generate", run, "the king", "--greedy", "--max-tokens", "5", "--logprobs").splitlines()
    assert len(lines) == 6 and float(lines[1].split()[0]) < 0
    assert (
        said(
            "generate",
            run,
            "the king",
            "--greedy",
            "--max-tokens",
            "30",
            "--repetition-penalty",
            "5",
            "--json",
        )
        != whole
    )
    assert (
        len(
            json.loads(
                said("generate", run, "the", "--n", "3", "--max-tokens", "5", "--workers", "2", "--json")
            )["outputs"]
        )
        == 3
    )
    assert said(
        "generate", run, "the king", "--greedy", "--max-tokens", "5", "--quantize", "int8"
    ).startswith("the king")
    told = json.loads(said("evaluate", run, str(text), "--quantize", "int8", "--json"))
    assert {one["name"] for one in told["int8"]} == {one["name"] for one in told["numbers"]} and told[
        "not_quantized"
    ] == ["stack.position.table"]
    out = said("evaluate", run, str(text), "--quantize", "int8")
    assert "fp32" in out and "int8 (" in out and "not quantized: stack.position.table" in out
    source = text.parent / "few.txt"
    source.write_text("the king\nthe old dog\na cat sees\n", "utf-8")
    plain = said("translate", str(translator.folder), "--file", str(source), "--workers", "2")
    assert (
        plain == said("translate", str(translator.folder), "--file", str(source))
        and len(plain.splitlines()) == 3
    )
    assert (
        len(
            said(
                "translate", str(translator.folder), "--file", str(source), "--quantize", "int8"
            ).splitlines()
        )
        == 3
    )
    for words in (["--logprobs", "--beam", "3"], ["--stop", "a", "--beam", "3"], ["--quantize", "int3"]):
        with pytest.raises(SystemExit) as left:
            main(["generate", run, "the", *words])
        assert left.value.code == 2
