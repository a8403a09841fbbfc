"""A real GPT whose every intermediate value is published (LLM-viz): captured values are those, it sorts, and heads can be removed."""

from __future__ import annotations

import base64
import gzip
import json
import os
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from seqloom import nn
from seqloom.fused.dispatch import plain
from seqloom.inspect.trace_values import trace_model
from seqloom.models import LanguageModel
from seqloom.nn.capture import capture, change

FOLDER = Path(os.environ.get("SEQLOOM_DATA", "")) / "weights" / "nanosort"
pytestmark = [
    pytest.mark.data,
    pytest.mark.skipif(
        "SEQLOOM_DATA" not in os.environ or not FOLDER.exists(), reason="needs nanosort of SEQLOOM_DATA"
    ),
]


def tensors(name: str) -> dict[str, Tensor]:
    with gzip.open(FOLDER / f"{name}.json.gz") as file:
        content = json.load(file)
    content.pop("config")
    return {
        key: torch.from_numpy(
            np.frombuffer(base64.b64decode(value["data"]), value["dtype"].removeprefix("torch."))
            .reshape(value["shape"])
            .copy()
        )
        for key, value in content.items()
    }


@pytest.fixture(scope="module")
def model() -> LanguageModel:
    stack = partial(
        nn.Transformer,
        layers=3,
        heads=3,
        position=partial(nn.Learned, length=11),
        feedforward=partial(nn.FeedForward, activation="gelu_tanh"),
    )
    model = LanguageModel(3, 48, stack, tied=False, output=partial(nn.Output, bias=False)).eval()
    weights = tensors("model")
    ours = {"embedding.table": weights["transformer.wte.weight"], "output.table": weights["lm_head.weight"]}
    ours["stack.position.table"] = weights["transformer.wpe.weight"]
    parts = {
        "ln_1": "attention_norm",
        "ln_2": "feedforward_norm",
        "attn.c_attn": "attention.qkv_proj",
        "attn.c_proj": "attention.out_proj",
        "mlp.c_fc": "feedforward.in_proj",
        "mlp.c_proj": "feedforward.out_proj",
    }
    for layer, (theirs, part), kind in product(range(3), parts.items(), ("weight", "bias")):
        gain = "gain" if "norm" in part and kind == "weight" else kind
        ours[f"stack.blocks.{layer}.{part}.{gain}"] = weights[f"transformer.h.{layer}.{theirs}.{kind}"]
    ours |= {
        "stack.norm.gain": weights["transformer.ln_f.weight"],
        "stack.norm.bias": weights["transformer.ln_f.bias"],
    }
    parameters = dict(model.named_parameters())
    assert parameters.keys() == ours.keys()
    with torch.no_grad():
        for name, parameter in parameters.items():
            parameter.copy_(ours[name])
    return model


def test_every_published_value_is_captured(model: LanguageModel):
    theirs = tensors("intermediate")
    with torch.no_grad(), capture(model) as captured:
        model(theirs["idx"].long())
    block = "stack.blocks.0"
    pairs = {
        "tok_emb": "embedding",
        "x": "stack.input",
        "ln1": f"{block}.attention_norm",
        "q": f"{block}.attention.q",
        "k": f"{block}.attention.k",
        "v": f"{block}.attention.v",
        "attSm": f"{block}.attention.weights",
        "yProj": f"{block}.attention",
        "attnResid": f"{block}.after_attention",
        "ln2": f"{block}.feedforward_norm",
        "gelu": f"{block}.feedforward.hidden",
        "mlp": f"{block}.feedforward",
        "mlpResid": block,
        "block0": block,
        "block1": "stack.blocks.1",
        "block2": "stack.blocks.2",
        "ln_f": "stack.norm",
        "lm_head": "output",
    }
    for name, ours in pairs.items():
        assert torch.allclose(captured[ours], theirs[name], rtol=1e-4, atol=1e-5), name
    heads = captured[f"{block}.attention.head"].transpose(1, 2).flatten(2)
    assert torch.allclose(heads, theirs["y"], rtol=1e-4, atol=1e-5)
    visible = torch.ones(11, 11, dtype=torch.bool).tril()
    assert torch.allclose(
        captured[f"{block}.attention.score"][..., visible], theirs["att"][..., visible], rtol=1e-4, atol=1e-5
    )
    assert torch.allclose(captured["output"].softmax(-1), theirs["probs"], rtol=1e-4, atol=1e-5)


