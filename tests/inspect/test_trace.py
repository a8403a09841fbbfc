"""A trace: every recorded value follows from its operands, and its page computes the numbers again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.cli import main
from seqloom.errors import UserError
from seqloom.inspect.trace_pages import (
    MOST_NUMBERS,
    count_numbers,
    layer_of,
    rounded,
    select,
    trace_page,
    worked_example,
)
from seqloom.inspect.trace_search import beam_steps, trace_cbow
from seqloom.inspect.trace_steps import Operand, Step, compute, evaluate
from seqloom.inspect.trace_values import trace
from seqloom.run import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
RUNS = sorted(path.parent.name for path in GOLDEN.glob("*/model.safetensors"))
TEXT = "the old cat sees a river"
# how many values of a run have no equation: groups of rare words, the inside of a memory in a memory, characters of words
WITHOUT_EQUATION = {
    "alibi": 1,
    "lstm-words": 1,
    "cells": 2,
    "elmo-tagger": 3,
    "tagger": 1,
    "tagger-transformer": 12,
}


def text_for(run: Run) -> str:
    count = sum(kind in ("text", "words", "passage") for kind in run.config.kinds())
    return "\t".join([TEXT] * (count if run.model.predicts_labels else 1))


def made(term: str, over: str, finish: str, axes: str, **operands: tuple[str, np.ndarray]) -> Step:
    named = {name: Operand(name, letters, values) for name, (letters, values) in operands.items()}
    return Step("y", "", "", axes, np.zeros(0), False, "text", term, over, finish, named)


def test_a_step_is_its_equation():
    """112 → 14 → .88, the lectures' example, and sums against numpy."""
    q, k = np.full((1, 64), 1.75), np.stack([np.full(64, 1.0), np.full(64, 96 / 112)])
    product = made("q * k", "k", "total", "ts", q=("tk", q), k=("sk", k)).checked()
    assert product.values.tolist() == [[112.0, pytest.approx(96)]]
    scores = made("", "", "p * 0.125", "ts", p=("ts", product.values)).checked()
    weights = made(
        "exp(every)", "u", "exp(s) / total", "ts", s=("ts", scores.values), every=("tu", scores.values)
    ).checked()
    assert scores.values[0, 0] == 14 and weights.values[0] == pytest.approx([0.8808, 0.1192], abs=1e-4)
    random = np.random.default_rng(0)
    w, x, b = random.normal(size=(3, 2, 5)), random.normal(size=(4, 5)), random.normal(size=(3, 2))
    linear = made("W * x", "j", "total + b", "htk", W=("hkj", w), x=("tj", x), b=("hk", b))
    assert np.allclose(evaluate(linear)[0], np.einsum("hkj,tj->htk", w, x) + b[:, None])
    additive = made("u * tanh(q + k)", "k", "total", "ts", u=("k", x[0]), q=("tk", x), k=("sk", x))
    assert np.allclose(evaluate(additive)[0], np.tanh(x[:, None] + x[None]) @ x[0])


def test_expressions_are_arithmetic_only():
    assert compute("-(a + 2) / sqrt(b)", {"a": np.array(1.0), "b": np.array(4.0)}) == -1.5
    for expression in ("__import__('os')", "a.real", "a[0]", "a ** 2", "open(a)"):
        with pytest.raises((ValueError, KeyError)):
            compute(expression, {"a": np.array(1.0)})


@pytest.mark.parametrize("name", RUNS)
def test_the_values_of_every_run_follow_from_their_operands(runs, name: str):
    run = runs(name)
    target = "un vieux chat" if run.model.task == "translation" else None
    found = trace(run, text_for(run), target)
    assert not found.wrong and found.largest_error < 1e-5 and found.checked > 1
    assert found.given == WITHOUT_EQUATION.get(name, 0)
    shown = select(found)
    assert count_numbers(shown.steps, shown.rows) <= MOST_NUMBERS


def test_a_wrong_value_is_found(runs):
    """A part whose forward does not do what its equation says."""
    run = runs("gpt")
    norm = run.model.stack.blocks[0].attention_norm
    forward = norm.forward
    norm.forward = lambda x: norm.gain * 0 + forward(x) + 0.01 * x
    try:
        before = trace(run, TEXT)
    finally:
        del norm.forward
    assert "stack.blocks.0.attention.q" not in before.wrong
    assert trace(run, TEXT).wrong == []
    bias = run.model.stack.blocks[0].feedforward.out_proj
    original = bias.forward
    bias.forward = lambda x: original(x) + 0.1
    try:
        assert trace(run, TEXT).wrong == ["stack.blocks.0.feedforward"]
    finally:
        del bias.forward


