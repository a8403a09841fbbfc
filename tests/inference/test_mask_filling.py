"""A masked language model trained, measured and used: from Python and from the command line."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import seqloom
from seqloom.evaluation import evaluate
from seqloom.inference.mask_filling import fill_mask, insert_tokens, pseudo_nll, pseudo_perplexity
from seqloom.text.store import build
from seqloom.text.tokenizer import BOS, BPE, EOS, MASK, decode

SMALL = [
    "tokenizer.size=90",
    "model.dim=32",
    "model.stack.layers=1",
    "model.stack.heads=2",
    "batches.width=24",
    "train.eval_every=150",
]


@pytest.fixture(scope="module")
def learnt(tmp_path_factory: pytest.TempPathFactory) -> seqloom.Run:
    """Sentences in which the verb follows from the animal, and the animal from the verb."""
    place = tmp_path_factory.mktemp("masked")
    text = place / "text.txt"
    pairs = [("dog", "barks"), ("cat", "purrs"), ("bird", "sings"), ("cow", "moos")]
    chance = __import__("random").Random(0)
    text.write_text(
        "".join(
            f"the {animal} {verb} and then the {animal} {verb} again .\n"
            for animal, verb in chance.choices(pairs, k=600)
        ),
        "utf-8",
    )
    return seqloom.fit(
        "bert-small", *SMALL, "train.steps=300", data=[str(text)], out=place / "run", progress=False
    )


def test_a_gap_is_filled_from_both_sides(learnt: seqloom.Run) -> None:
    before, after, both = fill_mask(
        learnt,
        [
            "the cow [MASK] and then",
            "the <mask> sings and then",
            "the [MASK] barks and then the [MASK] barks",
        ],
        top=3,
    )
    assert before.gaps[0][0].token == "moos" and before.text.startswith("the cow moos")
    assert after.gaps[0][0].token == "bird"  # from what follows: no left-to-right model can
    assert [gap[0].token for gap in both.gaps] == ["dog", "dog"] and all(len(gap) == 3 for gap in both.gaps)
    for gap in (*before.gaps, *after.gaps, *both.gaps):
        chances = [guess.probability for guess in gap]
        assert chances == sorted(chances, reverse=True) and 0 < sum(chances) <= 1 + 1e-6


def test_the_text_around_a_gap_stays(learnt: seqloom.Run) -> None:
    """Case, spaces and words that the model does not know; one text may come alone."""
    found = fill_mask(learnt, "Café  שלום : the cow <mask>  and\tTHE [MASK] moos")
    assert (
        found.text == f"Café  שלום : the cow {found.gaps[0][0].token}  and\tTHE {found.gaps[1][0].token} moos"
    )


def test_pieces_join_the_word_before_them(learnt: seqloom.Run) -> None:
    inside = next(token for token in learnt.tokenizer.get_vocab() if token.startswith("##"))
    ids = [learnt.tokenizer.token_to_id(token) for token in ("the", inside)]
    assert insert_tokens(learnt, "[MASK] Cow [MASK] .", ids) == f"the Cow{inside[2:]} ."
    bytewise = SimpleNamespace(tokenizer=BPE(["the cow moos and the cow sings"] * 9, 300))
    bytewise.decode = partial(decode, bytewise.tokenizer)
    ids = [bytewise.tokenizer.token_to_id(token) for token in ("Ġcow", "s", "Ġcow")]
    assert insert_tokens(bytewise, "[MASK] Sing [MASK] the [MASK]!", ids) == "cow Sings the cow!"


def test_guesses_are_the_models_own_and_company_changes_none(learnt: seqloom.Run) -> None:
    texts = ["the cat [MASK]", "the cow moos and then the cow [MASK] again ."]
    for text, found in zip(texts, fill_mask(learnt, texts, top=2), strict=True):
        left, right = text.split("[MASK]")
        ids = [BOS, *learnt.tokenizer.encode(left).ids, MASK, *learnt.tokenizer.encode(right).ids, EOS]
        logits, _ = learnt.model(torch.tensor([ids]))
        chances = logits[0, ids.index(MASK)].softmax(-1)
        for guess in found.gaps[0]:
            assert guess.probability == pytest.approx(
                chances[learnt.tokenizer.token_to_id(guess.token)].item(), rel=1e-4
            )


def test_evaluation_counts_the_picked_tokens_alone(learnt: seqloom.Run) -> None:
    """Against a literal loop over the batches."""
    text = learnt.config.files.train[0]
    numbers = evaluate(learnt, [text])
    store = build(learnt.config.reader([text]), learnt.tokenizer)
    total, right, count = 0.0, 0, 0
    for batch in learnt.config.data(store).sequential():
        log_p = learnt.model(batch.ids)[0].log_softmax(-1)
        for row, place in batch.mask.nonzero().tolist():
            want = batch.targets[row, place]
            total, right, count = (
                total - log_p[row, place, want].item(),
                right + int(log_p[row, place].argmax() == want),
                count + 1,
            )
    assert numbers["nats_per_token"].value == pytest.approx(total / count, rel=1e-4)
    assert numbers["accuracy"].value == 100 * right / count > 50
    assert (
        "bits_per_byte" not in numbers
        and f"of:{count}" in numbers["accuracy"].signature
        and "rate:0.15" in numbers["accuracy"].signature
    )


def test_pseudo_perplexity_hides_each_token_alone(learnt: seqloom.Run, tmp_path: Path) -> None:
    texts = ["the dog barks again .", "cow the and"]
    for text, (nats, count) in zip(texts, pseudo_nll(learnt, texts, batch=2), strict=True):
        ids = [BOS, *learnt.tokenizer.encode(text).ids, EOS]
        total = 0.0
        for place in range(1, len(ids) - 1):
            hidden = [*ids[:place], MASK, *ids[place + 1 :]]
            total -= learnt.model(torch.tensor([hidden]))[0][0, place].log_softmax(-1)[ids[place]].item()
        assert count == len(ids) - 2 and nats == pytest.approx(total, rel=1e-4)
    file = tmp_path / "lines.txt"
    file.write_text("\n".join(texts) + "\n\n")
    (a, n), (b, m) = pseudo_nll(learnt, texts)
    assert pseudo_perplexity(learnt, [str(file)]).value == pytest.approx(
        math.exp((a + b) / (n + m)), rel=1e-4
    )


def command(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run([sys.executable, "-m", "seqloom", *arguments], capture_output=True, text=True)


def test_the_command_line_fills_and_says_what_is_wrong(
    learnt: seqloom.Run, tmp_path: Path, text: Path
) -> None:
    told = command("fill-mask", str(learnt.folder), "the cow [MASK] and then", "--top", "2", "--json")
    found = json.loads(told.stdout)
    assert (
        found["text"].startswith("the cow moos")
        and len(found["gaps"][0]) == 2
        and found["gaps"][0][0]["token"] == "moos"
    )
    plain = command("fill-mask", str(learnt.folder), "the cow [MASK] and then").stdout
    assert plain.splitlines()[0].startswith("the cow moos") and ("moos 0." in plain or "moos 1." in plain)
    wrong = command("fill-mask", str(learnt.folder), "the cow moos")
    assert wrong.returncode == 2 and "write [MASK]" in wrong.stderr
    gpt = seqloom.fit(
        "gpt",
        "model.dim=16",
        "model.stack.layers=1",
        "train.steps=2",
        data=[str(text)],
        out=tmp_path / "gpt",
        progress=False,
    )
    wrong = command("fill-mask", str(gpt.folder), "the [MASK]")
    assert (
        wrong.returncode == 2
        and "use: seqloom generate" in wrong.stderr
        and len(wrong.stderr.splitlines()) == 1
    )


def test_lines_without_a_mask_keep_their_place(learnt: seqloom.Run, tmp_path: Path) -> None:
    file = tmp_path / "gaps.txt"
    file.write_text("the cow [MASK] and then\n\nthe cow moos\nthe [MASK] moos\n", "utf-8")
    done = command("fill-mask", str(learnt.folder), "--file", str(file), "--json")
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [len(one["gaps"]) for one in found] == [1, 0, 0, 1] and done.returncode == 0
    assert [one["text"] for one in found[1:3]] == ["", "the cow moos"]
    assert "2 lines have no [MASK]" in done.stderr


def test_pairs_of_segments_are_learnt_beside(tmp_path: Path) -> None:
    """[I1] Lines of numbers in a row: whether the second segment goes on is plain to see, and is learnt."""
    text = tmp_path / "text.txt"
    text.write_text("".join(f"n{number % 50}" + " \n"[number % 30 == 29] for number in range(6000)), "utf-8")
    run = seqloom.fit("bert", *SMALL[1:4], "model.stack.dropout=0", "tokenizer={type: Words}",
                      "batches.width=16", "batches.batch=16", "train.accumulate=1", "model.stack.order=pre", "train.steps=400",
                      "train.eval_every=400", "train.optimizer.lr=1e-2", "train.schedule.warmup=20",
                      data=[str(text)], out=tmp_path / "run", progress=False)  # fmt: skip
    numbers = evaluate(run, [str(text)])
    assert numbers["next_segment_accuracy"].value > 0.8


def test_the_name_is_a_function_whatever_was_imported():
    import seqloom.inference.mask_filling

    assert seqloom.fill_mask is seqloom.inference.mask_filling.fill_mask
