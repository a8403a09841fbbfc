"""What a training will cost, told before it begins."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom import nn
from seqloom.cli import main
from seqloom.run_config import Config
from seqloom.train.preflight import check

TINY = ["model.dim=8", "model.stack.heads=2", "model.stack.layers=1", "batches.width=8", "batches.batch=2"]


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text.txt"
    path.write_text("to be or not to be, that is the question\n" * 40, "utf-8")
    return path


def test_costs_are_those_of_the_training(text: Path, tmp_path: Path):
    found = check("gpt", *TINY, "train.steps=4", data=str(text))
    run = seqloom.fit("gpt", *TINY, "train.steps=4", data=[str(text)], out=tmp_path / "run", progress=False)
    assert (found.parameters, found.by_part) == (
        run.results.parameters.total,
        run.results.parameters.by_part,
    )
    assert found.flops_per_token == run.results.flops_per_token and found.steps == run.results.steps == 4
    assert found.vocabulary == run.tokenizer.get_vocab_size() and found.seconds is not None
    assert found.train_tokens is not None and found.valid_tokens is not None
    assert found.train_tokens + found.valid_tokens == len(text.read_text("utf-8"))
    assert found.batch == {"batches.batch": 2} and not (tmp_path / "runs").exists()


def test_more_memory_allows_a_larger_batch(text: Path):
    small, large = (check("gpt", *TINY, data=str(text), memory=memory) for memory in (4e9, 8e9))
    assert small.largest_batch is not None and large.largest_batch is not None
    assert 2 < small.largest_batch < large.largest_batch
    tight = check("gpt", *TINY, data=str(text), memory=1e6)
    assert tight.largest_batch == 0 and "make the model or the batch smaller" in tight.warnings[0]


def test_without_data_the_sizes_are_known(caplog: pytest.LogCaptureFixture):
    found = check("gpt2", "size=355M", memory=4e9)
    with torch.device("meta"):
        model = Config.load("gpt2", ["size=355M"]).model(50257)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert found.memory == 16 * found.parameters and found.seconds is found.largest_batch is None
    assert "4 GB can be used" in found.warnings[0] and found.warnings[0] in caplog.text
    changed = check(Config.preset("gpt"), {"model.stack.norm": nn.RMSNorm})
    assert changed.parameters == check("gpt", "model.stack.norm=RMSNorm").parameters


def test_a_notebook_shows_it_without_network(text: Path):
    shown = check("gpt", *TINY, data=str(text))._repr_html_()
    assert "training tokens" in shown and "http" not in shown and len(shown) < 2_000_000


def test_the_verb_prints_lines_and_snake_case_json(text: Path, capsys: pytest.CaptureFixture):
    main(["check", "gpt", *TINY, "--data", str(text), "--memory", "4GB", "--json"])
    report = json.loads(capsys.readouterr().out)
    assert {
        "parameters",
        "by_part",
        "train_tokens",
        "flops_per_token",
        "memory",
        "seconds",
        "largest_batch",
    } <= set(report)
    assert all(key == key.lower().replace(" ", "_") for key in report)
    main(["check", "gpt", *TINY, "--data", str(text)])
    shown = dict(line.rsplit(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert shown["parameters"] == f"{report['parameters']:,}" and shown["batches.batch"] == "2"
    main(["check", "gpt2", "--memory", "1GB"])
    out, err = capsys.readouterr()
    assert "give --data" in out and "warning: a step needs" in err


def test_code_of_the_user_adds_parts(text: Path, tmp_path: Path, capsys: pytest.CaptureFixture):
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from seqloom.nn.cells import Vanilla\n\n\nclass MyCell(Vanilla):\n    'h = tanh(W x + U h + b)'\n",
        "utf-8",
    )
    command = ["check", "lstm-lm", "model.stack.cell=MyCell", "model.dim=8", "model.stack.dim=8"]
    main([*command, "--code", str(mine)])
    assert "parameters" in capsys.readouterr().out
    for words, sentence in (
        (command, "no part is called 'MyCell'"),
        ([*command, "--code", str(tmp_path / "none.py")], "none.py: not a Python file"),
        ([*command, "--code", str(text)], "text.txt: not a Python file"),
    ):
        with pytest.raises(SystemExit) as stop:
            main(words)
        assert stop.value.code == 2 and sentence in capsys.readouterr().err
    mine.write_text("import nothing_of_the_kind\n", "utf-8")
    with pytest.raises(SystemExit):
        main([*command, "--code", str(mine)])
    assert "mine.py: cannot be run (ModuleNotFoundError" in capsys.readouterr().err


def test_a_labelled_table_counts_texts_and_their_tokens(tmp_path: Path):
    """40 lines of 3 words; the label is the last column and counts as no token."""
    file = tmp_path / "reviews.tsv"
    file.write_text("".join(f"text number {i}\t{'pos' if i % 2 else 'neg'}\n" for i in range(40)))
    found = check("classifier", "model.dim=8", "train.steps=2", data=str(file))
    assert (found.train_records or 0) + (found.valid_records or 0) == 40
    assert (found.train_tokens or 0) + (found.valid_tokens or 0) >= 120
    rows = dict(found.rows())
    assert "MFLOP a label" in rows and "largest batches.batch_tokens" in rows
    assert rows["training records"] == str(found.train_records)
