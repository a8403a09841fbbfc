"""`train.watch=gradients`: what it writes is what autograd gives, and the training does not notice it, also after a kill."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

import seqloom
import seqloom.inspect
from seqloom.batches.batch import TokenBatch
from seqloom.cli import main
from seqloom.errors import UserError
from seqloom.files import sha256
from seqloom.models.language_model import LanguageModel
from seqloom.nn.cells import Vanilla
from seqloom.nn.recurrent import RNN
from seqloom.objectives.likelihood import next_token
from seqloom.train.checkpoint import latest
from seqloom.train.gradient_watch import GradientWatch, read_watched
from seqloom.train.loop import TrainLoop
from seqloom.train.options import TrainJob, TrainOptions

PAIRS = ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=120", "batches.shuffle_pool=64"]
FAMILIES = {
    "gpt": [
        "model.dim=16",
        "model.stack.layers=2",
        "model.stack.heads=2",
        "batches.width=16",
        "model.stack.dropout=0.1",
    ],
    "lstm-lm": [
        "model.dim=12",
        "model.stack.dim=16",
        "batches.width=9",
        "batches.batch=5",
        "model.dropout=0.1",
    ],
    "bert-small": [
        "tokenizer.size=120",
        "model.dim=16",
        "model.stack.layers=1",
        "batches.width=16",
        "batches.batch=4",
    ],
    "elmo": ["tokenizer.size=300", "model.dim=16", "batches.width=9", "batches.batch=4"],
    "rnnsearch": [*PAIRS, "model.encoder.dim=8", "model.decoder.dim=16", "model.decoder.attention.dim=8"],
}
SHORT = ["train.steps=12", "train.eval_every=4", "train.save_every=3", "train.log_every=3"]


def data(name: str, text: Path, parallel: list[Path]) -> list[str]:
    return [str(path) for path in parallel] if name == "rnnsearch" else [str(text)]


def bits(folder: Path) -> dict[str, str]:
    """Final weights, newest weights, moments and random state, and metrics."""
    last = latest(folder / "checkpoints", print)
    parts = [folder / "model.safetensors", folder / "metrics.jsonl"]
    parts += [last.path / f"{name}.safetensors" for name in ("model", "optim", "rank-0")]
    return {str(path.relative_to(folder)): sha256(path) for path in parts}


class PowerCut(Exception):
    """Stands for the power going off."""


@pytest.mark.parametrize("name", FAMILIES)
def test_the_training_is_the_same_with_it_and_after_a_cut(
    name: str, tmp_path: Path, text: Path, parallel: list[Path], monkeypatch
):
    options = {"data": data(name, text, parallel), "progress": False}
    changes = [*FAMILIES[name], *SHORT]
    seqloom.fit(name, *changes, out=tmp_path / "without", **options)
    seqloom.fit(name, *changes, "train.watch=gradients", out=tmp_path / "with", **options)
    assert bits(tmp_path / "with") == bits(tmp_path / "without")
    steps = read_watched(tmp_path / "with")
    assert [one.step for one in steps] == [4, 8, 12]
    assert all(math.isfinite(layer.norm) and layer.norm > 0 for one in steps for layer in one.layers)
    assert bool(steps[0].curves) == (name != "bert-small") and steps[0].clip is not None
    assert steps[0].layers != steps[-1].layers
    train_step = TrainLoop.train_step

    def failing(self, *arguments):
        if self.step == 10:
            raise PowerCut
        return train_step(self, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(PowerCut):
        seqloom.fit(name, *changes, "train.watch=gradients", out=tmp_path / "cut", **options)
    monkeypatch.undo()
    (tmp_path / "cut" / "gradients.jsonl").open("a").write(
        '{"step": 12, "cur'
    )  # cut off while it was written
    seqloom.fit(name, *changes, "train.watch=gradients", out=tmp_path / "cut", **options)
    assert bits(tmp_path / "cut") == bits(tmp_path / "without")
    assert sha256(tmp_path / "cut" / "gradients.jsonl") == sha256(tmp_path / "with" / "gradients.jsonl")


def test_a_killed_process_resumes_to_the_same_bits(tmp_path: Path, text: Path):
    command = [
        sys.executable,
        "-m",
        "seqloom",
        "train",
        "lstm-lm",
        *FAMILIES["lstm-lm"],
        "train.watch=gradients",
    ]
    command += [
        "train.steps=200",
        "train.eval_every=10",
        "train.save_every=5",
        "--data",
        str(text),
        "--threads",
        "1",
    ]
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    folder = tmp_path / "killed"
    with subprocess.Popen([*command, "--out", str(folder)], stderr=subprocess.DEVNULL) as process:
        file = folder / "gradients.jsonl"
        while process.poll() is None and not (file.exists() and file.read_bytes().count(b"\n") >= 3):
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL and not (folder / "results.json").exists()
    subprocess.run([*command, "--out", str(folder)], check=True, capture_output=True)
    assert bits(folder) == bits(tmp_path / "whole")
    assert (folder / "gradients.jsonl").read_bytes() == (tmp_path / "whole" / "gradients.jsonl").read_bytes()


class OneBatch:
    """Held-out data of one batch."""

    def __init__(self, batch: TokenBatch):
        self.batch = batch

    def sequential(self, rank: int = 0, world_size: int = 1):
        yield self.batch


def test_the_curve_is_the_product_of_jacobians(tmp_path: Path):
    """∂ℓₜ/∂hₜ₋ₖ = Uᵀ D(hₜ₋ₖ₊₁) … Uᵀ D(hₜ) ∂ℓₜ/∂hₜ for h = tanh(W x + U h + b), D(h) = diag(1 − h²)   [D14], in numpy."""
    torch.manual_seed(0)
    model = LanguageModel(11, 6, partial(RNN, cell=Vanilla, dim=6), tied=False)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    ids = torch.randint(11, (2, 13))
    batch = TokenBatch(ids[:, :-1], ids[:, 1:], torch.ones(2, 12, dtype=torch.bool))
    job = TrainJob(tmp_path, model.train(), next_token, OneBatch(batch), OneBatch(batch))
    state = torch.get_rng_state()
    GradientWatch(TrainOptions(), job, 0).measure(7, 99)
    assert torch.equal(state, torch.get_rng_state()) and model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    [found] = read_watched(tmp_path)
    assert (found.step, found.tokens) == (7, 99)
    [curve] = [one for one in found.curves if one.value.endswith(".h")]
    weights = {name: value.detach().double().numpy() for name, value in model.named_parameters()}
    [u] = [value for name, value in weights.items() if name.endswith("cell.hidden")]
    with torch.no_grad():
        hs = model.features(batch.ids)[0].double().numpy()  # the outputs of the only layer
    table, bias = weights["output.table"], weights["output.bias"]
    sums: dict[int, list[float]] = {}
    for row in range(2):
        for t in np.unique(np.linspace(6, 11, 8).astype(int)):
            logits = table @ hs[row, t] + bias
            p = np.exp(logits - logits.max())
            p /= p.sum()
            p[batch.targets[row, t]] -= 1
            gradient = table.T @ p
            for k in range(t + 1):
                sums.setdefault(k, []).append(float(np.linalg.norm(gradient)))
                gradient = u.T @ ((1 - hs[row, t - k] ** 2) * gradient)
    assert curve.counts == tuple(len(sums[k]) for k in sorted(sums))
    assert curve.norms == pytest.approx([np.mean(sums[k]) for k in sorted(sums)], rel=1e-4)
    [matrix] = found.matrices
    assert matrix.spectral_radius == pytest.approx(np.abs(np.linalg.eigvals(u)).max(), rel=1e-5)


def test_the_verb_shows_a_training_that_is_not_finished(tmp_path: Path, text: Path, capsys, monkeypatch):
    train_step = TrainLoop.train_step

    def failing(self, *arguments):
        if self.step == 10:
            raise PowerCut
        return train_step(self, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    options = {"data": [str(text)], "out": tmp_path / "run", "progress": False}
    with pytest.raises(PowerCut):
        seqloom.fit("lstm-lm", *FAMILIES["lstm-lm"], *SHORT, "train.watch=gradients", **options)
    main(["inspect", "gradients", str(tmp_path / "run")])
    printed = capsys.readouterr().out
    assert "2 evaluations, step 4 to 8" in printed and "spectral radius" in printed
    page = (tmp_path / "run" / "reports" / "gradients.html").read_text("utf-8")
    assert "step 8" in page and "<svg" in page and "after clipping" in page and "https://" not in page
    main(["inspect", "gradients", str(tmp_path / "run"), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert [one["step"] for one in report["steps"]] == [4, 8]
    assert (
        report["steps"][0]["curves"]
        == seqloom.inspect.watched_gradients(tmp_path / "run").to_dict()["steps"][0]["curves"]
    )


def test_a_run_that_was_not_watched_says_so(tmp_path: Path, text: Path):
    with pytest.raises(UserError, match=r"train with train\.watch=gradients"):
        read_watched(tmp_path)
    (tmp_path / "gradients.jsonl").write_text(json.dumps({"step": 1}) + "\n", "utf-8")
    with pytest.raises(UserError, match=r"gradients\.jsonl:1: damaged"):
        read_watched(tmp_path)
    with pytest.raises(UserError, match=r"train\.watch"):
        seqloom.fit("gpt", "train.watch=losses", data=str(text), out=tmp_path / "x")
