"""Vectors of layers against `transformers`, and geometry and similarity of runs."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.errors import UserError
from seqloom.inspect.layer_vectors import geometry, similarity, text_vectors
from seqloom.interop import import_checkpoint
from support.minilm import minilm_folder

GOLDEN = Path(__file__).parents[1] / "golden" / "v1"
TEXTS = ["the old cat sees a river", "a cat", "the river sees the old man", "a man sees a cat"]


def by_text(run, texts: list[str]) -> list[dict[str, np.ndarray]]:
    """The vectors of each text at each layer, in order."""
    found: dict[int, dict[str, np.ndarray]] = {number: {} for number in range(len(texts))}
    for batch in text_vectors(run, texts):
        for name in batch.layers:
            for number, vectors in zip(batch.index, batch.split(name), strict=True):
                found[number][name] = vectors
    return list(found.values())


def test_vectors_of_layers_are_the_hidden_states_of_transformers(runs):
    from transformers import AutoModel

    run = runs("gpt2")
    theirs = AutoModel.from_pretrained(run.folder).eval()
    [found] = by_text(run, TEXTS[:1])
    ids, _ = run.encode(TEXTS[:1])
    with torch.no_grad():
        hidden = theirs(ids[:, : len(found["embedding"])], output_hidden_states=True).hidden_states
    ours = [found["stack.input"], *(found[name] for name in found if "blocks" in name)]
    # the last of theirs is after the final norm
    for mine, other in zip(ours[:-1], hidden[:-1], strict=True):
        assert np.allclose(mine, other[0].numpy(), atol=1e-4)


@pytest.mark.parametrize("name", ["elmo", "rnnsearch", "lstm"])
def test_a_layer_of_an_rnn_is_both_directions_and_the_residual(runs, name: str):
    """The layers are those of `hidden_states`, which runs the compiled loop."""
    run = runs(name)
    [found] = by_text(run, TEXTS[:1])
    ids, _ = run.encode(TEXTS[:1])
    stack = run.model.encoder if name == "rnnsearch" else run.model.stack
    with torch.no_grad():
        hidden, _ = stack.hidden_states(run.model.embedding(ids))
    if name == "elmo":
        hidden = hidden[:-1]  # the last is the mixture
    layers = [vectors for layer, vectors in found.items() if ".output." in layer]
    assert next(iter(found)) == "embedding" and len(layers) == len(hidden) == len(found) - 1
    for mine, other in zip(layers, hidden, strict=True):
        assert np.allclose(mine, other[0].numpy(), atol=1e-5)


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
    alone = [by_text(run, [text])[0] for text in TEXTS]
    for one, other in zip(by_text(run, TEXTS), alone, strict=True):
        assert all(np.allclose(one[name], other[name], atol=1e-5) for name in one)


def test_runs_without_vectors_and_no_texts_are_refused(runs, monkeypatch):
    run = runs("gpt")
    monkeypatch.setattr(type(run.model), "embeds_text", False)
    with pytest.raises(UserError, match="geometry needs vectors of texts"):
        geometry(run, TEXTS)
    monkeypatch.undo()
    with pytest.raises(UserError, match="many texts, not 1"):
        similarity(run, run, TEXTS[:1])
    with pytest.raises(UserError, match="no texts"):
        geometry(runs("gpt"), [])


def test_long_texts_are_cut_and_it_is_reported(runs, caplog):
    found = geometry(runs("lstm"), ["the old cat sees a river " * 3000, "a cat"])
    assert found.tokens < 600 and "1 of 2 texts are cut at 512 tokens" in caplog.text


@pytest.mark.data
def test_geometry_of_minilm_is_a_plain_computation_from_transformers(tmp_path: Path, real_data: Path):
    """Literal numpy on the hidden states of `transformers`: every pair, sentence by sentence."""
    transformers = pytest.importorskip("transformers")
    folder = minilm_folder()
    if folder is None:
        pytest.skip("needs MiniLM: set SEQLOOM_MINILM to its folder")
    with gzip.open(real_data / "ud" / "en_ewt-ud-test.conllu.gz", "rt", encoding="utf-8") as file:
        texts = [line.removeprefix("# text = ").strip() for line in file if line.startswith("# text = ")][:40]
    run = import_checkpoint(folder, tmp_path / "minilm")
    found = {layer.layer: layer for layer in geometry(run, texts).layers}
    model, tokenizer = (
        one.from_pretrained(folder) for one in (transformers.AutoModel, transformers.AutoTokenizer)
    )
    ids = [tokenizer(text)["input_ids"] for text in texts]
    with torch.no_grad():
        hidden = [model.eval()(torch.tensor([row]), output_hidden_states=True).hidden_states for row in ids]
    words = np.concatenate(ids)
    sentence = np.repeat(np.arange(len(ids)), [len(row) for row in ids])
    for level, layer in enumerate(["stack.input", *(f"stack.blocks.{block}" for block in range(6))]):
        x = np.concatenate([states[level][0].numpy() for states in hidden]).astype(np.float64)
        u = x / np.linalg.norm(x, axis=1, keepdims=True)
        cosines = u @ u.T
        anisotropy = cosines[words[:, None] != words].mean()
        apart = (words[:, None] == words) & (sentence[:, None] != sentence)
        own = np.mean(
            [
                cosines[apart & (words == word)[:, None]].mean()
                for word in np.unique(words)
                if apart[words == word].any()
            ]
        )
        intra = []
        for number in range(len(ids)):
            rows = x[sentence == number]
            centre = rows.mean(0)
            intra.append(
                np.mean([row @ centre / np.linalg.norm(row) / np.linalg.norm(centre) for row in rows])
            )
        spread, about = np.linalg.svd(x - x.mean(0), compute_uv=False), np.linalg.svd(x, compute_uv=False)
        ours = found[layer]
        assert ours.anisotropy == pytest.approx(anisotropy, abs=2e-4)
        assert ours.self_similarity == pytest.approx(own - anisotropy, abs=2e-4)
        assert ours.intra_sentence_similarity == pytest.approx(np.mean(intra) - anisotropy, abs=2e-4)
        assert ours.variance_explained == pytest.approx(spread[0] ** 2 / np.square(spread).sum(), abs=2e-4)
        assert ours.origin_variance_explained == pytest.approx(
            about[0] ** 2 / np.square(about).sum(), abs=2e-4
        )
