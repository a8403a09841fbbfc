"""Training that begins from another run: what is taken, what stays, what learns slowly, and that a killed one ends with the same bits."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom import config_source, config_tree
from seqloom.files import sha256
from seqloom.run import load_weights
from seqloom.run_config import Config
from seqloom.train import finetune
from seqloom.train.fit import train
from seqloom.train.options import AdamW, set_lr_factors

SMALL = ["tokenizer={type: BPE, size: 300}", "model.dim=16", "model.stack.heads=2", "batches.width=16"]
GPT = [
    *SMALL,
    "model.stack.layers=2",
    "model.stack.position.length=16",
    "batches.batch=4",
    "train.eval_every=10",
]
SHORT = [
    "train.steps=10",
    "train.eval_every=10",
    "batches.width=16",
    "batches.batch=4",
    "train.schedule.warmup=2",
]


@pytest.fixture
def source(tmp_path: Path, text: Path) -> seqloom.Run:
    return seqloom.fit(
        "gpt", *GPT, "train.steps=20", data=[str(text)], out=tmp_path / "source", progress=False
    )


@pytest.fixture
def other(tmp_path: Path) -> Path:
    """Text of another kind."""
    path = tmp_path / "other.txt"
    path.write_text("the river runs and the street never sleeps\n" * 150, "utf-8")
    return path


def tensors(run: seqloom.Run) -> dict[str, torch.Tensor]:
    return load_weights(run.folder)


def test_it_goes_on_from_the_weights_and_with_the_tokenizer(
    source: seqloom.Run, other: Path, tmp_path: Path
) -> None:
    """The preset's sizes give way to the source's; held-out loss before any step is the source's own."""
    run = seqloom.fit(
        "gpt",
        *SHORT,
        "train.optimizer.lr=1e-9",
        data=[str(other)],
        out=tmp_path / "tuned",
        progress=False,
        base=source.folder,
    )
    assert (
        run.tokenizer.to_str() == source.tokenizer.to_str()
        and run.config.tree["tokenizer"] == source.config.tree["tokenizer"]
    )
    assert run.config.tree["model"]["dim"] == 16 and run.config.tree["model"]["stack"]["layers"] == 2
    for name, tensor in tensors(source).items():
        torch.testing.assert_close(tensors(run)[name], tensor, rtol=0, atol=1e-6)
    said = run.config.tree["from"]
    assert said == {
        "run": str(source.folder.resolve()),
        "sha256": sha256(source.folder / "model.safetensors"),
    }
    begun = run.results.base
    assert begun["new"] == begun["unused"] == begun["frozen"] == [] and sorted(begun["loaded"]) == sorted(
        tensors(source)
    )
    shutil.rmtree(source.folder)
    assert seqloom.load(run.folder).model is not None  # needs its source no more


def test_another_head_is_new_and_the_body_is_taken(
    source: seqloom.Run, other: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "seqloom")
    run = seqloom.fit(
        "gpt",
        *SHORT,
        "model.tied=false",
        "model.stack.dropout=0.5",
        data=[str(other)],
        out=tmp_path / "tuned",
        base=source.folder,
    )
    begun = run.results.base
    assert begun["new"] == ["output.table", "output.bias"] and "embedding.table" in begun["loaded"]
    assert run.config.tree["model"]["stack"]["dropout"] == 0.5  # what is asked for stands
    told = caplog.text
    assert "loaded from" in told and "(embedding, stack)" in told and "new: 2 weights" in told


def test_what_is_frozen_stays_and_the_rest_learns(source: seqloom.Run, other: Path, tmp_path: Path) -> None:
    still = "freeze=[embedding, 'stack.blocks.0.*']"
    run = seqloom.fit(
        "gpt", *SHORT, still, data=[str(other)], out=tmp_path / "tuned", progress=False, base=source.folder
    )
    before, after = tensors(source), tensors(run)
    for name in before:
        still = name.startswith(("embedding", "stack.blocks.0."))
        assert torch.equal(before[name], after[name]) == still, name
        assert (name in run.results.base["frozen"]) == still
    with pytest.raises(ValueError, match="no weight is called 'embeding'; did you mean 'embedding'"):
        seqloom.fit(
            "gpt",
            *SHORT,
            "freeze=[embeding]",
            data=[str(other)],
            out=tmp_path / "b",
            progress=False,
            base=source.folder,
        )
    with pytest.raises(ValueError, match="no weight is left to train"):
        seqloom.fit(
            "gpt",
            *SHORT,
            "freeze=['*']",
            data=[str(other)],
            out=tmp_path / "c",
            progress=False,
            base=source.folder,
        )


