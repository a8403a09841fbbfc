"""Sentence embeddings. SEQLOOM_MINILM, or an installed package, provides a real MiniLM; without one its tests are skipped."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from scipy.stats import spearmanr

import seqloom
from seqloom.cli import main
from seqloom.inference.embeddings import Embedder
from seqloom.interop import export_checkpoint, import_checkpoint
from seqloom.run import Run, load
from support.hf_folders import make
from support.minilm import minilm_folder


@pytest.fixture(scope="module")
def minilm(tmp_path_factory) -> tuple[Run, Path]:
    folder = minilm_folder()
    if folder is None:
        pytest.skip("needs MiniLM: set SEQLOOM_MINILM to its folder")
    return import_checkpoint(folder, tmp_path_factory.mktemp("runs") / "minilm"), folder


@pytest.fixture(scope="module")
def theirs(minilm):
    return transformers.AutoModel.from_pretrained(
        minilm[1]
    ).eval(), transformers.AutoTokenizer.from_pretrained(minilm[1])


@pytest.fixture(scope="module")
def sentences(real_data: Path) -> list[str]:
    with gzip.open(real_data / "ud" / "en_ewt-ud-test.conllu.gz", "rt", encoding="utf-8") as file:
        found = [line.removeprefix("# text = ").rstrip("\n") for line in file if line.startswith("# text = ")]
    return found[:200]


@pytest.mark.data
@torch.no_grad()
def test_hidden_states_equal_those_of_transformers(minilm, theirs, sentences):
    """Ids and features of 200 sentences, in batches of 20 with padding."""
    run, (model, tokenizer) = minilm[0], theirs
    worst = 0.0
    for begin in range(0, 200, 20):
        texts = sentences[begin : begin + 20]
        given = tokenizer(texts, padding=True, return_tensors="pt")
        ids, mask = run.encode(texts)
        assert [row[real].tolist() for row, real in zip(ids, mask, strict=True)] == [
            row[real.bool()].tolist()
            for row, real in zip(given["input_ids"], given["attention_mask"], strict=True)
        ]
        wanted, (h, _) = model(**given).last_hidden_state, run.model.features(ids, None, mask)
        assert wanted[mask].std() > 0.1
        alone = run.model.features(ids[:1, : int(mask[0].sum())])[0][0]
        worst = max(
            worst,
            float((wanted[mask] - h[mask]).abs().max()),
            float((wanted[0][mask[0]] - alone).abs().max()),
        )
    assert len(sentences) == 200 and worst < 1e-5


@pytest.mark.data
@torch.no_grad()
def test_pairs_have_two_segments(minilm, theirs):
    run, (model, tokenizer) = minilm[0], theirs
    given = tokenizer("A dog runs.", "The animal moves; quickly.", return_tensors="pt")
    assert given["token_type_ids"].sum() > 0
    h, _ = run.model.features(given["input_ids"])
    torch.testing.assert_close(h, model(**given).last_hidden_state, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(run.model.pooler(h), model(**given).pooler_output, rtol=1e-5, atol=1e-5)


@torch.no_grad()
def pooled(theirs, texts: list[str]) -> np.ndarray:
    """The modules of sentence-transformers for this model: Transformer, mean Pooling, Normalize."""
    model, tokenizer = theirs
    found = []
    for begin in range(0, len(texts), 64):
        given = tokenizer(
            texts[begin : begin + 64], padding=True, truncation=True, max_length=256, return_tensors="pt"
        )
        h, mask = model(**given).last_hidden_state, given["attention_mask"].unsqueeze(-1).float()
        found.append(torch.nn.functional.normalize((h * mask).sum(1) / mask.sum(1).clamp(min=1e-9), dim=1))
    return torch.cat(found).numpy()


@pytest.mark.data
@pytest.mark.parametrize("name", ["sts15", "sts16"])
def test_similarity_equals_that_of_sentence_transformers(minilm, theirs, real_data, name):
    """On every sixth pair, to save time."""
    with gzip.open(real_data / "sts" / f"{name}.tsv.gz", "rt", encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t") for line in file][::6]
    scores, left, right = [float(row[1]) for row in rows], [row[2] for row in rows], [row[3] for row in rows]
    ours = [seqloom.embed(minilm[0], texts) for texts in (left, right)]
    there = [pooled(theirs, texts) for texts in (left, right)]
    figures = [spearmanr((a * b).sum(1), scores).statistic for a, b in (ours, there)]
    assert abs(figures[0] - figures[1]) < 1e-3 and figures[0] > 0.7  # all pairs: .8539 and .7899


@pytest.mark.data
def test_minilm_is_exported_to_transformers(minilm, theirs, tmp_path):
    run = minilm[0]
    assert export_checkpoint(run, tmp_path / "out") == tmp_path / "out"
    again = transformers.AutoModel.from_pretrained(tmp_path / "out").eval()
    for (name, weight), (_, other) in zip(
        again.named_parameters(), theirs[0].named_parameters(), strict=True
    ):
        assert torch.equal(weight, other), name


# On a tiny encoder, without any data


@pytest.fixture
def tiny(tmp_path) -> tuple[torch.nn.Module, Run]:
    return make("bert body", tmp_path / "theirs"), import_checkpoint(tmp_path / "theirs", tmp_path / "run")


def test_a_vector_is_the_mean_of_the_features(tiny):
    """For any batch and any batch size."""
    model, run = tiny
    texts = ["the king", "a young queen sees the river and finds a dog", "", "zzz"]
    found = seqloom.embed(run, texts)
    assert found.shape == (4, 32) and found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-5)
    for text, vector in zip(texts, found, strict=True):
        ids, _ = run.encode([text])
        with torch.no_grad():
            wanted = model(ids).last_hidden_state[0].mean(0).numpy()
        np.testing.assert_allclose(vector, wanted / np.linalg.norm(wanted), atol=1e-5)
        np.testing.assert_allclose(seqloom.embed(run, [text], normalize=False)[0], wanted, atol=1e-5)
    alone = Embedder(run, normalize=True, max_input_tokens=256, batch_tokens=1)
    np.testing.assert_allclose(alone(texts), found, atol=1e-5)


def test_a_long_text_is_truncated_before_its_end_token(tiny):
    model, run = tiny
    words = " ".join(["the", "old", "king", "sees"] * 40)
    ids = run.encode([words])[0][0]
    with torch.no_grad():
        for length in (60, 10):
            wanted = (
                model(torch.cat([ids[: length - 1], ids[-1:]])[None]).last_hidden_state[0].mean(0).numpy()
            )
            np.testing.assert_allclose(
                seqloom.embed(run, [words], normalize=False, max_input_tokens=length)[0], wanted, atol=1e-5
            )
    with pytest.raises(ValueError, match="leave none for the text: give at least 3"):
        seqloom.embed(run, ["a"], max_input_tokens=2)


def test_a_translator_has_no_text_vector(tmp_path):
    make("marian", tmp_path / "theirs")
    with pytest.raises(ValueError, match="embed does not fit this run, which translates"):
        seqloom.embed(import_checkpoint(tmp_path / "theirs", tmp_path / "run"), ["a"])


@pytest.mark.usefixtures("tiny")
def test_the_command_prints_what_python_gives(tmp_path, capsys):
    file = tmp_path / "lines.txt"
    file.write_text("the king\na dog finds the river\n")
    wanted = seqloom.embed(load(tmp_path / "run"), ["the king", "a dog finds the river"])
    main(["embed", str(tmp_path / "run"), "--file", str(file)])
    printed = [[float(value) for value in line.split()] for line in capsys.readouterr().out.splitlines()]
    np.testing.assert_allclose(printed, wanted, atol=1e-6)
    main(["embed", str(tmp_path / "run"), "--file", str(file), "--json"])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["text"] for one in told] == ["the king", "a dog finds the river"]
    np.testing.assert_allclose([one["vector"] for one in told], wanted, atol=1e-6)
    main(["embed", str(tmp_path / "run"), "--file", str(file), "--out", str(tmp_path / "v.npy")])
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), wanted)


@pytest.mark.usefixtures("tiny")
def test_int8_reports_its_distance_to_float32(tmp_path, capsys):
    file, out = tmp_path / "lines.txt", tmp_path / "v.npy"
    file.write_text("the king\na dog finds the river\nthe river\n")
    exact = seqloom.embed(load(tmp_path / "run"), file.read_text().splitlines())
    main(["embed", str(tmp_path / "run"), "--file", str(file), "--out", str(out), "--quantize", "int8"])
    near = (np.load(out) * exact).sum(1)
    assert 0.98 < near.min() < near.max() and not np.array_equal(np.load(out), exact)
    assert (
        f"int8: cosine to full precision {near.mean():.5f}, lowest {near.min():.5f}, over 3 texts"
        in capsys.readouterr().err
    )
