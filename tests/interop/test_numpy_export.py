"""A folder that needs numpy alone gives the logits of the model, without torch."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
from seqloom.errors import UserError
from seqloom.interop import export_checkpoint
from seqloom.interop.numpy_runner import NumpyModel

SMALL = ("model.dim=32", "model.stack.layers=2")
HEADS = ("model.stack.heads=4",)
LSTM = ("model.dim=24", "model.stack.dim=32", "model.stack.layers=2")
CASES = {
    "gpt": ("gpt", (*SMALL, *HEADS)),
    "gpt2": (
        "gpt",
        (
            *SMALL,
            *HEADS,
            "model.stack.feedforward={type: FeedForward, activation: gelu_tanh}",
            "model.stack.bias=true",
        ),
    ),
    "llama": ("llama", (*SMALL, *HEADS, "model.stack.attention.kv_heads=2", "tokenizer=Characters")),
    "untied": (
        "llama",
        (
            *SMALL,
            *HEADS,
            "model.stack.attention.kv_heads=4",
            "tokenizer=Characters",
            "model.tied=false",
            "model.output={type: Output, bias: false}",
        ),
    ),
    "lstm": ("lstm-lm", LSTM),
    "gru": ("lstm-lm", (*LSTM, "model.stack.cell={type: GRU}")),
    "gru inside": ("lstm-lm", (*LSTM, "model.stack.cell={type: GRU, reset: inside, bias: minus}")),
    "vanilla": ("lstm-lm", (*LSTM, "model.stack.cell={type: Vanilla}", "model.tied=false")),
}


def fit(name: str, folder: Path) -> seqloom.Run:
    preset, changes = CASES[name]
    text = folder / "input.txt"
    text.write_text("the king sees the queen. 12 dogs run!\n" * 40, encoding="utf-8")
    return seqloom.fit(preset, *changes, data=str(text), out=folder / "run", steps=3, progress=False)


@pytest.mark.parametrize("name", CASES)
def test_the_logits_are_those_of_the_model(name: str, tmp_path: Path) -> None:
    run = fit(name, tmp_path)
    torch.manual_seed(0)
    with torch.no_grad():
        for weight in run.model.parameters():  # large ones, so that every part matters
            weight.add_(0.3 * torch.randn_like(weight))
    folder = export_checkpoint(run, tmp_path / "plain", "numpy")
    ids, _ = run.encode(["the queen sees 12 dogs"])
    with torch.no_grad():
        expected = run.model(ids)[0][0].numpy()
    found = NumpyModel(folder).logits(ids[0].tolist())
    assert np.abs(expected).max() > 0.5
    assert np.abs(found - expected).max() < 1e-4 * np.abs(expected).max()


def test_the_program_runs_without_torch(tmp_path: Path) -> None:
    run = fit("gpt", tmp_path)
    folder = export_checkpoint(run, tmp_path / "plain", "numpy")
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')", encoding="utf-8")
    ids = run.encode(["the"])[0][0].tolist()

    def program(*arguments: str) -> str:
        command = [sys.executable, str(folder / "run.py"), *arguments]
        environment = {"PYTHONPATH": str(tmp_path)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout

    expected = seqloom.generate(run, "the", temperature=0, max_tokens=8)
    assert program("the", "--tokens", "8") == f"the{expected.text}\n"
    new = program("--ids", *map(str, ids), "--tokens", "8").split()
    assert list(map(int, new)) == list(expected.outputs[0].ids)
    scores = np.array(program("--ids", *map(str, ids), "--logits").split(), float)
    with torch.no_grad():
        assert np.abs(scores - run.model(torch.tensor([ids]))[0][0, -1].numpy()).max() < 1e-3
    assert json.loads((folder / "model.json").read_text("utf-8"))["kind"] == "gpt2"


def test_other_models_say_why(tmp_path: Path) -> None:
    text = tmp_path / "input.txt"
    text.write_text("the king sees the queen\n" * 40, encoding="utf-8")
    changes = (*SMALL, *HEADS, "model.stack.position={type: ALiBi}")
    run = seqloom.fit("gpt", *changes, data=str(text), out=tmp_path / "run", steps=1, progress=False)
    with pytest.raises(UserError, match="numpy runs a GPT-2, a Llama or an RNN"):
        export_checkpoint(run, tmp_path / "plain", "numpy")
    assert not (tmp_path / "plain").exists()