def test_every_published_value_is_a_step_of_the_trace(model: LanguageModel):
    """All 23 tensors of the publication but the ids, for each of its three texts, to 1e-4 relative."""
    theirs = tensors("intermediate")
    block = "stack.blocks.0"
    names = {
        "tok_emb": "embedding",
        "x": "stack.input",
        "ln1": f"{block}.attention_norm",
        "q": f"{block}.attention.q",
        "k": f"{block}.attention.k",
        "v": f"{block}.attention.v",
        "attSm": f"{block}.attention.weights",
        "yProj": f"{block}.attention",
        "attnResid": f"{block}.after_attention",
        "ln2": f"{block}.feedforward_norm",
        "fc": f"{block}.feedforward.hidden.a",
        "gelu": f"{block}.feedforward.hidden",
        "mlp": f"{block}.feedforward",
        "mlpResid": block,
        "block0": block,
        "block1": "stack.blocks.1",
        "block2": "stack.blocks.2",
        "ln_f": "stack.norm",
        "lm_head": "output",
    }
    for text, ids in enumerate(theirs["idx"].long()):

        def scores(batch: int, ids: Tensor = ids) -> Tensor:
            return model(ids[None].expand(batch, -1))[0]

        found = trace_model(model, scores, tuple("ABC"[one] for one in ids))
        assert not found.wrong and not found.given

        def equal(ours: np.ndarray, published: str, text: int = text) -> None:
            expected = theirs[published].expand(3, *theirs[published].shape[1:])[text].double().numpy()
            difference = np.abs(ours - expected).max()
            assert difference <= 1e-4 * np.abs(expected).max(), published

        for published, name in names.items():
            equal(found.step(name).values, published)
        equal(found.step("stack.input").operands["p"].values, "pos_emb")
        equal(np.concatenate(list(found.step(f"{block}.attention.head").values), -1), "y")
        three = [found.step(f"{block}.attention.{name}").values for name in "qkv"]
        equal(np.concatenate([np.concatenate(list(one), -1) for one in three], -1), "qkv")
        probability = np.zeros(3)
        last = found.step("output.probability")
        probability[[int(word) for word in last.labels["w"]]] = last.values
        assert np.abs(probability - theirs["probs"][text, -1].numpy()).max() < 1e-4
        scores_shown = found.step(f"{block}.attention.score").values
        seen = np.tril(np.ones((11, 11), bool))
        expected = theirs["att"][text].numpy()[:, seen]
        assert np.abs(scores_shown[:, seen] - expected).max() <= 1e-4 * np.abs(expected).max()
        assert np.allclose(
            found.step(f"{block}.attention.score.product").values[:, seen], 4 * expected, atol=1e-3
        )


def sorted_share(model: LanguageModel) -> float:
    """The share of all 729 inputs of six letters that the model sorts."""
    letters = torch.tensor(list(product(range(3), repeat=6)))
    ids = letters
    with torch.no_grad():
        for _ in range(6):
            ids = torch.cat([ids, model(ids)[0][:, -1:].argmax(-1)], 1)
    return float((ids[:, 6:] == letters.sort(1).values).all(1).double().mean())


def test_it_sorts_all_inputs(model: LanguageModel):
    assert sorted_share(model) == 1


def test_removing_each_head_is_zeroing_its_columns(model: LanguageModel):
    for layer, head in product(range(3), range(3)):
        with change(model, {f"stack.blocks.{layer}.attention.head.{head}": torch.zeros_like}):
            removed = sorted_share(model)
        weight = model.stack.blocks[layer].attention.out_proj.weight
        before = weight.detach().clone()
        with torch.no_grad(), plain():
            weight[:, 16 * head : 16 * head + 16] = 0
            assert sorted_share(model) == removed
            weight.copy_(before)
