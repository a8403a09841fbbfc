"""An imported checkpoint is a run like any other, and a run of a known shape can be exported."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
import transformers

import seqloom
from seqloom.cli import main
from seqloom.files import sha256
from seqloom.interop import export_checkpoint, import_checkpoint
from seqloom.run import load
from seqloom.run_config import Config
from seqloom.text.tokenizer import SpecialTokens, special_tokens
from seqloom.text.tokenizer_file import with_template
from seqloom.train.finetune import from_run
from seqloom.train.preparation import prepare
from support.hf_folders import WORDS, make


@pytest.fixture
def lines(tmp_path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("the old king sees a dog and then the cat finds the river but a young queen hears\n" * 30)
    return path


def model_type(folder: Path) -> str:
    return json.loads((folder / "config.json").read_text("utf-8"))["model_type"]


def test_without_out_a_run_is_named_as_its_source(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("gpt2", tmp_path / "theirs")
    main(["import", "theirs"])
    assert capsys.readouterr().out.splitlines()[-1] == "run: runs/theirs"
    assert load(tmp_path / "runs" / "theirs").task == "language modelling"


def test_a_run_is_replaced_and_a_nested_model_is_named(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make("gpt2", tmp_path / "down/theirs/main")
    for words, said in ((["down"], "use: seqloom import down/theirs/main"), (["down/theirs/main"], "")):
        try:
            main(["import", *words])
        except SystemExit:
            assert said in capsys.readouterr().err
    assert "use it with: seqloom generate runs/main" in capsys.readouterr().err
    before = sha256(Path("runs/main/model.safetensors"))
    make("gpt2", tmp_path / "main", seed=1)
    with pytest.raises(SystemExit):
        main(["import", "main"])
    assert "--overwrite" in capsys.readouterr().err
    main(["import", "main", "--overwrite"])
    assert load(Path("runs/main")).folder == Path("runs/main") and not list(Path("runs").glob(".*"))
    assert sha256(Path("runs/main/model.safetensors")) != before
    Path("runs/mine").mkdir()
    Path("runs/mine/thesis.txt").write_text("x", "utf-8")
    with pytest.raises(SystemExit):
        main(["import", "main", "--overwrite", "--out", "runs/mine"])
    assert Path("runs/mine/thesis.txt").exists()


def test_the_command_writes_a_complete_run(tmp_path, capsys):
    make("gpt2", tmp_path / "theirs")
    main(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "run"), "--json"])
    told = json.loads(capsys.readouterr().out)
    assert told["from"]["format"] == "gpt2" and told["from"]["special_tokens"]["eos"] == 3
    whole = [
        "config.json",
        "config.yaml",
        "generation_config.json",
        "model.safetensors",
        "results.json",
        "tokenizer.json",
        "tokenizer_config.json",
    ]
    assert sorted(path.name for path in (tmp_path / "run").iterdir()) == whole
    assert told["weights_sha256"] == sha256(tmp_path / "run" / "model.safetensors")
    assert told["parameters"]["total"] == sum(
        weight.numel() for weight in load(tmp_path / "run").model.parameters()
    )


def test_an_imported_language_model_is_measured_explained_and_used(tmp_path, lines, capsys):
    """Its likelihood equals that of `transformers` over the same windows."""
    theirs = make("llama", tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    capsys.readouterr()
    main(["evaluate", str(tmp_path / "run"), str(lines), "--json"])
    found = {one["name"]: one["value"] for one in json.loads(capsys.readouterr().out)["numbers"]}
    run = load(tmp_path / "run")
    stream = torch.tensor(run.tokenizer.encode(lines.read_text(), add_special_tokens=False).ids)
    ids, width, total = stream[1:], 256, 0.0  # the tokenizer adds no beginning: the first token is context
    with torch.no_grad():
        for begin in range(0, len(ids), width):
            begin = min(begin, len(ids) - width)
            log_p = theirs(stream[None, begin : begin + width]).logits[0].log_softmax(-1)
            fresh = range(0 if begin % width == 0 else width - len(ids) % width, width)
            total -= float(sum(log_p[place, stream[begin + place + 1]] for place in fresh))
    assert found["nats_per_token"] == pytest.approx(total / len(ids), rel=1e-4)
    main(["explain", str(tmp_path / "run")])
    assert "RMSNorm" in capsys.readouterr().out
    main(["generate", str(tmp_path / "run"), "the king", "--greedy", "--length", "5"])
    assert capsys.readouterr().out.startswith("the king")


@pytest.mark.parametrize("begins", [False, True])
def test_an_imported_language_model_scores_a_text_like_transformers(tmp_path, capsys, begins):
    """After the beginning that its tokenizer adds; else the first token is context, as in `generate`."""
    theirs = make("llama", tmp_path / "theirs")
    if begins:
        place = tmp_path / "theirs" / "tokenizer.json"
        place.write_text(json.dumps(with_template(json.loads(place.read_text("utf-8")), [2], [])), "utf-8")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert run.specials.before == ((2,) if begins else ())
    text = "the old king sees a dog"
    ids = torch.tensor([*run.specials.before, *run.tokenizer.encode(text, add_special_tokens=False).ids])
    with torch.no_grad():
        loss = float(theirs(ids[None], labels=ids[None]).loss)
    found = seqloom.score(run, text)
    assert found.perplexity == pytest.approx(math.exp(loss), rel=1e-4)
    assert len(found.tokens) == len(found.token_logprobs) == len(ids) - 1
    assert len(seqloom.score(run, "the old", " king").tokens) == 1
    assert len(seqloom.score(run, "the").tokens) == int(begins) and seqloom.score(run, "").tokens == ()
    capsys.readouterr()
    main(["score", str(tmp_path / "run"), text])
    shown = capsys.readouterr()
    assert shown.out.split("\t")[1] == str(len(ids) - 1)
    assert ("the first token is context" in shown.err) is not begins


def test_a_text_that_nothing_precedes_has_its_bytes_without_the_first_token(tmp_path, lines):
    make("gpt2", tmp_path / "theirs")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    found = seqloom.evaluate(run, lines)
    assert found["bits_per_byte"].n == len(lines.read_bytes()) - len("the")
    assert found["perplexity"].n == len(run.tokenizer.encode(lines.read_text()).ids) - 1


def test_an_imported_encoder_reports_what_it_cannot_do(tmp_path, lines, capsys):
    make("bert body", tmp_path / "theirs")
    import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    capsys.readouterr()
    for words in (
        ["generate", str(tmp_path / "run"), "the king"],
        ["evaluate", str(tmp_path / "run"), str(lines)],
    ):
        with pytest.raises(SystemExit) as left:
            main(words)
        said = capsys.readouterr().err
        assert left.value.code == 2 and said.count("\n") == 1 and ("Encoder" in said or "embed" in said)


def test_an_imported_masked_model_fills_masks_like_transformers(tmp_path):
    theirs = make("bert", tmp_path / "theirs")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    filled = seqloom.load(tmp_path / "run")
    ids = torch.tensor([[2, 5, 4, 8, 3]])
    with torch.no_grad():
        wanted = theirs(ids).logits[0, 2].softmax(-1)
    found = seqloom.fill(filled, ["the [MASK] young"], top=3)[0].gaps[0]
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    for guess in found:
        assert guess.probability == pytest.approx(float(wanted[words.index(guess.token)]), rel=1e-3)
    assert run.specials.mask == 4


def test_word_dropout_uses_the_unknown_token_of_an_imported_tokenizer(tmp_path):
    """[UNK] may have another id than 1."""
    make("bert", tmp_path / "theirs")
    place = tmp_path / "theirs" / "tokenizer.json"
    text = json.loads(place.read_text("utf-8"))
    words = text["model"]["vocab"]
    words["[UNK]"], words["the"] = words["the"], words["[UNK]"]
    for added in text.get("added_tokens", []):
        added["id"] = words.get(added["content"], added["id"])
    place.write_text(json.dumps(text), "utf-8")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    assert run.specials.unk == words["[UNK]"] != 1
    table = tmp_path / "moods.tsv"
    table.write_text("the old king\tgood\na young queen\tbad\n" * 20)
    ready = prepare(
        from_run(Config.load("classifier", ["model.word_dropout=0.9"], [str(table)]), tmp_path / "run")
    )
    seen = []
    ready.model.embedding.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    ready.model.train()(torch.full((4, 50), words["king"]))
    assert set(seen[0].unique().tolist()) == {words["[UNK]"], words["king"]}


@pytest.mark.parametrize(
    "preset, overrides, kind, name",
    [
        ("gpt", [], "gpt2", "GPT2LMHeadModel"),
        (
            "gpt",
            [
                "model.stack.norm={type: LayerNorm, affine: false}",
                "model.tied=false",
                "model.output={type: Output, bias: false}",
            ],
            "gpt2",
            "GPT2LMHeadModel",
        ),
        (
            "gpt",
            [
                "model.stack.position={type: Rotary}",
                "model.stack.norm=RMSNorm",
                "model.stack.feedforward={type: SwiGLU, dim: 40}",
            ],
            "llama",
            "LlamaForCausalLM",
        ),
    ],
)
def test_a_run_trained_here_is_exported(tmp_path, lines, preset, overrides, kind, name):
    """With the same logits and special tokens."""
    small = [
        "model.dim=32",
        "model.stack.layers=2",
        "model.stack.heads=2",
        "train.steps=3",
        "train.eval_every=3",
        "batches.width=16",
    ]
    run = seqloom.fit(preset, *small, *overrides, data=[str(lines)], out=tmp_path / "run", progress=False)
    assert (
        special_tokens(run.tokenizer) == SpecialTokens()
        and model_type(export_checkpoint(run, tmp_path / "out")) == kind
    )
    theirs = getattr(transformers, name).from_pretrained(tmp_path / "out").eval()
    ids = torch.randint(0, run.tokenizer.get_vocab_size(), (2, 16))
    with torch.no_grad():
        torch.testing.assert_close(theirs(ids).logits, run.model(ids)[0], rtol=1e-4, atol=1e-4)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert (there.eos_token_id, there.pad_token_id) == (3, 0)
    assert there("the old king")["input_ids"] == run.encode(["the old king"], as_prompt=True)[0][0].tolist()


@pytest.mark.parametrize("tied", ["true", "false"])
def test_a_translator_trained_here_is_exported(tmp_path, parallel, tied):
    side = "layers: 2, heads: 2, order: post, position: {type: Sinusoidal, layout: halves}, feedforward: {type: FeedForward, dim: 20}"
    sides = [
        f"model.encoder={{type: Transformer, causal: false, {side}}}",
        f"model.decoder={{type: Transformer, {side}}}",
    ]
    few = ["model.dim=16", "tokenizer.size=300", "train.steps=3", "train.eval_every=3", f"model.tied={tied}"]
    run = seqloom.fit(
        "transformer",
        *few,
        *sides,
        data=[str(path) for path in parallel],
        out=tmp_path / "run",
        progress=False,
    )
    assert model_type(export_checkpoint(run, tmp_path / "out")) == "marian"
    theirs = transformers.MarianMTModel.from_pretrained(tmp_path / "out").eval()
    ids, first = torch.randint(5, 300, (2, 9)), torch.randint(5, 300, (2, 6))
    with torch.no_grad():
        wanted = theirs(input_ids=ids, decoder_input_ids=first).logits
        torch.testing.assert_close(run.model(first, run.model.start(ids))[0], wanted, rtol=1e-4, atol=1e-4)
    there = transformers.AutoTokenizer.from_pretrained(tmp_path / "out")
    assert there("the king")["input_ids"] == run.encode(["the king"])[0][0].tolist()


def test_a_model_that_no_folder_can_hold_reports_why(tmp_path, lines, capsys):
    seqloom.fit(
        "lstm-lm",
        "model.dim=8",
        "model.stack.dim=8",
        "train.steps=2",
        "train.eval_every=2",
        data=[str(lines)],
        out=tmp_path / "run",
        progress=False,
    )
    with pytest.raises(SystemExit) as left:
        main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out")])
    said = capsys.readouterr().err
    assert left.value.code == 2 and "its stack is RNN, not Transformer" in said and said.count("\n") == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path / "run"), "--out", str(tmp_path / "out"), "--to", "elsewhere"])
    assert "huggingface" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["export", str(tmp_path / "run")])
    assert "--out FOLDER" in capsys.readouterr().err


def test_the_command_exports_what_python_does(tmp_path, capsys):
    make("distilbert", tmp_path / "theirs")
    run = import_checkpoint(tmp_path / "theirs", tmp_path / "run")
    main(["export", str(tmp_path / "run"), str(tmp_path / "a"), "--json"])
    out, err = capsys.readouterr()
    assert json.loads(out)["model_type"] == "distilbert" and "is now: seqloom export RUN --out" in err
    assert export_checkpoint(tmp_path / "run", tmp_path / "b") == tmp_path / "b"
    for file in sorted((tmp_path / "a").iterdir()):
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes(), file.name
    with pytest.raises(ValueError, match="exists and is not empty"):
        export_checkpoint(run, tmp_path / "a")
