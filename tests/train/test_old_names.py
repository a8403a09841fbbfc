"""Options of the `train` section and of fine-tuning are read under the names of older versions."""

from __future__ import annotations

import yaml

from seqloom import compat
from seqloom.run_config import Config
from seqloom.train.finetune import FinetuneOptions, InitReport
from seqloom.train.options import LinearDecay
from seqloom.train.preparation import build_options

PRESENT = [
    "train.eval_every=7",
    "train.save_every=5",
    "train.log_every=3",
    "train.keep_checkpoints=9",
    "train.eval_batches=11",
    "train.average_checkpoints=4",
    "train.optimizer.lr=0.25",
    "train.optimizer.weight_decay=0.125",
    "train.schedule={type: LinearDecay, warmup: 6}",
    "lr_factors={stack: 0.5}",
    "lora={rank: 2}",
    "from=somewhere",
]
OLD = [
    "train.every=7",
    "train.save=5",
    "train.log=3",
    "train.keep=9",
    "train.valid=11",
    "train.average=4",
    "train.optimizer.rate=0.25",
    "train.optimizer.decay=0.125",
    "train.schedule={type: Linear, warmup: 6}",
    "rates={stack: 0.5}",
    "adapt={rank: 2}",
    "from=somewhere",
]


def test_old_overrides_give_the_same_config():
    assert Config.load("gpt", OLD).tree == Config.load("gpt", PRESENT).tree


def test_old_names_of_a_file_and_present_overrides_agree(tmp_path):
    file = tmp_path / "own.yaml"
    preset = Config.load("gpt").tree
    preset["train"] = {
        "every": 7,
        "average": 4,
        "optimizer": {"type": "SGD", "rate": 0.25, "decay": 0.5},
        "schedule": "Linear",
    }
    file.write_text(yaml.safe_dump({**preset, "rates": {"stack": 0.5}}))
    config = Config.load(str(file), ["train.eval_every=8", "train.optimizer.lr=0.5"])
    assert config.tree["train"] == {
        "eval_every": 8,
        "average_checkpoints": 4,
        "optimizer": {"type": "SGD", "lr": 0.5, "weight_decay": 0.5},
        "schedule": "LinearDecay",
    }
    trainer = build_options(config)
    assert trainer.eval_every == 8
    assert isinstance(trainer.schedule, LinearDecay)
    assert FinetuneOptions(config).lr_factors == {"stack": 0.5}


def test_an_old_report_of_initial_weights_is_read():
    old = {
        "run": "r",
        "sha256": "s",
        "taken": ["a"],
        "new": ["b"],
        "left": ["c"],
        "frozen": [],
        "adapted": [],
    }
    report = InitReport.from_json(old)
    assert report == InitReport("r", "s", ["a"], ["b"], ["c"], [], [])
    assert InitReport.from_json(report._asdict()) == report


def test_old_keys_of_a_checkpoint_are_read():
    old = {"step": 3, "every": 5, "worse": 1, "promise": None}
    present = {"step": 3, "eval_every": 5, "evals_since_best": 1, "estimate": None}
    assert compat.upgrade_json("state.json", old) == present
