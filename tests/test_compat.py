"""Old names are read for ever: configs, weights and JSON keys of older versions mean what they meant."""

from __future__ import annotations

from fnmatch import fnmatchcase

import pytest

from seqloom import compat


@pytest.fixture(autouse=True)
def tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "TYPE_ALIASES", {"model": {"Old": "New"}, "train": {"Line": "Linear"}})
    monkeypatch.setattr(
        compat,
        "OPTION_ALIASES",
        {"New": {"size": "dim"}, "train": {"every": "eval_every"}, "": {"adapt": "lora"}},
    )
    monkeypatch.setattr(compat, "WEIGHT_RENAMES", [(r"\blast\b", "out_proj"), (r"^spelling\.", "chars.")])
    monkeypatch.setattr(compat, "JSON_KEYS", {"state.json": {"worse": "evals_since_best"}})


def test_types_and_options_are_renamed_where_they_belong():
    tree = {"model": {"type": "Old", "size": 3, "stack": ["Old", {"type": "Other", "size": 4}]}, "seed": 1}
    assert compat.upgrade_config(tree) == {
        "model": {"type": "New", "dim": 3, "stack": ["New", {"type": "Other", "size": 4}]},
        "seed": 1,
    }


def test_an_override_by_an_old_name_wins_over_the_present_one():
    tree = {
        "train": {"every": 5, "eval_every": 9, "schedule": "Line"},
        "lora": {"rank": 2, "scale": 1},
        "adapt": {"rank": 8},
    }
    assert compat.upgrade_config(tree) == {
        "train": {"eval_every": 5, "schedule": "Linear"},
        "lora": {"rank": 8, "scale": 1},
    }


def test_sections_are_renamed_in_paths_and_in_the_sizes_of_a_preset():
    assert compat.upgrade_path("adapt.rank") == "lora.rank" and compat.upgrade_path("adapt") == "lora"
    assert compat.upgrade_path("train.adapt") == "train.adapt"
    sizes = {"big": {"adapt.rank": 8, "model.dim": 9}}
    assert compat.upgrade_config({"sizes": sizes}) == {"sizes": {"big": {"lora.rank": 8, "model.dim": 9}}}


def test_present_configs_stay_as_they_are():
    tree = {"model": {"type": "New", "dim": 3}, "train": {"eval_every": 5}, "files": {"train": ["Old"]}}
    assert compat.upgrade_config(tree) == tree


def test_weights_are_renamed_only_where_the_model_has_the_present_name():
    present = {"a.out_proj.weight", "b.last.weight"}
    stored = {"a.last.weight": 1, "b.last.weight": 2, "c.last.weight": 3}
    assert compat.upgrade_weights(stored, present) == {
        "a.out_proj.weight": 1,
        "b.last.weight": 2,
        "c.last.weight": 3,
    }
    assert compat.upgrade_weight("spelling.last.weight", {"chars.out_proj.weight"}) == "chars.out_proj.weight"


def test_patterns_are_renamed_only_where_they_match_nothing():
    names = ["stack.0.out_proj.weight", "head.last.weight"]

    def matches(pattern: str) -> bool:
        return any(fnmatchcase(name, f"{pattern}*") for name in names)

    assert compat.upgrade_name("stack.*.last", matches) == "stack.*.out_proj"
    assert compat.upgrade_name("head.last", matches) == "head.last"
    assert compat.upgrade_name("nothing.last", matches) == "nothing.last"


def test_a_name_may_hold_several_old_words(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(compat, "WEIGHT_RENAMES", [(r"\.first$", ".lora_a"), (r"\bfirst\b", "in_proj")])
    present = {"ffn.in_proj.lora_a", "ffn.in_proj.base.weight"}
    stored = {"ffn.first.first": 1, "ffn.first.base.weight": 2}
    assert compat.upgrade_weights(stored, present) == {
        "ffn.in_proj.lora_a": 1,
        "ffn.in_proj.base.weight": 2,
    }


def test_keys_of_json_files_are_renamed():
    assert compat.upgrade_json("state.json", {"worse": 2, "step": 3}) == {"evals_since_best": 2, "step": 3}
    assert compat.upgrade_json("other.json", {"worse": 2}) == {"worse": 2}
