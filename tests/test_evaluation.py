"""What a finished run says of itself and writes: the same alone, in company and streamed."""

import itertools
import math
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom.decoding import DecodingPlan, Greedy, RandomSampler
from seqloom.evaluation import evaluate
from seqloom.inference.completion import Completion, complete
from seqloom.inference.streaming import stream_plan

GPT = [
    "model.dim=16",
    "model.stack.layers=1",
    "model.stack.heads=2",
    "batches.width=16",
    "model.stack.position.length=16",
]
PAIRS = ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=200"]
SHORT = ["train.steps=10", "train.eval_every=10"]


def streamed(run: seqloom.Run, prompt: str, plan: DecodingPlan) -> str:
    return "".join(token.text for token in stream_plan(run, prompt, plan))


@pytest.fixture
def gpt(tmp_path: Path, text: Path) -> seqloom.Run:
    return seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "gpt", progress=False)


@pytest.fixture
def translator(tmp_path: Path, parallel: list[Path]) -> seqloom.Run:
    return seqloom.fit(
        "transformer",
        *PAIRS,
        *SHORT,
        "train.average_checkpoints=0",
        data=[str(p) for p in parallel],
        out=tmp_path / "pairs",
        progress=False,
    )


def test_streaming_gives_what_answering_gives_beyond_the_context(gpt: seqloom.Run) -> None:
    for pick in (Greedy(), RandomSampler(0.8, top_k=5)):
        whole = complete(gpt, ["the king"], DecodingPlan(sampler=pick, max_tokens=50, seed=6))[0][0].text
        assert (
            streamed(gpt, "the king", DecodingPlan(sampler=pick, max_tokens=50, seed=6)) == whole
            and len(whole) >= 50
        )


def same(one: list[Completion], other: list[Completion]) -> None:
    assert [found.text for found in one] == [found.text for found in other]
    assert [found.score for found in one] == pytest.approx([found.score for found in other], abs=1e-4)


def test_company_changes_no_answer(gpt: seqloom.Run, translator: seqloom.Run) -> None:
    texts = ["the king", "a", "the old dog sees"]
    for run, decoding in (
        (gpt, DecodingPlan(max_tokens=20)),
        (translator, DecodingPlan(max_tokens=12)),
        (translator, DecodingPlan(beam=3, max_tokens=12)),
    ):
        for text, found in zip(texts, complete(run, texts, decoding), strict=True):
            same(found, complete(run, [text], decoding)[0])


def test_a_seed_gives_a_text_the_same_samples_in_any_company(gpt: seqloom.Run) -> None:
    def drawn(texts: list[str], samples: int = 1) -> list[list[str]]:
        return [
            [one.text for one in found]
            for found in complete(
                gpt, texts, DecodingPlan(sampler=RandomSampler(), max_tokens=12, seed=1, n=samples)
            )
        ]

    first, second = drawn(["the king", "a", "the king"], 2)[::2]
    assert drawn(["the king"], 2) == [first] and drawn(["never", "the king"])[1] == first[:1]
    assert streamed(gpt, "the king", DecodingPlan(sampler=RandomSampler(), max_tokens=12, seed=1)) == first[0]
    assert len({*first, *second}) == 4
    with pytest.raises(ValueError, match="samples"):
        seqloom.answer(gpt, ["a"], width=2, samples=2)


def test_the_best_of_a_beam_come_in_order(translator: seqloom.Run) -> None:
    found = complete(translator, ["the old king"], DecodingPlan(beam=4, n=3, max_tokens=8))[0]
    assert len(found) == 3 and len({one.text for one in found}) > 1
    assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
    same(found[:1], complete(translator, ["the old king"], DecodingPlan(beam=4, max_tokens=8))[0])


