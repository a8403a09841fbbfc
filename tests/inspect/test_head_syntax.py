"""Heads as dependency edges against a plain computation from transformers' attentions; heads cut out of a run against the same heads masked."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.cli import main
from seqloom.errors import UserError
from seqloom.fused.dispatch import plain
from seqloom.inference.generation import generate
from seqloom.inspect.head_pruning import choose_heads, prune
from seqloom.inspect.head_syntax import ParsedSentence, parsed_sentences, syntax, word_weights
from seqloom.inspect.head_values import heads
from seqloom.inspect.reading import read_given
from seqloom.nn.capture import change
from seqloom.run import load
from support.minilm import minilm_folder

TEXTS = ["the old cat sees a river", "a man sees the cat"]
PAIRS = ["the old cat\tun vieux chat", "a man sees\tun homme voit"]
CONLLU = """# text = The cat sleeps
1	The	the	DET	_	_	2	det	_	_
2	cat	cat	NOUN	_	_	3	nsubj:pass	_	_
3	sleeps	sleep	VERB	_	_	0	root	_	_
"""


def test_words_of_several_tokens_are_summed_to_and_averaged_from():
    weights = np.arange(16.0).reshape(1, 4, 4)
    found = word_weights(weights, [[0], [1, 2]])
    assert found[0, 0, 1] == weights[0, 0, 1] + weights[0, 0, 2]
    assert found[0, 1, 0] == (weights[0, 1, 0] + weights[0, 2, 0]) / 2
    assert (np.diagonal(found[0]) == -1).all()


def test_conllu_is_read_with_heads_and_relations(tmp_path: Path):
    path = tmp_path / "a.conllu"
    path.write_text(CONLLU, "utf-8")
    assert parsed_sentences(path) == [
        ParsedSentence(("The", "cat", "sleeps"), (1, 2, -1), ("det", "nsubj", "root"))
    ]
    path.write_text(CONLLU.replace("\t3\tnsubj", "\t9\tnsubj"), "utf-8")
    with pytest.raises(UserError, match="'9', which is not a word"):
        parsed_sentences(path)


@pytest.mark.data
@pytest.mark.skipif("SEQLOOM_DATA" not in os.environ, reason="needs SEQLOOM_DATA")
def test_syntax_of_minilm_is_that_of_transformers_attentions(tmp_path: Path):
    folder = minilm_folder()
    path = Path(os.environ["SEQLOOM_DATA"]) / "ud" / "en_ewt-ud-dev.conllu.gz"
    if folder is None or not path.exists():
        pytest.skip("needs MiniLM and EWT")
    from transformers import AutoModel, AutoTokenizer

    from seqloom import import_checkpoint

    run = import_checkpoint(folder, tmp_path / "minilm")
    sentences = parsed_sentences(path, 8)
    found = syntax(run, sentences)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    hits: dict[str, np.ndarray] = {}
    offsets: dict[str, Counter[int]] = {}
    with gzip.open(path, "rt", encoding="utf-8") as file:
        blocks = file.read().split("\n\n")[:8]
    for block in blocks:
        rows = [line.split("\t") for line in block.splitlines() if line and not line.startswith("#")]
        rows = [row for row in rows if row[0].isdigit()]
        words = [row[1] for row in rows]
        encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
        with torch.no_grad():
            attentions = model(**encoded, output_attentions=True).attentions
        of_word = encoded.word_ids()
        for number, layer in enumerate(attentions):
            for head in range(layer.shape[1]):
                a = layer[0, head].double().numpy()
                between = np.zeros((len(words), len(words)))
                for i in range(len(words)):
                    places = [t for t, word in enumerate(of_word) if word == i]
                    for j in range(len(words)):
                        keys = [t for t, word in enumerate(of_word) if word == j]
                        between[i, j] = np.mean([sum(a[t, s] for s in keys) for t in places])
                np.fill_diagonal(between, -1)
                for i, row in enumerate(rows):
                    relation = row[7].split(":")[0]
                    if relation in ("root", "punct"):
                        continue
                    target = int(row[6]) - 1
                    counts = hits.setdefault(relation, np.zeros((72, 2)))
                    counts[12 * number + head] += [
                        between[i].argmax() == target,
                        between[:, i].argmax() == target,
                    ]
                    if number == head == 0:
                        offsets.setdefault(relation, Counter())[target - i] += 1
    assert found.sentences + found.skipped == 8 and found.sentences >= 7  # one is a single word
    assert {one.relation for one in found.relations} == set(hits)
    for one in found.relations:
        count = offsets[one.relation].total()
        assert one.count == count
        assert one.accuracy == pytest.approx(hits[one.relation].max() / count)
        assert one.offset_accuracy == pytest.approx(max(offsets[one.relation].values()) / count)


@pytest.mark.parametrize("name", ["gpt", "gpt2", "bert", "encoder", "transformer", "marian"])
def test_a_pruned_run_is_the_run_with_masked_heads(runs, name: str, tmp_path: Path):
    run = runs(name)
    texts = PAIRS if run.model.task == "translation" else TEXTS
    layers = Counter(one.layer for one in heads(run, texts[:1]).heads)
    removed = [f"{layer}.{count - 1}" for layer, count in layers.items() if count > 1][:2]
    if not removed:
        pytest.skip("one head in each layer")
    smaller = prune(run, removed, tmp_path / "small")
    assert smaller.folder == tmp_path / "small" and load(smaller.folder).config.tree == smaller.config.tree
    masks = {name.rpartition(".")[0]: int(name.rpartition(".")[2]) for name in removed}
    changes = {f"{layer}.head.{head}": torch.zeros_like for layer, head in masks.items()}
    for text in texts:
        reading, other = read_given(run, text), read_given(smaller, text)
        if name == "encoder":
            ids, _ = run.encode([text])
            with torch.no_grad():
                with change(run.model, changes):
                    expected = run.model.features(ids)[0]
                assert torch.allclose(smaller.model.features(ids)[0], expected, atol=1e-6)
            continue
        with torch.no_grad():
            with change(run.model, changes):
                expected = reading.scores(1)
            with plain():
                assert torch.allclose(other.scores(1), expected, atol=1e-6)
            assert torch.allclose(other.scores(1), expected, atol=1e-5)
    old, new = ((one.folder / "model.safetensors").stat().st_size for one in (run, smaller))
    parameters = [sum(weight.numel() for weight in one.model.parameters()) for one in (run, smaller)]
    assert parameters[1] < parameters[0] and new - old < 0
    if run.model.continues:
        assert generate(smaller, "the", max_tokens=4, temperature=0).text  # the compiled step too
    assert smaller.results.base is not None and smaller.results.base["removed_heads"] == removed


@pytest.mark.parametrize("name", ["gpt", "gpt2", "bert", "encoder", "transformer", "marian"])
def test_in_double_precision_a_pruned_run_is_the_masked_one(runs, name: str, tmp_path: Path):
    """Cutting rows and columns out changes the order of sums only, so what single precision leaves is rounding."""
    run = load(runs(name).folder)
    texts = PAIRS if run.model.task == "translation" else TEXTS
    removed = [one.name for one in heads(run, texts[:1]).heads if one.head == 1][:2]
    if not removed:
        pytest.skip("one head in each layer")
    smaller = prune(run, removed, tmp_path / "small")
    changes = {f"{head.rpartition('.')[0]}.head.1": torch.zeros_like for head in removed}
    for one in (run, smaller):
        one.model.double()
    with torch.no_grad():
        for text in texts:
            if name == "encoder":
                ids, _ = run.encode([text])
                with change(run.model, changes):
                    expected = run.model.features(ids)[0]
                ours = smaller.model.features(ids)[0]
            else:
                reading, other = read_given(run, text), read_given(smaller, text)
                with change(run.model, changes):
                    expected = reading.scores(1)
                ours = other.scores(1)
            assert ours.dtype == torch.float64 and float((ours - expected).abs().max()) < 1e-12


def test_the_last_head_of_a_layer_stays():
    counts = {"a": 2, "b": 2}
    assert choose_heads(["a.0", "a.1", "b.0", "b.1"], 2, counts) == ["a.0", "b.0"]
    with pytest.raises(UserError, match="at most 2"):
        choose_heads(["a.0", "a.1", "b.0", "b.1"], 3, counts)


def test_what_cannot_be_pruned_says_why(runs, tmp_path: Path):
    with pytest.raises(UserError, match="its own bias of distance"):
        prune(runs("alibi"), [heads(runs("alibi"), TEXTS).heads[0].name], tmp_path / "a")
    with pytest.raises(UserError, match="share keys and values"):
        prune(runs("rotary"), ["stack.blocks.0.attention.1"], tmp_path / "c")
    with pytest.raises(UserError, match="cannot be pruned"):
        prune(runs("rnnsearch"), ["decoder.attention.0"], tmp_path / "b")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").write_text("x")
    with pytest.raises(UserError, match="not empty"):
        prune(runs("gpt"), ["stack.blocks.0.attention.0"], tmp_path / "full")
    assert not list(tmp_path.glob(".full*"))


def test_the_verb_writes_syntax_and_the_smaller_run(runs, tmp_path: Path, capsys):
    folder = str(runs("bert").folder)
    (tmp_path / "a.conllu").write_text(CONLLU.lower().replace("\t_\t_\t", "\t_\t_\t"), "utf-8")
    out = str(tmp_path / "less")
    main(
        ["inspect", "heads", folder, "--data", str(tmp_path / "a.conllu"), "--prune", "1", "--out", out, "-q"]
    )
    text = capsys.readouterr().out
    assert "syntax on 1 sentences" in text and "without 1 heads" in text and "reports" in text
    assert load(out).config.tree["model"]["stack"]["heads"]
    with pytest.raises(SystemExit):
        main(["inspect", "heads", folder, "a cat", "--prune", "1", "-q"])
    assert "--out" in capsys.readouterr().err