def test_rates_fall_with_depth_and_by_name() -> None:
    recipe = Config.load("gpt", ["layer_decay=0.5", "lr_factors={stack.norm: 0.1, 'stack.blocks.3.*': 2}"])
    model = recipe.model(50)
    found = finetune.lr_factors(model, recipe)
    assert found["embedding.table"] == 0.5**4 and found["stack.blocks.0.attention.qkv_proj.weight"] == 0.5**3
    assert (
        found["stack.blocks.2.feedforward.out_proj.weight"] == 0.5
        and found["stack.blocks.3.attention.out_proj.weight"] == 2.0
    )
    assert found["stack.norm.gain"] == pytest.approx(0.1)


def test_a_factor_on_the_rate_is_a_factor_on_the_step() -> None:
    """SGD-like check by Adam's first step, whose size is the rate itself: w moves by rate · factor."""
    weights = [torch.nn.Parameter(torch.zeros(3, 3)) for _ in range(3)]
    optimizer = AdamW(weights, lr=0.01, weight_decay=0.0)
    set_lr_factors(optimizer, {weights[1]: 0.5, weights[2]: 0.0})
    for group in optimizer.param_groups:
        group["lr"] = optimizer.defaults["lr"] * group["factor"]
    for weight in weights:
        weight.grad = torch.ones_like(weight)
    optimizer.step()
    assert [round(-float(weight.detach()[0, 0]), 5) for weight in weights] == [0.01, 0.005, 0.0]
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 3


def test_adapters_learn_a_small_difference_and_are_merged(
    source: seqloom.Run, other: Path, tmp_path: Path
) -> None:
    options = [
        *SHORT,
        "lora={rank: 2, alpha: 4, names: ['stack.blocks.*.attention.qkv_proj']}",
        "train.optimizer.lr=1e-2",
    ]
    run = seqloom.fit(
        "gpt", *options, data=[str(other)], out=tmp_path / "tuned", progress=False, base=source.folder
    )
    before, after = tensors(source), tensors(run)
    assert before.keys() == after.keys()
    for name in before:
        change = after[name] - before[name]
        if name.endswith("attention.qkv_proj.weight"):
            assert 0 < torch.linalg.matrix_rank(change, rtol=1e-4) <= 2
        else:
            assert not change.any(), name
    assert run.results.base["adapted"] == [
        "stack.blocks.0.attention.qkv_proj",
        "stack.blocks.1.attention.qkv_proj",
    ]
    loaded = seqloom.load(run.folder).model
    ids = torch.randint(5, 100, (2, 9))
    torch.testing.assert_close(loaded(ids)[0], run.model(ids)[0])