def test_perplexity_counts_every_token_once_whatever_the_window(gpt: seqloom.Run, text: Path) -> None:
    """Against a literal loop: each token from a window that ends with it, as the stride lays the windows out."""
    numbers = evaluate(gpt, [str(text)])
    ids = gpt.tokenizer.encode(text.read_text()).ids
    known = [3, *ids]
    total = 0.0
    with torch.no_grad():
        begins = [*range(0, len(ids) - 16 + 1, 16)]
        begins += [] if begins[-1] == len(ids) - 16 else [len(ids) - 16]
        done = 0
        for begin in begins:
            log_p = gpt.model(torch.tensor([known[begin : begin + 16]]))[0].log_softmax(-1)[0]
            for t in range(done - begin, 16):
                total -= log_p[t, known[begin + t + 1]].item()
            done = begin + 16
    assert numbers["nats_per_token"].value == pytest.approx(total / len(ids), rel=1e-5)
    assert numbers["perplexity"].value == pytest.approx(math.exp(total / len(ids)), rel=1e-4)
    assert numbers["bits_per_byte"].value == pytest.approx(
        total / math.log(2) / len(text.read_bytes()), rel=1e-5
    )
    assert (
        f"tokens:{len(ids)}" in numbers["nats_per_token"].signature
        and "stride:16" in numbers["nats_per_token"].signature
    )


def test_a_translator_is_scored_on_what_it_translates(translator: seqloom.Run, parallel: list[Path]) -> None:
    """With its own search, which the signature names, or with another that the caller asks for."""
    import sacrebleu

    sources, targets = (path.read_text().splitlines()[:30] for path in parallel)
    for options, decoding, search in (
        ({}, DecodingPlan(beam=5, length_penalty=0.6), "search:beam5-0.6"),
        ({"beam": 2, "length_penalty": 1.0}, DecodingPlan(beam=2, length_penalty=1.0), "search:beam2-1.0"),
        ({"beam": 1}, DecodingPlan(beam=1), "search:greedy"),
    ):
        number = evaluate(translator, [str(path) for path in parallel], limit=30, **options)["bleu"]
        outputs = [found[0].text for found in complete(translator, sources, decoding)]
        assert number.value == sacrebleu.corpus_bleu(outputs, [targets]).score
        assert search in number.signature and "tokenizer:" in number.signature and number.n == 30


@pytest.mark.parametrize("window, stride", [(16, 4), (12, 12), (16, 1), (7, 3)])
def test_striding_windows_count_every_token_once_with_enough_before_it(
    gpt: seqloom.Run, text: Path, window: int, stride: int
) -> None:
    """[I5] Against a literal loop: window by window, of each only the tokens that no window before it had."""
    short = text.with_name("short.txt")
    short.write_text(text.read_text()[:230])
    numbers = evaluate(gpt, [str(short)], window=window, stride=stride)
    known = [3, *gpt.tokenizer.encode(short.read_text()).ids]
    total, done, begin, least = 0.0, 0, 0, []
    while done < len(known) - 1:
        begin = min(begin, len(known) - 1 - window)
        log_p = gpt.model(torch.tensor([known[begin : begin + window]]))[0].log_softmax(-1)[0]
        for place in range(max(done, begin), begin + window):
            total -= log_p[place - begin, known[place + 1]].item()
            least += [place + 1 - begin] if begin else []
        done, begin = begin + window, begin + stride
    assert numbers["nats_per_token"].value == pytest.approx(total / (len(known) - 1), rel=1e-5)
    assert numbers["bits_per_byte"].value == pytest.approx(
        total / math.log(2) / len(short.read_bytes()), rel=1e-5
    )
    assert min(least) > window - stride
    assert (
        f"width:{window}|stride:{stride}" in numbers["perplexity"].signature
        and f"tokens:{len(known) - 1}" in numbers["perplexity"].signature
    )


