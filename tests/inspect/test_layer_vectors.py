"""Vectors of layers against `transformers`, and geometry and similarity of runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.errors import UserError
from seqloom.inspect.layer_vectors import geometry, similarity, token_vectors

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TEXTS = ["the old cat sees a river", "a cat", "the river sees the old man", "a man sees a cat"]


def test_vectors_of_layers_are_the_hidden_states_of_transformers(runs):
    from transformers import AutoModel

    run = runs("gpt2")
    theirs = AutoModel.from_pretrained(run.folder).eval()
    [found] = token_vectors(run, TEXTS[:1])
    ids, _ = run.encode(TEXTS[:1])
    with torch.no_grad():
        hidden = theirs(ids[:, : len(found.tokens)], output_hidden_states=True).hidden_states
    ours = [found.layers["stack.input"], *(found.layers[name] for name in found.layers if "blocks" in name)]
    # the last of theirs is after the final norm
    for mine, other in zip(ours[:-1], hidden[:-1], strict=True):
        assert np.allclose(mine, other[0].numpy(), atol=1e-4)


@pytest.mark.parametrize(
    "name", ["gpt", "lstm", "bert", "encoder", "elmo", "convolution", "transformer", "rnnsearch"]
)
def test_geometry_of_any_run(runs, name: str):
    found = geometry(runs(name), TEXTS)
    assert found.texts == 4 and len(found.layers) >= 2
    for layer in found.layers:
        assert -1 <= layer.anisotropy <= 1 and 0 < layer.variance_explained <= 1


def test_a_run_is_like_itself_and_padding_does_not_matter(runs):
    run = runs("gpt")
    found = similarity(run, run, TEXTS, estimate="biased")
    assert np.allclose(np.diag(found.cka), 1) and np.allclose(found.cka, found.cka.T)
    alone = [next(token_vectors(run, [text])) for text in TEXTS]
    for one, other in zip(token_vectors(run, TEXTS), alone, strict=True):
        assert one.tokens == other.tokens
        assert all(np.allclose(one.layers[name], other.layers[name], atol=1e-5) for name in one.layers)


def test_runs_without_vectors_and_no_texts_are_refused(runs, monkeypatch):
    run = runs("gpt")
    monkeypatch.setattr(type(run.model), "embeds_text", False)
    with pytest.raises(UserError, match="vectors of texts come from"):
        geometry(run, TEXTS)
    monkeypatch.undo()
    with pytest.raises(UserError, match="many texts, not 1"):
        similarity(run, run, TEXTS[:1])
    with pytest.raises(UserError, match="no texts"):
        geometry(runs("gpt"), [])