@pytest.mark.parametrize(
    "overrides, sentence",
    [
        (["model.dim=24", "model.stack.layers=1"], "no weight fits the model .*embedding.table is"),
        (["lora={rank: 2, names: [nothing]}"], "lora.names: no matching matrix was loaded"),
        (["lora={rank: two}"], "lora.rank: expected a whole number"),
        (["lr_factors={stack: fast}"], "lr_factors.stack: expected a number"),
    ],
)
def test_what_does_not_fit_is_said_in_one_line(
    source: seqloom.Run, other: Path, tmp_path: Path, overrides: list[str], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        seqloom.fit(
            "gpt",
            *SHORT,
            *overrides,
            data=[str(other)],
            out=tmp_path / "tuned",
            progress=False,
            base=source.folder,
        )


def test_a_source_that_is_none_or_has_changed_is_named(
    source: seqloom.Run, other: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="not a run folder, so training cannot start from it"):
        seqloom.fit("gpt", *SHORT, data=[str(other)], out=tmp_path / "a", progress=False, base=tmp_path)
    with pytest.raises(ValueError, match="pass --from RUN"):
        seqloom.fit("gpt", *SHORT, "lora={rank: 2}", data=[str(other)], out=tmp_path / "b", progress=False)
    recipe = finetune.from_run(Config.load("gpt", SHORT, [str(other)]), source.folder, SHORT)
    weights = source.folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\1\0")
    with pytest.raises(ValueError, match="damaged, its SHA-256"):
        train(recipe, tmp_path / "c", progress=False)


def test_a_config_file_may_say_where_it_begins(source: seqloom.Run, other: Path, tmp_path: Path) -> None:
    """There the model is the file's own, and the weights that fit are taken."""
    tree = config_source.deep_copy(source.config.tree)
    tree["from"] = str(source.folder)
    tree["train"]["steps"] = 2
    file = tmp_path / "mine.yaml"
    file.write_text(config_tree.write(tree), "utf-8")
    run = seqloom.fit(str(file), data=[str(other)], out=tmp_path / "tuned", progress=False)
    assert run.results.base["new"] == [] and run.config.tree["from"]["sha256"] == sha256(
        source.folder / "model.safetensors"
    )


def test_a_killed_fine_tuning_ends_with_the_same_bits(
    source: seqloom.Run, other: Path, tmp_path: Path
) -> None:
    """Killed twice with SIGKILL, before and after its first checkpoint; then the source is gone, and the run folder goes on by itself."""

    def command(folder: Path) -> list[str]:
        options = ["train.steps=160", "train.save_every=4", "train.eval_every=20", "model.stack.dropout=0.1"]
        begun = ["lora={rank: 2}", "freeze=[embedding]", "lr_factors={stack: 0.5}"]
        return [sys.executable, "-m", "seqloom", "train", "gpt", *SHORT[2:], *options, *begun, "--from", str(source.folder), "--data", str(other),
                "--out", str(folder), "--threads", "1"]  # fmt: skip

    def bits(folder: Path) -> list[str]:
        return [sha256(folder / name) for name in ("model.safetensors", "metrics.jsonl")]

    def killed(arguments: list[str], there: Path) -> None:
        with subprocess.Popen(arguments, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as process:
            while process.poll() is None and not there.exists():
                time.sleep(0.002)
            process.kill()

    whole, cut = tmp_path / "whole", tmp_path / "cut"
    subprocess.run(command(whole), check=True, capture_output=True)
    killed(command(cut), cut / "config.yaml")
    assert not (cut / "results.json").exists()
    killed(command(cut), cut / "checkpoints" / "step-00000008")
    assert not (cut / "results.json").exists()
    os.rename(source.folder, tmp_path / "elsewhere")
    again = subprocess.run(
        [sys.executable, "-m", "seqloom", "train", str(cut), "--threads", "1", "--json"],
        capture_output=True,
        text=True,
    )
    assert again.returncode == 0, again.stderr
    assert bits(cut) == bits(whole)
    told = json.loads(again.stdout)["from"]
    assert (
        told["frozen"]
        and len(told["adapted"]) == 8
        and told == json.loads((whole / "results.json").read_text())["from"]
    )


def test_a_masked_model_becomes_a_classifier(text: Path, tmp_path: Path) -> None:
    """[I1] The body is that of the masked model, the head is the classifier's own and new."""
    small = [
        "tokenizer.size=90",
        "model.dim=16",
        "model.stack.layers=1",
        "model.stack.heads=2",
        "batches.width=24",
        "train.steps=4",
    ]
    source = seqloom.fit("bert-small", *small, data=[str(text)], out=tmp_path / "bert", progress=False)
    table = tmp_path / "table.tsv"
    lines = text.read_text("utf-8").splitlines()
    table.write_text("".join(f"{line}\t{'long' if len(line) > 28 else 'short'}\n" for line in lines), "utf-8")
    run = seqloom.fit(
        "classifier",
        "train.steps=4",
        "train.eval_every=4",
        data=[str(table)],
        out=tmp_path / "tuned",
        progress=False,
        base=source.folder,
    )
    begun = run.results.base
    assert {"embedding.table", "stack.blocks.0.attention.qkv_proj.weight", "stack.norm.gain"} <= set(
        begun["loaded"]
    )
    assert not any(name.startswith(("embedding", "stack")) for name in begun["new"]) and begun["new"]
    assert (
        run.labels == ["long", "short"]
        and run.config.tree["model"]["stack"] == source.config.tree["model"]["stack"]
    )


def test_a_tagger_learns_the_mixture_of_elmos_layers(text: Path, tmp_path: Path) -> None:
    """[I10] Both directions stay as they were learnt; the shares of their layers do not."""
    small = ["tokenizer.size=300", "model.dim=8", "batches.width=16", "batches.batch=4", "train.steps=4"]
    source = seqloom.fit("elmo", *small, data=[str(text)], out=tmp_path / "elmo", progress=False)
    table = tmp_path / "tags.conllu"
    rows = [
        [(word, "DET" if word in ("the", "a") else "X") for word in line.split()]
        for line in text.read_text("utf-8").splitlines()[:80]
    ]
    sentence = "{}\t{}\t_\t{}\t_\t_\t_\t_\t_\t_\n".format
    table.write_text(
        "".join("".join(sentence(i, *row) for i, row in enumerate(one, 1)) + "\n" for one in rows), "utf-8"
    )
    still = "freeze=[embedding, stack.forward_layers, stack.backward_layers]"
    run = seqloom.fit(
        "tagger",
        still,
        "train.steps=6",
        "train.eval_every=6",
        data=[str(table)],
        out=tmp_path / "tagger",
        progress=False,
        base=source.folder,
    )
    before, after = tensors(source), tensors(run)
    for name in (name for name in before if name.startswith(("embedding", "stack"))):
        assert torch.equal(before[name], after[name]) == (".mix." not in name), name
    assert (
        "stack.mix.scalars" in run.results.base["loaded"]
        and run.config.tree["model"]["stack"]["type"] == "SeparateBiRNN"
    )
