"""A finished run of a known shape loads in `transformers` with the same logits, and stays a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
import transformers
from safetensors import safe_open
from safetensors.torch import load_file, save_file

import seqloom
from seqloom import layouts
from seqloom.cli import main
from seqloom.files import sha256
from seqloom.run import load, load_weights, named_weights

FEW = ["train.steps=3", "train.eval_every=3"]
SMALL = ["model.dim=32", "model.stack.layers=2", "model.stack.heads=2", "batches.width=16", *FEW]
TURNING = [
    "model.stack.position={type: Rotary}",
    "model.stack.norm=RMSNorm",
    "model.stack.feedforward={type: SwiGLU, dim: 40}",
]
MASKED = [
    "tokenizer.size=120",
    "train.accumulate=1",
    "batches.batch=4",
    "model.output={type: Output, bias: true, head: {type: HeadTransform}}",
]
NORM, PLACES = (
    "{type: LayerNorm, epsilon: 1.0e-12}",
    ("model.stack.norm", "model.stack.input_norm", "model.output.head.norm"),
)
CASES = {
    "gpt2": ("gpt", SMALL),
    "gpt2 without gains and biases": ("gpt", [*SMALL, "model.stack.norm={type: LayerNorm, affine: false}", "model.stack.bias=false"]),
    "llama of pairs": ("gpt", [*SMALL, *TURNING]),
    "llama of halves, fewer keys, not tied": (
        "gpt",
        [*SMALL, *TURNING, "model.stack.position={type: Rotary, layout: halves}", "model.stack.attention={type: SelfAttention, kv_heads: 1}",
         "model.tied=false", "model.output={type: Output, bias: false}"],
    ),
    "bert": ("bert", [*SMALL, *MASKED, "batches.pairs=false", "model.pooler=null"]),
    "bert with next sentences": ("bert", [*SMALL, *MASKED]),
    "distilbert": (
        "bert",
        [*SMALL, *MASKED, "batches.pairs=false", "model.pooler=null", "model.embedding=Embedding", *(f"{place}={NORM}" for place in PLACES)],
    ),
}  # fmt: skip


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the old king sees a dog and then the cat finds the river but a young queen hears\n" * 30)
    return path


def same(one: dict, other: dict) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


@pytest.mark.parametrize("case", CASES)
def test_a_finished_run_loads_in_transformers(case, tmp_path, lines):
    preset, options = CASES[case]
    run = seqloom.fit(preset, *options, data=[str(lines)], out=tmp_path / "run", progress=False)
    said = json.loads((run.folder / "config.json").read_text("utf-8"))
    assert said["model_type"] == case.split()[0]
    theirs, info = getattr(transformers, said["architectures"][0]).from_pretrained(
        run.folder, output_loading_info=True
    )
    assert not info["missing_keys"] and not info["unexpected_keys"] and not info["mismatched_keys"]
    ids = torch.randint(5, run.tokenizer.get_vocab_size(), (2, 12))
    with torch.no_grad():
        found = theirs.eval()(ids)
        logits = found.prediction_logits if "prediction_logits" in found else found.logits
        torch.testing.assert_close(logits, run.model(ids)[0], rtol=1e-4, atol=1e-4)
    there = transformers.AutoTokenizer.from_pretrained(run.folder)
    words = run.tokenizer.encode("the old king", add_special_tokens=False).ids
    assert there("the old king")["input_ids"] == ([2, *words, 3] if "bert" in said["model_type"] else words)
    again = load(run.folder)
    assert same(named_weights(again.model), named_weights(run.model)) and same(
        load_weights(run.folder), named_weights(run.model)
    )


def test_a_finished_translator_loads_in_transformers(tmp_path, parallel):
    side = "layers: 2, heads: 2, order: post, position: {type: Sinusoidal, layout: halves}, feedforward: {type: FeedForward, dim: 20}"
    sides = [
        f"model.encoder={{type: Transformer, causal: false, {side}}}",
        f"model.decoder={{type: Transformer, {side}}}",
    ]
    few = ["model.dim=16", "tokenizer.size=300", *FEW]
    run = seqloom.fit(
        "transformer",
        *few,
        *sides,
        data=[str(path) for path in parallel],
        out=tmp_path / "run",
        progress=False,
    )
    theirs = transformers.MarianMTModel.from_pretrained(run.folder).eval()
    ids, first = torch.randint(5, 300, (2, 9)), torch.randint(5, 300, (2, 6))
    with torch.no_grad():
        wanted = theirs(input_ids=ids, decoder_input_ids=first).logits
        torch.testing.assert_close(run.model(first, run.model.start(ids))[0], wanted, rtol=1e-4, atol=1e-4)
    there = transformers.AutoTokenizer.from_pretrained(run.folder)
    assert there("the king")["input_ids"] == run.encode(["the king"])[0][0].tolist()
    assert same(named_weights(load(run.folder).model), named_weights(run.model))


def test_other_shapes_keep_our_names(tmp_path, lines):
    run = seqloom.fit(
        "lstm-lm",
        "model.dim=8",
        "model.stack.dim=8",
        *FEW,
        data=[str(lines)],
        out=tmp_path / "run",
        progress=False,
    )
    assert not (run.folder / "config.json").exists()
    assert same(
        load_file(run.folder / "model.safetensors"), named_weights(run.model)
    ) and not layouts.has_family_names(run.folder / "model.safetensors")


def test_a_run_with_family_names_is_fine_tuned_resumed_and_imported(tmp_path, lines, capsys):
    """A run whose weights have the names of `transformers` works with --from, resume and import."""
    run = seqloom.fit("gpt", *SMALL, *TURNING, data=[str(lines)], out=tmp_path / "run", progress=False)
    after = seqloom.fit(
        "gpt",
        *FEW,
        "train.optimizer.lr=1e-9",
        data=[str(lines)],
        out=tmp_path / "more",
        base=run.folder,
        progress=False,
    )
    assert after.results.base["new"] == [] and after.results.base["unused"] == []
    for name, tensor in named_weights(after.model).items():
        torch.testing.assert_close(tensor, named_weights(run.model)[name], rtol=0, atol=1e-6)
    before = sha256(run.folder / "model.safetensors")
    (run.folder / "model.safetensors").unlink()
    main(["train", str(run.folder)])
    assert sha256(run.folder / "model.safetensors") == before
    brought = seqloom.bring(run.folder, tmp_path / "brought")
    ids = torch.randint(5, run.tokenizer.get_vocab_size(), (2, 12))
    with torch.no_grad():
        torch.testing.assert_close(brought.model(ids)[0], run.model(ids)[0], rtol=1e-4, atol=1e-4)
    capsys.readouterr()


def test_a_model_that_nearly_fits_keeps_all_its_weights(tmp_path, lines):
    """It is stored under our names."""
    output = "model.output={type: Output, bias: false, head: {type: HeadTransform}}"
    run = seqloom.fit("gpt", *SMALL, output, data=[str(lines)], out=tmp_path / "run", progress=False)
    assert not (run.folder / "config.json").exists() and same(
        named_weights(load(run.folder).model), named_weights(run.model)
    )
    with pytest.raises(ValueError, match=r"it has output\.head"):
        seqloom.give(run, tmp_path / "out")


def test_a_tensor_of_an_absent_part_must_be_neutral(tmp_path, lines, capsys):
    preset, options = CASES["gpt2 without gains and biases"]
    run = seqloom.fit(preset, *options, data=[str(lines)], out=tmp_path / "run", progress=False)
    path = run.folder / "model.safetensors"
    tensors = load_file(path)
    with safe_open(path, "pt") as opened:
        said = opened.metadata()
    tensors["transformer.h.0.ln_1.bias"][3] = 0.5
    save_file(tensors, path, said)
    results = json.loads((run.folder / "results.json").read_text("utf-8"))
    results["weights_sha256"] = sha256(path)
    (run.folder / "results.json").write_text(json.dumps(results), "utf-8")
    with pytest.raises(ValueError, match=r"h\.0\.ln_1\.bias has no place"):
        load(run.folder)


def test_weights_of_another_model_are_an_error_of_one_line(tmp_path, lines, capsys):
    """The weights must fit the model of config.yaml, whatever the other files contain."""
    run = seqloom.fit("gpt", *SMALL, data=[str(lines)], out=tmp_path / "run", progress=False)
    (run.folder / "config.json").write_text('{"model_type": "bert", "auto_map": {"AutoModel": "evil.Model"}}')
    assert same(named_weights(load(run.folder).model), named_weights(run.model))
    tree = (run.folder / "config.yaml").read_text("utf-8")
    (run.folder / "manifest.json").unlink()  # as in older runs; else it names the changed config
    for change, message in (
        (("layers: 2", "layers: 3"), "the tensor h.2.ln_1.weight is missing"),
        (("layers: 2", "layers: 1"), "h.1.attn.c_attn.bias has no place"),
        (("heads: 2", "heads: 2\n    order: post"), "its norms come after the sublayers"),
    ):
        (run.folder / "config.yaml").write_text(tree.replace(*change), "utf-8")
        assert tree.count(change[0]) == 1
        with pytest.raises(SystemExit) as left:
            main(["generate", str(run.folder), "the king"])
        said = capsys.readouterr().err
        assert left.value.code == 2 and message in said and said.count("\n") == 1