@pytest.mark.parametrize(
    ("name", "part", "method", "value"),
    [
        ("bytenet", "encoder.blocks.0.out_proj", "forward", "encoder.blocks.0"),
        ("bytenet", "decoder.blocks.1.convolution", "convolve", "decoder.blocks.1.convolution"),
        ("convs2s", "decoder.blocks.0.convolution", "convolve", "decoder.blocks.0.convolution"),
        ("convs2s", "decoder.blocks.0.context_proj", "forward", "decoder.blocks.0"),
        ("mixer", "stack.layers.0.blocks.0.dropout", "forward", "stack.layers.0.blocks.0.after_tokens"),
        ("moe-lm", "stack.blocks.0.feedforward", "expert_loop", "stack.blocks.0.feedforward"),
        ("classifier", "pool.query", "forward", "pool.weights"),
    ],
)
def test_wrong_values_of_other_layers_are_found(runs, name: str, part: str, method: str, value: str):
    """A sum of a convolution, a mixing layer, experts or a pool that is not what its equation says."""
    run = runs(name)
    module = run.model.get_submodule(part)
    original = getattr(module, method)

    def wrong(x, *more):
        # a convolution records its value inside, so it reads something else
        return original(x + 0.1, *more) if method == "convolve" else 1.1 * original(x, *more)

    setattr(module, method, wrong)
    try:
        target = "un vieux chat" if run.model.task == "translation" else None
        assert value in trace(run, text_for(run), target).wrong
    finally:
        delattr(module, method)
    assert trace(run, text_for(run), target).wrong == []


def test_probabilities_along_the_beam_are_those_of_forced_decoding(runs):
    for name in ("gpt", "transformer", "gru"):
        run = runs(name)
        steps = beam_steps(run, "the cat", 3)
        assert steps and all(step.error is not None and step.error < 1e-4 for step in steps)
        first = steps[0].operands["p"].values
        assert (first <= 1).all() and np.allclose(first, steps[0].values, rtol=1e-4)
    with pytest.raises(UserError, match="does not generate"):
        trace(runs("bert"), TEXT, beam=2)


def test_cbow_averages_the_window():
    words = ["the", "professor", "is", "scribbling", "on", "board"]
    matrix = np.random.default_rng(0).normal(size=(6, 4))
    found = trace_cbow(words, matrix, "the professor is scribbling on the board", window=2)
    context = found.step("context")
    assert found.tokens[1] == "professor"
    assert np.allclose(context.values[1], matrix[[0, 2, 3]].mean(0), atol=1e-6)  # the, is, scribbling
    own = np.stack([matrix[words.index(word)] for word in found.tokens])
    assert np.allclose(found.step("score").values, (context.values * own).sum(1), atol=1e-5)
    probability = found.steps[-1].values
    scores = matrix @ context.values[3]
    assert np.allclose(sorted(probability), sorted(np.exp(scores) / np.exp(scores).sum()), atol=1e-5)
    with pytest.raises(UserError, match="at least two words"):
        trace_cbow(words, matrix, "nothing known")


def test_rounding_is_to_significant_digits():
    values = np.array([0.0, 1.2345678, -98765.4321, 3.00004e-9, -np.inf])
    assert rounded(values).tolist() == pytest.approx([0, 1.2346, -98765, 3.0e-9, -np.inf], rel=1e-6)


CHROMIUM = shutil.which("chromium")


def verdict(page: Path) -> str:
    command = [CHROMIUM or "", "--headless", "--no-sandbox", "--virtual-time-budget=10000", "--dump-dom"]
    dom = subprocess.run([*command, page.as_uri()], capture_output=True, text=True, timeout=800).stdout
    found = re.search(r'id="verdict"[^>]*>([^<]*)<', dom)
    assert found
    return found[1]


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
@pytest.mark.parametrize("name", ["convs2s", "bytenet", "mixer", "moe-lm"])
def test_the_page_computes_the_numbers_of_other_layers(runs, name: str, tmp_path: Path):
    run = runs(name)
    target = "un vieux chat" if run.model.task == "translation" else None
    page = tmp_path / "trace.html"
    found = trace(run, TEXT, target)
    page.write_text(trace_page(found, TEXT), "utf-8")
    assert "all agree" in verdict(page)
    for line in worked_example(found):
        assert "softmax" in line


@pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")
def test_the_page_computes_its_numbers_again_and_sees_a_wrong_one(runs, tmp_path: Path):
    run = runs("rnnsearch")
    text = trace_page(trace(run, TEXT, "un vieux chat"), TEXT)
    page = tmp_path / "trace.html"
    page.write_text(text, "utf-8")
    said = verdict(page)
    assert "all agree" in said and int(re.findall(r"[\d,]+", said)[0].replace(",", "")) > 500
    content = json.loads(re.search(r"id=data>(.*?)</script>", text, re.S)[1])
    step = next(one for one in content["steps"] if one["name"].endswith("attention.weights"))
    entry = content["arrays"][step["values"]]
    values = rounded(trace(run, TEXT, "un vieux chat").step(step["name"]).values).ravel()
    values[0] *= 1.01
    import base64

    entry["values"] = base64.b64encode(values.astype(np.float32).tobytes()).decode()
    changed = re.sub(
        r"id=data>.*?</script>", lambda _: f"id=data>{json.dumps(content)}</script>", text, flags=re.S
    )
    page.write_text(changed, "utf-8")
    assert "✗" in verdict(page) and "attention.weights" in verdict(page)


def test_the_verb_prints_the_example_and_writes_the_page(runs, tmp_path: Path, capsys):
    folder = str(runs("gpt").folder)
    main(["inspect", "trace", folder, "a cat", "--beam", "2"])
    lines = capsys.readouterr().out.splitlines()
    assert "agree" in lines[0] and "q · k = " in lines[1] and lines[-1].startswith("page: ")
    page = Path(lines[-1].removeprefix("page: ")).read_text("utf-8")
    assert len(page.encode()) < 2_000_000 and "https://" not in page and "src=" not in page
    main(["inspect", "trace", folder, "a cat", "--json", "--out", str(tmp_path / "own.html")])
    report = json.loads(capsys.readouterr().out)
    names = [step["name"] for step in report["steps"]]
    assert "stack.blocks.0.attention.weights" in names and report["checked"] == len(
        [step for step in report["steps"] if step["error"] is not None]
    )
    shutil.copytree(GOLDEN / "vectors-cbow", tmp_path / "vectors")
    main(["inspect", "trace", str(tmp_path / "vectors"), "the old king sees a river"])
    shown = capsys.readouterr().out
    assert "6 tokens" in shown and "agree" not in shown


def refused(capsys, *words: str) -> str:
    """The one line with which a command is refused."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as end:
        main(list(words))
    shown = capsys.readouterr()
    assert end.value.code == 2 and shown.err.count("\n") == 1 and not shown.out
    return shown.err


def test_a_layer_that_is_not_there_and_vectors_of_another_method_are_refused(runs, tmp_path: Path, capsys):
    run = runs("gpt")
    last = max(number for step in trace(run, TEXT).steps if (number := layer_of(step)) is not None)
    for layer in (last + 1, -1):
        line = refused(capsys, "inspect", "trace", str(run.folder), "a cat", "--layer", str(layer))
        assert "counted from 0" in line and ("layer 0" if last == 0 else f"layers 0 to {last}") in line
    page = tmp_path / "last.html"
    main(["inspect", "trace", str(run.folder), "a cat", "--layer", str(last), "--out", str(page)])
    assert f"(layer {last};" in capsys.readouterr().out
    folder = tmp_path / "vectors"
    shutil.copytree(GOLDEN / "vectors-cbow", folder)
    assert "no numbered layers" in refused(
        capsys, "inspect", "trace", str(folder), "the old king", "--layer", "0"
    )
    meta = json.loads((folder / "meta.json").read_text("utf-8"))
    meta["about"]["kind"] = "glove"
    (folder / "meta.json").write_text(json.dumps(meta), "utf-8")
    assert "of glove" in refused(capsys, "inspect", "trace", str(folder), "the old king")


def test_the_model_is_as_before(runs):
    """Hooks are gone after a trace, and nothing of it stays."""
    run = runs("gpt")
    ids, _ = run.encode([TEXT[:8]], as_prompt=True)
    with torch.no_grad():
        before = run.model(ids)[0]
        trace(run, TEXT)
        assert torch.equal(run.model(ids)[0], before)
    assert not any(module._forward_hooks for module in run.model.modules())
