"""Inspection of small trained runs of every family."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch

from seqloom.errors import UserError
from seqloom.fused.dispatch import plain
from seqloom.inspect.attention_maps import Edge, attention, rank_correlation
from seqloom.inspect.gate_values import carry, gates
from seqloom.inspect.gradient_norms import gradients
from seqloom.inspect.named_values import activations
from seqloom.inspect.patching import patch
from seqloom.inspect.reading import read
from seqloom.nn.capture import capture
from seqloom.nn.cells import HiddenState, LinearCell
from seqloom.nn.layer import Point, Points
from seqloom.run import Run
from seqloom.train.fit import fit

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TEXT = "the old cat sees a river"
RUNS = sorted(path.parent.name for path in GOLDEN.glob("*/model.safetensors"))
ATTENDING = [
    "gpt",
    "llama",
    "rotary",
    "alibi",
    "bert",
    "encoder",
    "tagger-transformer",
    "transformer",
    "marian",
    "convs2s",
    "moe-lm",
]
RECURRENT = ["gru", "lstm", "cells", "lstm-words", "elmo", "rnnsearch", "classifier", "tagger", "seq2seq"]


def text_for(run: Run) -> str:
    count = sum(kind in ("text", "words", "passage") for kind in run.config.kinds())
    return "\t".join([TEXT] * (count if run.model.predicts_labels else 1))


@pytest.mark.parametrize("name", RUNS)
def test_every_run_is_read_and_its_values_are_named(runs, name: str):
    run = runs(name)
    target = "un chat" if run.model.task == "translation" else None
    reading = read(run, text_for(run), target)
    with torch.no_grad():
        fast = reading.scores(2)
        with plain():
            expected = reading.scores(2)
        assert torch.allclose(fast, expected, rtol=1e-4, atol=1e-5)
        with capture(run.model) as captured:
            assert torch.equal(reading.scores(2), expected)
    assert expected.shape == (2, len(reading.targets)) and len(captured) > 2
    found = activations(run, text_for(run), target)
    assert [value.name for value in found.values] == list(captured)
    assert all(np.isfinite(value.mean) for value in found.values)


@pytest.mark.parametrize("name", ATTENDING)
def test_the_effect_of_an_edge_is_that_of_hiding_it(runs, name: str):
    """Against a loop that hides one key at a time in a model run by itself."""
    run = runs(name)
    target = "un vieux chat" if run.model.task == "translation" else None
    found = attention(run, text_for(run), target, edges=30)
    assert all(np.allclose(one.weights.sum(1), 1, atol=1e-5) for one in found.maps)
    reading = read(run, text_for(run), target)
    parts = dict(run.model.named_modules())
    with torch.no_grad(), plain():
        before = reading.scores(1).double()
        by_layer: dict[str, list[Edge]] = {}
        for edge in found.edges:
            by_layer.setdefault(edge.layer, []).append(edge)
        for edge in (edge for edges in by_layer.values() for edge in (*edges[:3], *edges[-2:])):
            score = parts[f"{edge.layer}.score"]
            forward = score.forward

            def hide(q, k, forward=forward, edge=edge):
                scores = forward(q, k)
                scores[0, edge.head, edge.query, edge.key] = float("-inf")
                return scores

            score.forward = hide
            try:
                effect = float((reading.scores(1).double() - before).sum())
            finally:
                del score.forward
            assert edge.effect == pytest.approx(effect, abs=2e-5)


def test_the_rank_correlation_is_that_of_scipy(runs):
    from scipy.stats import spearmanr

    edges = list(attention(runs("bert"), TEXT, edges=60).edges)
    edges += edges[:5]  # ties
    weights, effects = [edge.weight for edge in edges], [abs(edge.effect) for edge in edges]
    assert rank_correlation(edges) == pytest.approx(spearmanr(weights, effects).statistic, abs=1e-12)
    assert rank_correlation(edges[:2]) is None and rank_correlation([edges[0]] * 4) is None


@pytest.mark.parametrize("name", ["rnnsearch", "luong", "gnmt"])
def test_edges_of_recurrent_decoders_are_hidden_at_their_step(runs, name: str):
    run = runs(name)
    found = attention(run, TEXT, "un vieux chat voit", edges=200)
    effects = {}
    for edge in found.edges:
        effects.setdefault(edge.query, []).append(abs(edge.effect))
    assert len(effects) == len(found.tokens) and max(map(max, effects.values())) > 0
    last = [edge for edge in found.edges if edge.query == len(found.tokens) - 1]
    assert all(
        edge.effect == pytest.approx(edge.target_effect, abs=1e-5) for edge in last
    )  # nothing comes after it


@pytest.mark.parametrize("name", RECURRENT)
def test_gates_are_within_their_range_and_carry_is_their_product(runs, name: str):
    run = runs(name)
    found = gates(run, text_for(run), "un chat" if run.model.task == "translation" else None)
    for cell in found.cells:
        tokens = found.source if cell.positions == "source" else found.tokens
        for series in cell.gates:
            assert len(series.values) == len(tokens) or run.model.predicts_labels
            if series.role != "value":
                assert (series.values >= 0).all() and (series.values <= 1).all()
        if cell.carry is not None:
            keep = next(one.values for one in cell.gates if one.role == "keeps")
            later = [keep[:t] if cell.reads_backward else keep[t + 1 :] for t in range(len(keep))]
            expected = np.array([gates_after.prod(0) for gates_after in later])
            assert np.allclose(cell.carry, expected, atol=1e-6)


def test_a_cell_that_reads_backward_carries_to_the_first_word(runs):
    """The carry is ∂cₛ/∂cₜ through the gates alone: that of the last read step to each one before."""
    [forward, backward, *_] = gates(runs("tagger"), "the old cat").cells
    assert not forward.reads_backward and backward.reads_backward
    for cell, order in ((forward, slice(None)), (backward, slice(None, None, -1))):
        [keep] = [one.values for one in cell.gates if one.name in ("forget", "keep")]
        left = np.ones(keep.shape[1])
        for step in reversed(range(len(keep))):
            assert np.allclose(cell.carry[order][step], left, atol=1e-6)
            left = left * keep[order][step]


def test_long_texts_have_windows_and_patching_has_a_limit(runs):
    run = runs("lstm")
    text = "the old cat sees a river " * 20
    whole = gates(run, text)
    first, second = (gates(run, text, max_tokens=20, window=number) for number in (1, 2))
    assert len(first.tokens) == 20 and first.tokens + second.tokens == whole.tokens[:40]
    assert "tokens 21 to 40 of" in second.window and not whole.window
    assert np.allclose(first.cells[0].gates[0].values, whole.cells[0].gates[0].values[:20], atol=1e-5)
    with pytest.raises(UserError, match="512 can be patched"):
        patch(run, "the cat " * 600, "the man " * 600)
    found = gradients(run, [text, "a cat"], max_tokens=10)
    assert found.cut == 1 and found.tokens <= 20


class ReplacingCell(LinearCell):
    """f = σ(W x + U h),  h = (1 - f) ⊙ h + f: a gate that replaces the state, whatever its name says."""

    points: ClassVar[Points] = {"forget": Point("f", "BTD", "replaces"), "h": Point("h", "BTD")}

    def __init__(self, size: int, dim: int):
        super().__init__(size, dim, 1, "none")

    def gates(self, x_proj, state, h_in):
        return {"forget": (x_proj + h_in @ self.hidden.T).sigmoid()}

    def update(self, gates, state):
        return HiddenState((1 - gates["forget"]) * state.h + gates["forget"])


def test_a_gate_has_the_role_that_its_cell_declares(tmp_path: Path):
    """The carry of a gate f that replaces the state is Π (1 - f), although the gate is called forget."""
    file = tmp_path / "text.txt"
    file.write_text("the cat sleeps on the mat\n" * 40)
    small = ["model.stack.cell=ReplacingCell", "model.dim=8", "model.stack.dim=8", "train.steps=2"]
    run = fit("lstm-lm", *small, data=file, out=tmp_path / "run", parts=[ReplacingCell], progress=False)
    cell = gates(run, "the cat").cells[0]
    [series] = [one for one in cell.gates if one.name == "forget"]
    assert series.role == "replaces" and cell.carry is not None
    assert np.allclose(cell.carry[0], np.prod(1 - series.values[1:], 0), rtol=1e-5)


def test_carry_of_open_gates_is_one():
    assert (carry(np.ones((5, 3))) == 1).all() and (carry(np.zeros((3, 2))) == [[0, 0], [0, 0], [1, 1]]).all()


@pytest.mark.parametrize("name", ["gpt", "lstm", "gru", "llama"])
def test_patching_everything_at_the_last_layer_restores_the_answer(runs, name: str):
    run = runs(name)
    pairs = [(TEXT, TEXT.replace("cat", word)) for word in ("dog", "sun", "man", "boy")] + [
        (TEXT, TEXT.replace("a river", word)) for word in ("e river", "o rives", "a river"[::-1])
    ]
    for clean, corrupted in pairs:
        try:
            found = patch(run, clean, corrupted)
        except UserError:
            continue  # the same answer, or another number of tokens
        last = max(index for index, name in enumerate(found.points))
        assert found.restored[last, -1] == pytest.approx(1, abs=1e-3)
        assert found.restored.shape == (len(found.points), len(found.clean))
        same = [
            index for index, (a, b) in enumerate(zip(found.clean, found.corrupted, strict=True)) if a == b
        ]
        first = [index for index in same if index < min(set(range(len(found.clean))) - set(same))]
        assert np.allclose(found.restored[:, first], 0, atol=1e-3)  # before the difference nothing differs
        return
    pytest.skip("this run gives all pairs one answer")


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_refused(runs, text: str):
    with pytest.raises(UserError, match="the text is empty"):
        attention(runs("gpt"), text)


def test_models_without_attention_or_gates_say_so(runs):
    with pytest.raises(UserError, match="no attention"):
        attention(runs("gru"), TEXT)
    with pytest.raises(UserError, match="no recurrent cells"):
        gates(runs("gpt"), TEXT)


def test_a_long_text_is_read_window_by_window(runs):
    text = "word " * 20_000
    found = attention(runs("gpt"), text, edges=5)
    assert len(found.tokens) <= 128 and found.window is not None and "window 1 of" in found.window
    run = runs("llama")
    second = attention(run, text, edges=1, max_tokens=10, window=2)
    ids, _ = run.encode([text], as_prompt=True)
    assert second.tokens == tuple(run.decode([token]) for token in ids[0, 10:20].tolist())
    with pytest.raises(UserError, match="window 7: the text has 1 window of 10 tokens"):
        attention(run, "a cat", max_tokens=10, window=7)
    lstm = gates(runs("lstm"), text, max_tokens=20, window=3)
    assert lstm.window is not None and all(len(cell.gates[0].values) == 20 for cell in lstm.cells)
    translated = attention(runs("transformer"), text, edges=1, max_tokens=12)
    assert len(translated.source) == 12 and len(translated.tokens) <= 12
