"""An embedding starts from word vectors by their words, and only once: a run that goes on, or is finished, needs them no more."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
from seqloom.run_config import Config
from seqloom.text.tokenizer import BPE
from seqloom.train.fit import fit
from seqloom.train.initialize import match_tokens
from seqloom.train.preparation import prepare
from seqloom.vectors import formats
from seqloom.vectors.vectors import Vectors

KNOWN = ["The", "king", "queen", "river", "sees", "elsewhere", "<pad>"]
SMALL = [
    "model.dim=16",
    "model.stack.layers=1",
    "model.stack.heads=2",
    "train.eval_every=2",
    "tokenizer={type: Words}",
    "corpus={type: Lines}",
]


@pytest.fixture
def vectors(tmp_path: Path) -> Path:
    matrix = np.random.default_rng(0).normal(size=(len(KNOWN), 16)).astype(np.float32)
    formats.save(Vectors(KNOWN, matrix), tmp_path / "vectors")
    return tmp_path / "vectors"


def embedding(vectors: Path, more: str = "") -> str:
    return f"model.embedding={{type: Embedding, vectors: {vectors}{more}}}"


@pytest.mark.parametrize("scale", [False, True])
def test_known_words_start_from_their_vectors_and_others_at_random(scale: bool, text: Path, vectors: Path):
    plain = prepare(
        Config.load(
            "gpt", [*SMALL, f"model.embedding={{type: Embedding, scale: {str(scale).lower()}}}"], [str(text)]
        )
    )
    asked = prepare(
        Config.load("gpt", [*SMALL, embedding(vectors, f", scale: {str(scale).lower()}")], [str(text)])
    )
    stored, table = formats.load(vectors), asked.model.embedding.table.detach()
    for word, number in asked.tokenizer.get_vocab().items():
        given = stored[word] if word in ("king", "queen", "river", "sees") else None
        if given is None:
            torch.testing.assert_close(
                table[number], plain.model.embedding.table[number].detach(), rtol=0, atol=0
            )
        else:
            torch.testing.assert_close(
                asked.model.embedding(torch.tensor(number)).detach(), torch.from_numpy(given)
            )
    assert asked.model.output.table is asked.model.embedding.table


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_vectors_stay_and_others_learn(frozen: bool, text: Path, vectors: Path, tmp_path: Path):
    options = [*SMALL, "train.steps=4", embedding(vectors, f", frozen: {str(frozen).lower()}")]
    run = fit("gpt", *options, data=[str(text)], out=tmp_path / "run", progress=False)
    row = run.tokenizer.token_to_id("king")
    same = torch.equal(
        run.model.embedding.table[row].detach(), torch.from_numpy(formats.load(vectors)["king"])
    )
    assert same is frozen
    shutil.rmtree(vectors)
    again = seqloom.load(tmp_path / "run")  # a finished run needs the vectors no more
    assert torch.equal(again.model.embedding.table, run.model.embedding.table)


def test_a_run_that_goes_on_does_not_read_them_again(text: Path, vectors: Path, tmp_path: Path):
    """Stopped after 4 of 8 steps, then without the vectors to the end: the same bits as in one go."""
    options = [*SMALL, "train.steps=8", "train.save_every=2", "train.keep_checkpoints=9", embedding(vectors)]
    whole = fit("gpt", *options, data=[str(text)], out=tmp_path / "whole", progress=False)
    shutil.copytree(tmp_path / "whole", tmp_path / "part")
    for name in ("model.safetensors", "results.json"):
        (tmp_path / "part" / name).unlink()
    for step in (6, 8):
        shutil.rmtree(tmp_path / "part" / "checkpoints" / f"step-{step:08d}")
    shutil.rmtree(vectors)
    part = fit("gpt", *options, data=[str(text)], out=tmp_path / "part", progress=False)
    for (name, one), (_, other) in zip(
        whole.model.named_parameters(), part.model.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


def test_coverage_is_said(text: Path, vectors: Path, caplog: pytest.LogCaptureFixture):
    with caplog.at_level("INFO", "seqloom"):
        prepare(Config.load("gpt", [*SMALL, embedding(vectors, ", frozen: true")], [str(text)]))
    said = caplog.text
    assert "embedding: 4 of 22 tokens start from" in said and "frozen" in said


def test_byte_pairs_are_matched_as_the_words_they_begin(tmp_path: Path):
    tokenizer = BPE(["the king sees the naïve queen " * 50], 400)
    found = {
        tokenizer.id_to_token(token)
        for token, _ in match_tokens(Vectors(["king", "naïve", "s"], np.eye(3, dtype=np.float32)), tokenizer)
    }
    assert {"Ġking", "s"} <= found and any("na" in token for token in found)


@pytest.mark.parametrize(
    "change, sentence",
    [
        (lambda v: ["model.dim=32", embedding(v)], "vectors of 16 numbers do not fit an embedding of 32"),
        (lambda v: [embedding(v / "none")], "no such file"),
        (lambda v: [embedding(v), "tokenizer={type: Characters}"], "none of the tokenizer.s tokens"),
        (lambda v: ["model.embedding={type: Embedding, frozen: true}"], "a frozen embedding needs vectors"),
    ],
)
def test_mistakes_are_sentences(change, sentence: str, text: Path, vectors: Path):
    with pytest.raises(ValueError, match=sentence):
        prepare(Config.load("gpt", [*SMALL, *change(vectors)], [str(text)]))
