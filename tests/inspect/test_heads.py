"""Heads and gradients against scipy, finite differences, zeroed weights and loops written here."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon

from seqloom.errors import UserError
from seqloom.fused.dispatch import plain
from seqloom.inference.mask_filling import encode_whole
from seqloom.inspect.attention_maps import attention
from seqloom.inspect.gradient_norms import gradients
from seqloom.inspect.head_pages import gradients_page, heads_page, scaling
from seqloom.inspect.head_values import heads
from seqloom.inspect.reading import read_given
from seqloom.inspect.removed_edges import no_attention
from seqloom.nn.capture import capture
from seqloom.nn.cells import LSTM
from seqloom.nn.pool import AttentionPool
from seqloom.run import Run

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TEXTS = ["the old cat sees a river", "a man sees the cat"]
SHORT = "a man sees"  # within the context of every run
PAIRS = ["the old cat\tun vieux chat", "a man sees\tun homme voit"]


def loss_of(run: Run, texts: list[str]) -> float:
    with torch.no_grad(), plain():
        scores = [read_given(run, text, 128).scores(1)[0].double() for text in texts]
    return -float(torch.cat(scores).mean())


def test_a_reading_for_the_loss_scores_what_the_text_says(runs):
    run = runs("gpt")
    ids, _ = run.encode([SHORT], as_prompt=True)
    with torch.no_grad():
        expected = -torch.nn.functional.cross_entropy(
            run.model(ids[:, :-1])[0][0], ids[0, 1:], reduction="none"
        )
    assert torch.allclose(read_given(run, SHORT).scores(1)[0], expected, atol=1e-5)
    bert = runs("bert")
    reading = read_given(bert, TEXTS[0], seed=3)
    mask = bert.tokenizer.id_to_token(bert.specials.mask)
    assert sum(mask in token for token in reading.tokens) == len(reading.targets) >= 1


@pytest.mark.parametrize("name", ["gpt", "llama", "bert", "transformer"])
def test_ablation_is_zeroing_columns_of_the_output_projection(runs, name: str):
    run = runs(name)
    texts = PAIRS if name == "transformer" else TEXTS
    found = heads(run, texts)
    assert found.loss == pytest.approx(loss_of(run, texts), abs=1e-5)
    for one in found.heads[:: max(1, len(found.heads) // 4)]:
        weight = run.model.get_submodule(one.layer).out_proj.weight
        size = weight.shape[1] // sum(other.layer == one.layer for other in found.heads)
        before = weight.detach().clone()
        with torch.no_grad():
            weight[:, size * one.head : size * (one.head + 1)] = 0
            without = loss_of(run, texts)
            weight.copy_(before)
        assert one.ablation == pytest.approx(without - found.loss, abs=1e-5)


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2"])
def test_maps_distances_and_entropies_are_those_of_transformers_attentions(runs, name: str):
    from transformers import AutoModel

    run = runs(name)
    theirs = AutoModel.from_pretrained(run.folder, attn_implementation="eager").eval()
    masked = run.model.task == "masked language modelling"
    ids = encode_whole(run, SHORT) if masked else run.encode([SHORT], as_prompt=True)[0][0].tolist()
    with torch.no_grad():
        attentions = theirs(torch.tensor([ids]), output_attentions=True).attentions
    expected = [head.double().numpy() for layer in attentions for head in layer[0]]
    maps = attention(run, SHORT, edges=1).maps
    assert len(maps) == len(expected)
    for one, weights in zip(maps, expected, strict=True):
        assert np.allclose(one.weights, weights, atol=1e-5)
    if masked:  # its heads are measured while tokens are hidden
        return
    inner = [weights[:-1, :-1] for weights in expected]  # the last token is predicted, not read
    for one, weights in zip(heads(run, [SHORT]).heads, inner, strict=True):
        keys = np.arange(weights.shape[1])
        distance = sum((row * np.abs(keys - query)).sum() for query, row in enumerate(weights)) / len(weights)
        entropy = -sum((row[row > 0] * np.log2(row[row > 0])).sum() for row in weights) / len(weights)
        assert one.distance == pytest.approx(distance, abs=1e-4)
        assert one.entropy == pytest.approx(entropy, abs=1e-4)


@pytest.mark.parametrize("order", ["ablation", "gradient"])
def test_pruning_removes_the_least_important_first(runs, order: str):
    run = runs("gpt")
    found = heads(run, TEXTS, order=order)
    importance = {one.name: one.to_dict()[order] for one in found.heads}
    values = [importance[name] for name in found.removed]
    assert values == sorted(values) and len(found.losses) == len(found.removed) + 1
    assert found.losses[0] == pytest.approx(found.loss)
    weights = {one.layer: run.model.get_submodule(one.layer).out_proj.weight for one in found.heads}
    before = {layer: weight.detach().clone() for layer, weight in weights.items()}
    with torch.no_grad():
        for weight in weights.values():
            weight.zero_()
        nothing = loss_of(run, TEXTS)
        for layer, weight in weights.items():
            weight.copy_(before[layer])
    assert found.losses[-1] == pytest.approx(nothing, abs=1e-5)  # all heads removed


def test_importance_by_gradient_is_the_slope_of_the_loss_when_a_head_is_scaled(runs):
    """∂L/∂ξ at ξ = 1 of a head times ξ, by finite differences in double precision."""
    run = runs("gpt")
    found = heads(run, TEXTS)
    run.model.double()
    try:
        slopes: dict[str, list[float]] = {}
        for one in found.heads:
            weight = run.model.get_submodule(one.layer).out_proj.weight
            size = weight.shape[1] // sum(other.layer == one.layer for other in found.heads)
            columns = slice(size * one.head, size * (one.head + 1))
            before = weight.detach().clone()
            total = 0.0
            for text in TEXTS:
                values = []
                for factor in (1 + 1e-4, 1 - 1e-4):
                    with torch.no_grad():
                        weight[:, columns] = before[:, columns] * factor
                    values.append(loss_of(run, [text]))
                total += abs(values[0] - values[1]) / 2e-4
            with torch.no_grad():
                weight.copy_(before)
            slopes.setdefault(one.layer, []).append(total)
    finally:
        run.model.float()
    for layer, values in slopes.items():
        expected = np.array(values) / np.linalg.norm(values)
        ours = [one.gradient for one in found.heads if one.layer == layer]
        assert np.allclose(ours, expected, atol=2e-3)


def test_similarity_and_distance_of_heads_are_those_of_their_maps(runs):
    run = runs("bert")
    found = heads(run, TEXTS[:1], seed=1)
    reading = read_given(run, TEXTS[0], 128, seed=1)
    with torch.no_grad(), capture(run.model, "*.weights") as captured:
        reading.scores(1)
    every = [head.double().numpy() for weights in captured.values() for head in weights[0]]
    assert len(every) == len(found.heads)
    for i in range(len(every)):
        for j in range(len(every)):
            expected = np.mean([jensenshannon(p, q, base=2) for p, q in zip(every[i], every[j], strict=True)])
            assert found.js_distances[i, j] == pytest.approx(0 if i == j else expected, abs=1e-6)
    steps = np.abs(np.subtract.outer(np.arange(len(every[0])), np.arange(len(every[0]))))
    for one, weights in zip(found.heads, every, strict=True):
        assert one.distance == pytest.approx((weights * steps).sum(1).mean())
    assert "<svg" in heads_page(found) and len(heads_page(found)) < 2_000_000


@pytest.mark.parametrize(
    "name",
    ["gpt", "bert", "encoder", "transformer", "rnnsearch", "luong", "gnmt", "convs2s", "tagger-transformer"],
)
def test_heads_of_any_run_that_attends(runs, name: str):
    run = runs(name)
    texts = PAIRS if run.model.task == "translation" else TEXTS
    found = heads(run, texts)
    assert all(np.isfinite(found.losses)) and max(abs(one.ablation) for one in found.heads) > 0
    if name == "encoder":
        assert all(one.gradient is None for one in found.heads)
        with pytest.raises(UserError, match="no gradients"):
            heads(run, texts, order="gradient")
    else:
        assert all(one.gradient >= 0 for one in found.heads)
    assert found.to_dict()["js_distances"][0][0] == 0


def test_runs_without_heads_and_no_texts_are_refused(runs):
    with pytest.raises(UserError, match="no attention"):
        heads(runs("gru"), TEXTS)
    with pytest.raises(UserError, match="no texts"):
        heads(runs("gpt"), [])


def test_scaling_keeps_distances_in_the_plane():
    points = np.random.default_rng(0).normal(size=(6, 2))
    distances = np.linalg.norm(points[:, None] - points[None], axis=-1)
    found = scaling(distances)
    assert np.allclose(np.linalg.norm(found[:, None] - found[None], axis=-1), distances)


def unrolled_lstm(run: Run, ids: torch.Tensor) -> tuple[list[torch.Tensor], list[torch.Tensor], torch.Tensor]:
    """h and c of each step of the first layer, and the losses, by a loop over a model of one LSTM layer."""
    model = run.model
    x = model.embedding(ids)
    states: list[list[torch.Tensor]] = []
    for layer in model.stack.layers:
        cell = layer[0].cell
        h = c = torch.zeros(1, cell.dim)
        outputs, memories = [], []
        for t in range(x.shape[1]):
            a = x[:, t] @ cell.input.T + cell.signed_bias(cell.bias) + h @ cell.hidden.T
            i, f, g, o = a.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            c.retain_grad()
            h = o.sigmoid() * c.tanh()
            h.retain_grad()
            outputs.append(h)
            memories.append(c)
        states.append(outputs + memories)
        x = torch.stack(outputs, 1)
    logits = model.output(x if model.out_proj is None else model.out_proj(x))
    return states[0][: ids.shape[1]], states[0][ids.shape[1] :], logits


def test_gradients_are_those_of_an_unrolled_loop_with_retained_gradients(runs):
    run = runs("lstm")
    text = TEXTS[0]
    found = gradients(run, [text], positions=3)
    ids, _ = run.encode([text], as_prompt=True)
    inputs, targets = ids[:, :-1], ids[0, 1:]
    length = inputs.shape[1]
    picks = np.unique(np.linspace(length // 2, length - 1, 3).astype(int)).tolist()
    expected: dict[str, dict[int, list[float]]] = {"h": {}, "c": {}}
    for t in picks:
        hs, cs, logits = unrolled_lstm(run, inputs)
        with plain(), torch.no_grad():
            assert torch.allclose(logits, run.model(inputs)[0], atol=1e-5)
        torch.nn.functional.cross_entropy(logits[0, t : t + 1], targets[t : t + 1]).backward()
        for name, values in (("h", hs), ("c", cs)):
            for s in range(t + 1):
                gradient = values[s].grad
                expected[name].setdefault(t - s, []).append(
                    0.0 if gradient is None else float(gradient.norm())
                )
    run.model.zero_grad()
    for name in ("h", "c"):
        [curve] = [one for one in found.curves if one.value.endswith(f"0.0.cell.{name}")]
        assert curve.counts == tuple(len(expected[name][k]) for k in range(max(picks) + 1))
        for k, norm in enumerate(curve.norms):
            assert norm == pytest.approx(np.mean(expected[name][k]), rel=1e-3, abs=1e-9)


def test_gradients_by_depth_are_those_of_autograd_hooks(runs):
    run = runs("gpt")
    found = gradients(run, [SHORT])
    ids, _ = run.encode([SHORT], as_prompt=True)
    outputs = []
    hooks = [
        block.register_forward_hook(lambda _, __, output: outputs.append(output[0]))
        for block in run.model.stack.blocks
    ]
    with plain():
        logits, _ = run.model(ids[:, :-1])
    for hook in hooks:
        hook.remove()
    loss = torch.nn.functional.cross_entropy(logits[0], ids[0, 1:], reduction="sum")
    expected = [float(one[0].norm(dim=-1).mean()) for one in torch.autograd.grad(loss, outputs)]
    ours = [one.norm for one in found.layers if "blocks" in one.layer]
    assert ours == pytest.approx(expected, rel=1e-4)
    assert not found.matrices
    assert all(len(curve.norms) == len(ids[0]) - 1 for curve in found.curves)


def test_the_spectral_radius_is_the_growth_of_many_products(runs):
    run = runs("gru")
    found = gradients(run, TEXTS[:1])
    for matrix in found.matrices:
        cell = run.model.get_submodule(matrix.cell)
        row = ["reset", "keep", "new"].index(matrix.gate)
        w = cell.hidden.detach().double()[row * cell.dim : (row + 1) * cell.dim]
        power = torch.linalg.matrix_norm(torch.linalg.matrix_power(w, 256), 2) ** (1 / 256)
        assert matrix.spectral_radius == pytest.approx(float(power), rel=0.03)
        assert np.hypot(*matrix.eigenvalues.T).max() == pytest.approx(matrix.spectral_radius)
    assert {matrix.gate for matrix in found.matrices} == {"reset", "keep", "new"}


def test_clipping_is_that_of_the_runs_config(runs):
    run = runs("lstm")
    found = gradients(run, TEXTS)
    assert found.clip is not None and found.clip.clipped_norm <= found.clip.limit * 1.0001
    reading = [read_given(run, text, 64) for text in TEXTS]
    with plain():
        loss = -sum(one.scores(1).mean() for one in reading) / 2
    grads = torch.autograd.grad(loss, list(run.model.parameters()), allow_unused=True)
    norm = float(torch.stack([one.norm() for one in grads if one is not None]).norm())
    assert found.clip.norm == pytest.approx(norm, rel=1e-3)
    assert found.clip.factor == pytest.approx(min(1, found.clip.limit / norm), rel=1e-3)


@pytest.mark.parametrize(
    "name",
    [
        "cells",
        "elmo",
        "rnnsearch",
        "seq2seq",
        "gnmt",
        "classifier",
        "tagger",
        "bert",
        "llama",
        "convolution",
        "transformer",
    ],
)
def test_gradients_of_any_run(runs, name: str):
    run = runs(name)
    found = gradients(run, PAIRS if run.model.task == "translation" else TEXTS)
    assert found.layers and all(np.isfinite(layer.norm) and layer.norm >= 0 for layer in found.layers)
    if found.matrices:
        assert found.curves and any(max(curve.norms) > 0 for curve in found.curves)
    assert len(gradients_page(found)) < 2_000_000


def test_gradients_need_a_loss_and_a_text(runs):
    with pytest.raises(UserError, match="no loss"):
        gradients(runs("encoder"), TEXTS)
    with pytest.raises(UserError, match="no texts"):
        gradients(runs("gpt"), [])


def test_long_texts_are_cut_and_it_is_reported(runs, caplog):
    heads(runs("gpt"), ["the old cat sees a river " * 300, "a cat"], max_tokens=8)
    assert "1 of 2 texts are cut at 9 tokens" in caplog.text


def test_a_model_whose_pooling_attends_says_where_to_look():
    found = []
    for part, reads in ((AttentionPool(4), "text"), (AttentionPool(4), "audio"), (LSTM(2, 2), "text")):
        model = torch.nn.Sequential(part)
        model.reads = reads
        found.append(str(no_attention(SimpleNamespace(folder="runs/a", model=model), "heads")))
    assert "only its pooling attends: seqloom inspect trace runs/a TEXT" in found[0]
    assert "only its pooling attends: seqloom inspect trace runs/a FILE" in found[1]
    assert (
        "inspect heads shows attention" in found[2] and "use: seqloom inspect gates runs/a TEXT" in found[2]
    )


@pytest.mark.parametrize("verb", [heads, gradients])
def test_a_source_without_a_translation_is_reported(runs, verb, caplog):
    """Its target is the model's own output, whose loss is too low."""
    run = runs("transformer")
    verb(run, ["the cat\teht tac", "a man"])
    assert "1 of 2 lines have no tab and translation: the model's own output is their target" in caplog.text
    caplog.clear()
    verb(run, ["the cat\teht tac"])
    verb(runs("gpt"), ["the cat"])
    assert "no tab" not in caplog.text