class Always:
    """A pick that chooses one token, or several in turn."""

    num_candidates = None

    def __init__(self, *tokens: int):
        self.tokens = itertools.cycle(tokens)

    def __call__(self, logits: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        return torch.full((len(logits),), next(self.tokens))


@pytest.mark.parametrize("kind", ["Words", "WordPiece"])
def test_words_stand_apart_from_their_prompt(tmp_path: Path, text: Path, kind: str) -> None:
    """Streamed too, after a space, after words that the model does not know, and where a stop string begins with the space."""
    small = [
        "train.steps=1",
        "train.eval_every=1",
        f"tokenizer.type={kind}",
        *(["tokenizer.size=80"] if kind == "WordPiece" else []),
    ]
    run = seqloom.fit("gpt", *GPT, *small, data=[str(text)], out=tmp_path / "a", progress=False)
    river = run.tokenizer.encode("river", add_special_tokens=False).ids
    for prompt, space in (("the king", " "), ("the king ", ""), ("", ""), ("\N{SNOWMAN}", " ")):
        found = complete(run, [prompt], DecodingPlan(sampler=Always(*river), max_tokens=2 * len(river)))[0][0]
        assert found.text == f"{space}river river" and found.finish_reason == "length"
        assert (
            streamed(run, prompt, DecodingPlan(sampler=Always(*river), max_tokens=2 * len(river)))
            == found.text
        )
        ended = complete(
            run, [prompt], DecodingPlan(sampler=Always(*river), max_tokens=20, stop=(f"{space}river",))
        )[0][0]
        assert ended.text == "" and len(ended.ids) == len(river) and ended.finish_reason == "stop"


def test_a_stream_ends_with_an_incomplete_character_too(tmp_path: Path, text: Path) -> None:
    small = ["train.steps=1", "train.eval_every=1", "tokenizer.type=BPE", "tokenizer.size=300"]
    run = seqloom.fit("gpt", *GPT, *small, data=[str(text)], out=tmp_path / "a", progress=False)
    half = next(token for token in range(5, 300) if run.decode([token]) == "\ufffd")
    assert (
        streamed(run, "the", DecodingPlan(sampler=Always(half), max_tokens=3))
        == complete(run, ["the"], DecodingPlan(sampler=Always(half), max_tokens=3))[0][0].text
        == "\ufffd" * 3
    )


def test_what_was_said_before_the_context_counts_as_said(gpt: seqloom.Run) -> None:
    """Against a literal loop over windows."""
    known = gpt.encode(["the king"], as_prompt=True)[0][0].tolist()
    found = complete(gpt, ["the king"], DecodingPlan(max_tokens=40, repetition_penalty=3.0))[0][0]
    window, new = list(known), []
    while len(new) < len(found.ids):
        window = known[-8:] if len(window) > 16 else window
        with torch.no_grad():
            logits = gpt.model(torch.tensor([window]))[0][0, -1]
        for token in set(known):
            logits[token] *= 1 / 3 if logits[token] > 0 else 3
        logits[list(gpt.banned_ids)] = -torch.inf
        for text in (known, window, new):
            text.append(int(logits.argmax()))
    assert list(found.ids) == new and len(new) > 20
    assert streamed(gpt, "the king", DecodingPlan(max_tokens=40, repetition_penalty=3.0)) == found.text


def test_windows_that_do_not_fit_are_refused(
    gpt: seqloom.Run, translator: seqloom.Run, text: Path, parallel: list[Path]
) -> None:
    for window, stride in ((17, 4), (8, 9), (8, -1), (8, 0), (0, 0)):
        with pytest.raises(
            ValueError, match="give a stride from 1 to the window and a window of at most 16 tokens"
        ):
            evaluate(gpt, [str(text)], window=window, stride=stride)
    with pytest.raises(ValueError, match="for language models"):
        evaluate(translator, [str(path) for path in parallel], stride=4)


def test_lines_pay_for_their_ends_in_bytes_too(text: Path, tmp_path: Path) -> None:
    """So that a run of lines compares with one of plain text: the bytes are those of the file."""
    run = seqloom.fit(
        "gpt", *GPT, *SHORT, "corpus.type=Lines", data=[str(text)], out=tmp_path / "run", progress=False
    )
    numbers = evaluate(run, [str(text)])
    assert f"bytes:{len(text.read_bytes().rstrip()) + 1}" in numbers["bits_per_byte"].signature


def test_bytes_are_not_counted_where_much_is_unknown(gpt: seqloom.Run, text: Path, tmp_path: Path) -> None:
    odd = tmp_path / "odd.txt"
    odd.write_text(text.read_text()[:1500] + "日本語" + text.read_text()[:1000])
    assert "bits_per_byte" not in evaluate(gpt, [str(odd)])
    odd.write_text(text.read_text()[:1500] + "日")
    assert "bits_per_byte" in evaluate(gpt, [str(odd)])
