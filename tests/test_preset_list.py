"""What the presets say about themselves is true, and the verb shows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from seqloom.cli import main
from seqloom.config_source import TRAINING_BYTES, preset_names
from seqloom.errors import ConfigError
from seqloom.preset_list import list_presets, read_preset
from seqloom.run_config import Config

SIZES = [
    (preset.name, size.name, size.parameters)
    for preset in list_presets()
    for size in preset.sizes
    if size.parameters < 2e8  # larger ones take seconds to build
]


@pytest.mark.parametrize("name, size, parameters", SIZES)
def test_task_and_parameters_are_those_of_the_model(name: str, size: str | None, parameters: int):
    config = Config.load(name, [] if size is None else [f"size={size}"])
    tokenizer = config.tree["tokenizer"]
    vocabulary = tokenizer.get("size", 1000) if isinstance(tokenizer, dict) else 1000
    with torch.device("meta"):
        model = config.model(vocabulary)
    assert sum(parameter.numel() for parameter in model.parameters()) == parameters
    assert model.task == read_preset(name).task


@pytest.mark.parametrize("name", preset_names())
def test_a_preset_says_what_it_is(name: str):
    preset = read_preset(name)
    assert 0 < len(preset.summary) <= 65
    sizes = {size.name for size in preset.sizes}
    assert sizes == set(Config.preset(name).sizes) or sizes == {None}
    assert all(size.memory == TRAINING_BYTES * size.parameters for size in preset.sizes)


def test_presets_are_listed_by_task():
    assert [preset.name for preset in list_presets()] != [] and len(list_presets()) == len(preset_names())
    assert {preset.task for preset in list_presets("tagging")} == {"tagging"}
    with pytest.raises(ConfigError, match="did you mean 'tagging'"):
        list_presets("taging")


def test_the_verb_lists_prints_and_copies(tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main(["presets"])
    assert all(
        f"  {name} " in capsys_text for capsys_text in [capsys.readouterr().out] for name in preset_names()
    )
    main(["presets", "--task", "tagging", "--json"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["name"] for row in rows] == ["tagger", "tagger-transformer"]
    main(["presets", "gpt2", "--out", "mine.yaml"])
    assert capsys.readouterr().out == "preset: mine.yaml\n"
    assert Config.load("mine.yaml", ["size=355M"]).tree == Config.load("gpt2", ["size=355M"]).tree
    main(["presets", "gpt2"])
    assert capsys.readouterr().out.rstrip() == Path("mine.yaml").read_text("utf-8").rstrip()
    with pytest.raises(SystemExit) as stop:
        main(["presets", "gpt2", "--out", "mine.yaml"])
    assert stop.value.code == 2 and "--overwrite" in capsys.readouterr().err
    main(["presets", "gpt", "--out", "mine.yaml", "--overwrite"])
    assert Config.load("mine.yaml").tree == Config.preset("gpt").tree
