"""The named systems have the sizes that their papers give: counted on the meta device, where a model of any size takes no memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from seqloom import config_source
from seqloom.equations import explain
from seqloom.run_config import Config
from seqloom.text.store import build


def count(name: str, vocabulary: int, *overrides: str) -> int:
    with torch.device("meta"):
        model = Config.load(name, overrides).model(vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize(
    "size, exactly",
    [("124M", 124_439_808), ("355M", 354_823_168), ("774M", 774_030_080), ("1558M", 1_557_611_200)],
)
def test_gpt2_has_the_sizes_of_its_weights(size: str, exactly: int) -> None:
    """[I4] The published weights, counted by another library."""
    assert count("gpt2", 50257, f"size={size}") == exactly
    transformers = pytest.importorskip("transformers")
    tree = Config.load("gpt2", [f"size={size}"]).tree["model"]
    theirs = transformers.GPT2Config(
        n_embd=tree["dim"], n_layer=tree["stack"]["layers"], n_head=tree["stack"]["heads"]
    )
    with torch.device("meta"):
        assert sum(p.numel() for p in transformers.GPT2LMHeadModel(theirs).parameters()) == exactly


GPT3 = {  # Table 2.1: name → parameters, layers, width, tokens a step, rate
    "125M": (125e6, 12, 768, 0.5e6, 6.0e-4),
    "350M": (350e6, 24, 1024, 0.5e6, 3.0e-4),
    "760M": (760e6, 24, 1536, 0.5e6, 2.5e-4),
    "1.3B": (1.3e9, 24, 2048, 1e6, 2.0e-4),
    "2.7B": (2.7e9, 32, 2560, 1e6, 1.6e-4),
    "6.7B": (6.7e9, 32, 4096, 2e6, 1.2e-4),
    "13B": (13e9, 40, 5140, 2e6, 1.0e-4),  # 5,140 cannot be cut into 40 heads of 128; 5,120 can
    "175B": (175e9, 96, 12288, 3.2e6, 0.6e-4),
}


@pytest.mark.parametrize("size", GPT3)
def test_gpt3_has_the_rows_of_its_table(size: str) -> None:
    """[I6] Parameters within 2 %, width within ½ %, tokens a step within 5 %: the table rounds."""
    parameters, layers, width, tokens, rate = GPT3[size]
    tree = Config.load("gpt3", [f"size={size}"]).tree
    assert count("gpt3", 50257, f"size={size}") == pytest.approx(parameters, rel=0.02)
    assert tree["model"]["stack"]["layers"] == layers and tree["model"]["dim"] == pytest.approx(
        width, rel=0.005
    )
    step = tree["batches"]["width"] * tree["batches"]["batch"] * tree["train"]["accumulate"]
    assert step == pytest.approx(tokens, rel=0.05) and tree["train"]["optimizer"]["lr"] == rate
    assert (
        step * tree["train"]["schedule"]["warmup"] == pytest.approx(375e6, rel=0.01)
        and tree["train"]["tokens"] == 300e9
    )


LLAMA = {
    "7B": 6_738_415_616,
    "13B": 13_015_864_320,
    "33B": 32_528_943_616,
    "65B": 65_285_660_672,
    "70B": 68_976_648_192,
    "8B": 8_030_261_248,
}


@pytest.mark.parametrize("size", LLAMA)
def test_llama_has_the_sizes_of_its_weights(size: str) -> None:
    """[I9] The published weights, counted by another library."""
    vocabulary = 128256 if size == "8B" else 32000
    assert count("llama", vocabulary, f"size={size}") == LLAMA[size]
    transformers = pytest.importorskip("transformers")
    tree = Config.load("llama", [f"size={size}"]).tree["model"]
    stack = tree["stack"]
    theirs = transformers.LlamaConfig(
        vocab_size=vocabulary, hidden_size=tree["dim"], intermediate_size=stack["feedforward"]["dim"], num_hidden_layers=stack["layers"],
        num_attention_heads=stack["heads"], num_key_value_heads=stack["attention"].get("kv_heads", stack["heads"]),
    )  # fmt: skip
    with torch.device("meta"):
        assert sum(p.numel() for p in transformers.LlamaForCausalLM(theirs).parameters()) == LLAMA[size]


def test_eight_experts_of_seven_billion() -> None:
    """[I7] Mixtral: 46.7 billion parameters, of which a token uses 12.9."""
    whole = count("gpt-moe", 32000, "size=8x7B")
    assert whole == 46_702_792_704
    idle = 32 * 6 * 3 * 4096 * 14336  # six of eight experts in each layer, three matrices each
    assert whole - idle == pytest.approx(12.9e9, rel=0.005)
    assert explain("gpt-moe", "size=8x7B", vocabulary=32000, length=32).flops == pytest.approx(
        2 * (whole - idle - 32000 * 4096), rel=2e-3
    )  # rows are looked up


@pytest.mark.parametrize(
    "size, named, exactly", [("base", 110e6, 110_106_428), ("large", 340e6, 336_226_108)]
)
def test_bert_has_the_sizes_of_its_paper(size: str, named: float, exactly: int) -> None:
    """[I1] With both heads, as it is pre-trained; counted by another library."""
    assert count("bert", 30522, f"size={size}") == exactly == pytest.approx(named, rel=0.02)
    transformers = pytest.importorskip("transformers")
    tree = Config.load("bert", [f"size={size}"]).tree["model"]
    layers, heads = tree["stack"]["layers"], tree["stack"]["heads"]
    theirs = transformers.BertConfig(
        hidden_size=tree["dim"],
        num_hidden_layers=layers,
        num_attention_heads=heads,
        intermediate_size=4 * tree["dim"],
    )
    with torch.device("meta"):
        assert sum(p.numel() for p in transformers.BertForPreTraining(theirs).parameters()) == exactly


def test_a_size_is_a_set_of_changes_that_others_follow() -> None:
    tree = {"size": "a", "sizes": {"a": {"x.y": 1, "x.z": 2}, "b": {"x.y": 3}}, "x": {"w": 0}}
    assert config_source.override(tree, []) == {"x": {"w": 0, "y": 1, "z": 2}}
    assert config_source.override(tree, ["x.y=7", "size=b"]) == {"x": {"w": 0, "y": 7}}
    assert config_source.override(tree, ["size=a", "x.z=9"])["x"] == {"w": 0, "y": 1, "z": 9}
    with pytest.raises(ValueError, match="size=c: there is no such size; choose from a, b"):
        config_source.override(tree, ["size=c"])


def test_the_command_line_explains_a_model_that_no_laptop_holds() -> None:
    command = [
        sys.executable,
        "-m",
        "seqloom",
        "explain",
        "gpt3",
        "size=175B",
        "--vocabulary",
        "50257",
        "--json",
    ]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert found["parameters"] == 174_604_259_328
    attention = 2 * 2 * 2048 * 12288 * 96  # scores and averages over T positions in every layer
    assert found["flops"] == pytest.approx(
        2 * found["parameters"] + attention, rel=1e-3
    )  # two for each weight


@pytest.mark.parametrize("name", ["lstm-words", "transformer-words"])
def test_words_of_wikitext_are_counted_as_others_count_them(name: str, real_data: Path) -> None:
    """245,569 test tokens with one <eos> a line, over 33,278 types of which <unk> and <eos> are two; <pad>, <bos> and <mask> are ours."""
    files = {side: str(real_data / "wikitext-2" / f"{side}.txt.gz") for side in ("train", "test")}
    recipe = Config.load(name, [], [files["train"]], [files["test"]])
    learnt = recipe.tokenizer()
    assert learnt.get_vocab_size() == 33_278 + 3
    test = build(recipe.reader([files["test"]]), learnt)
    assert len(test.fields[0].tokens) == 245_569
    assert sum(batch.num_targets for batch in recipe.data(test).sequential()) == 245_569
