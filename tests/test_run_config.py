"""Configs of runs: changes from Python and from the command line, the YAML file, parts of the user's own."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from seqloom import config_tree, nn, objectives
from seqloom.config_source import FORMAT, config_of, find_config, is_run, read_config
from seqloom.errors import ConfigError
from seqloom.nn.cells import Vanilla
from seqloom.run_config import Config


class OwnCell(Vanilla):
    """h = tanh(W x + U h + b)"""


TRANSFORMER = "{type: Transformer, layers: 6, heads: 8, position: {type: ALiBi}}"


def test_python_values_and_yaml_are_two_spellings():
    value = partial(nn.Transformer, layers=6, heads=8, position=nn.ALiBi)
    from_python = Config.preset("gpt").change({"model.dim": 256, "model.stack": value})
    from_text = Config.preset("gpt").change("model.dim=256", f"model.stack={TRANSFORMER}")
    assert from_python.tree == from_text.tree
    assert from_python.tree["model"]["stack"] == yaml.safe_load(TRANSFORMER)
    model = from_python.model(vocabulary=1000)
    assert isinstance(model, torch.nn.Module) and model.embedding.table.shape == (1000, 256)


def test_a_change_leaves_the_old_config_and_the_order_decides():
    first = Config.preset("gpt")
    dim = first.tree["model"]["dim"]
    assert first.change({"model.dim": 8}, "model.dim=16").tree["model"]["dim"] == 16
    assert first.change("model.dim=16", {"model.dim": 8}).tree["model"]["dim"] == 8
    assert first.tree["model"]["dim"] == dim


@pytest.mark.parametrize(
    "value, expected",
    [
        (nn.ALiBi, {"type": "ALiBi"}),
        (partial(nn.Rotary, base=10), {"type": "Rotary", "base": 10}),
        ({"type": "Rotary", "base": 10}, {"type": "Rotary", "base": 10}),
        ("ALiBi", "ALiBi"),
    ],
)
def test_a_part_is_a_class_a_partial_a_dict_or_a_name(value: object, expected: object):
    assert (
        Config.preset("gpt").change({"model.stack.position": value}).tree["model"]["stack"]["position"]
        == expected
    )


def test_an_objective_is_named_by_its_function():
    tree = Config.preset("gpt").change({"objective": objectives.next_token}).tree
    assert tree["objective"] == {"type": "next_token"}


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"model.stack": partial(nn.Transformer, 6)}, "by name"),
        ({"model.dim": torch.zeros(2)}, "a Tensor cannot be part of a config"),
        ({"modle.dim": 3}, "did you mean 'model'"),
        ({"model.dmi": 3}, "did you mean 'dim'"),
        ("model.stack.layer=3", "did you mean 'layers'"),
        ("model.dim", "a change is path=value"),
        (3, "a change is a text"),
        ({"objective": lambda model, batch, state: None}, "your own parts"),
        ({"model.stack": type("Transformer", (torch.nn.Module,), {})}, "is the name of a built-in part"),
    ],
)
def test_a_wrong_change_gets_its_sentence(change: object, sentence: str):
    with pytest.raises(ConfigError, match=sentence):
        Config.preset("gpt").change(change)  # type: ignore[arg-type]


def test_an_unknown_preset_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="did you mean 'lstm-lm'"):
        Config.preset("lstm-ml")


def test_sizes_can_be_chosen_later():
    small, large = Config.preset("gpt2"), Config.preset("gpt2").change("size=355M")
    assert (small.tree["model"]["dim"], large.tree["model"]["dim"]) == (768, 1024)
    assert large.tree == Config.load("gpt2", ["size=355M"]).tree
    assert Config.preset("gpt2").change({"size": "355M", "model.dim": 512}).tree["model"]["dim"] == 512
    with pytest.raises(ConfigError, match="no such size"):
        small.change("size=356M0")


def test_a_list_needs_no_brackets():
    def files(change: str) -> list[str]:
        return Config.preset("transformer").change(change).files.train

    assert files("files.train=a.en,b.de") == files("files.train=[a.en, b.de]") == ["a.en", "b.de"]
    assert files('files.train="a,b"') == ["a,b"]
    assert config_tree.parse("1,2", "x")[0] != [1, 2]  # YAML files keep their meaning
    assert Config.preset("gpt").change("freeze=embedding,stack.blocks.0").tree["freeze"] == [
        "embedding",
        "stack.blocks.0",
    ]


def test_a_saved_config_reads_back_as_it_was(tmp_path: Path):
    config = Config.preset("gpt").change(
        {"model.stack": partial(nn.Transformer, layers=2, heads=2, position=nn.ALiBi), "seed": 3}
    )
    config.save(tmp_path / "mine.yaml")
    again = Config.load(str(tmp_path / "mine.yaml"))
    assert again.tree == config.tree and again.seed == 3
    text = (tmp_path / "mine.yaml").read_text("utf-8")
    assert text.startswith(f"seqloom: {FORMAT}\npreset: gpt\n") and again.to_yaml() == text
    left, right = config.model(50).state_dict(), again.model(50).state_dict()
    assert left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


def test_a_config_of_a_newer_version_is_refused(tmp_path: Path):
    path = tmp_path / "new.yaml"
    path.write_text(Config.preset("gpt").to_yaml().replace(f"seqloom: {FORMAT}", "seqloom: 99"), "utf-8")
    with pytest.raises(ConfigError, match=r"new\.yaml:1: seqloom: format 99 .* upgrade seqloom"):
        read_config(path)


def test_the_section_data_is_read_as_batches(tmp_path: Path):
    path = tmp_path / "old.yaml"
    text = Config.preset("gpt").to_yaml().replace("\nbatches:", "\ndata:").replace(f"seqloom: {FORMAT}\n", "")
    path.write_text(text, "utf-8")
    tree = Config.load(str(path), ["data.width=7"]).tree
    assert tree["batches"] == {**Config.preset("gpt").tree["batches"], "width": 7} and "data" not in tree
    path.write_text(text.replace("width:", "wdith:"), "utf-8")
    with pytest.raises(ConfigError, match=r"old\.yaml:\d+: batches.wdith.*did you mean 'width'"):
        Config.load(str(path))


@pytest.mark.parametrize(
    "text, expected",
    [
        ("seqloom: 2\n", True),
        ("corpus: Text\ntokenizer: BPE\nmodel: {}\ndata: {}\nobjective: {}\n", True),
        ("title: my page\ntheme: dark\n", False),
        ("model: resnet\n", False),
        ("[1, 2]", True),
        ("a: [", True),  # broken: reading it names the line
    ],
)
def test_a_folder_is_a_run_if_its_config_says_so(tmp_path: Path, text: str, expected: bool):
    (tmp_path / "config.yaml").write_text(text, "utf-8")
    assert is_run(tmp_path) == expected
    assert not is_run(tmp_path / "none")


def test_a_folder_that_is_not_a_run_is_named(tmp_path: Path):
    (tmp_path / "config.yaml").write_text("title: my page\n", "utf-8")
    with pytest.raises(ConfigError, match="this folder is not a run"):
        find_config(str(tmp_path))


def test_a_preset_that_hides_a_run_folder_says_so(tmp_path: Path, monkeypatch, caplog):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "gpt").mkdir()
    Config.preset("lstm-lm").save(tmp_path / "gpt" / "config.yaml")
    assert find_config("gpt")[0] == Config.preset("gpt").tree
    assert "./gpt" in caplog.text
    assert find_config("./gpt")[0] == Config.preset("lstm-lm").tree == config_of("gpt")[0]


def test_own_parts_come_with_the_change(tmp_path: Path):
    config = Config.preset("lstm-lm").change({"model.stack.cell": OwnCell})
    assert config.own_parts == (OwnCell,)
    assert config.change("model.dim=16").own_parts == (OwnCell,)
    config.save(tmp_path / "own.yaml")
    with pytest.raises(ConfigError, match=r"no part is called 'OwnCell'.*--code FILE.py, or parts="):
        Config.load(str(tmp_path / "own.yaml"))
    assert Config.load(str(tmp_path / "own.yaml"), parts=[OwnCell]).tree == config.tree


def test_parts_of_installed_packages_are_found_by_name(tmp_path: Path, monkeypatch):
    package = tmp_path / "their_cells"
    package.mkdir()
    (package / "__init__.py").write_text(
        "from seqloom.nn.cells import Vanilla\nclass TheirCell(Vanilla):\n    'h = tanh(W x + U h + b)'\n",
        "utf-8",
    )
    (tmp_path / "their_cells-1.dist-info").mkdir()
    (tmp_path / "their_cells-1.dist-info" / "METADATA").write_text("Name: their-cells\nVersion: 1\n", "utf-8")
    (tmp_path / "their_cells-1.dist-info" / "entry_points.txt").write_text(
        "[seqloom.parts]\nTheirCell = their_cells:TheirCell\nMissing = their_cells:Nothing\n", "utf-8"
    )
    monkeypatch.syspath_prepend(tmp_path)
    Config.preset("lstm-lm")
    assert "their_cells" not in sys.modules  # only a config that names it loads it
    config = Config.preset("lstm-lm").change("model.stack.cell=TheirCell")
    assert config.parts["model"].keywords["stack"].keywords["cell"].func.__name__ == "TheirCell"
    with pytest.raises(ConfigError, match="Missing: the installed package cannot be imported"):
        Config.preset("lstm-lm").change("model.stack.cell=Missing")
    sys.modules.pop("their_cells")
