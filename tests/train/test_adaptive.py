"""A language model with an adaptive output, from its config to its text."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from seqloom.cli import main
from seqloom.equations import explain
from seqloom.evaluation import total_nll
from seqloom.run import load
from seqloom.text.store import build

WORDS = [
    "tokenizer=Words",
    "model.dim=12",
    "model.stack.dim=12",
    "batches.width=9",
    "batches.batch=5",
    "train.steps=12",
    "train.eval_every=6",
]
FEW = "model.output={type: AdaptiveSoftmax, cutoffs: [8, 16]}"


def ran(arguments: list[str]) -> int:
    try:
        main(arguments)
    except SystemExit as left:
        return int(left.code or 0)
    return 0


@pytest.mark.parametrize("tied", ["true", "false"])
def test_train_evaluate_write(tmp_path: Path, text: Path, tied: str, capsys: pytest.CaptureFixture):
    """What is measured by groups is the likelihood under the distribution that the text is written with."""
    folder = tmp_path / "run"
    assert (
        ran(
            ["train", "lstm-lm", "--data", str(text), "--out", str(folder), *WORDS, FEW, f"model.tied={tied}"]
        )
        == 0
    )
    run = load(folder)
    source = run.config.data(build(run.config.reader([str(text)]), run.tokenizer))
    total, count = total_nll(run.model, run.config.objective, source.sequential())
    expected, state = 0.0, None
    with torch.no_grad():
        for batch in source.sequential():
            log_p, state = run.model(batch.ids, state if batch.carry_state else None)
            torch.testing.assert_close(log_p.exp().sum(-1), torch.ones(log_p.shape[:2]))
            expected -= float(log_p.gather(2, batch.targets[..., None])[..., 0][batch.mask].sum())
    assert count > 1000 and total == pytest.approx(expected, rel=1e-5)
    capsys.readouterr()
    assert ran(["generate", str(folder), "the king", "--length", "5", "--greedy"]) == 0
    assert len(capsys.readouterr().out.split()) > 2


def test_smoothing_is_refused_in_one_sentence(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture):
    assert (
        ran(
            [
                "train",
                "lstm-lm",
                "--data",
                str(text),
                "--out",
                str(tmp_path / "run"),
                *WORDS,
                FEW,
                "objective.smoothing=0.1",
            ]
        )
        == 2
    )
    assert "set objective.smoothing=0" in capsys.readouterr().err


def test_its_equation_is_explained():
    parts = {part.name: part for part in explain("lstm-lm", FEW, "model.tied=false", vocabulary=40).parts}
    assert (
        "softmax(W₀ h)[w]" in parts["AdaptiveSoftmax"].equation[0] and parts["AdaptiveSoftmax"].parameters > 0
    )
