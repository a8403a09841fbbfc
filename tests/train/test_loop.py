"""The loop: resuming gives the same bits, splitting a batch the same step, and what is not finite poisons nothing."""

import json
import math
import signal
from pathlib import Path

import pytest
import torch

import seqloom
from seqloom import text as start
from seqloom.files import sha256
from seqloom.run import load
from seqloom.run_config import Config
from seqloom.run_files import read_metrics
from seqloom.train.checkpoint import latest
from seqloom.train.loop import Diverged, Stopped, TrainLoop
from seqloom.train.plan import RunPlan

GPT = [
    "model.dim=16",
    "model.stack.layers=1",
    "model.stack.heads=2",
    "batches.width=16",
    "model.stack.position.length=16",
    "model.stack.dropout=0.1",
]
LSTM = ["model.dim=12", "model.stack.dim=16", "batches.width=9", "batches.batch=5", "model.dropout=0.1"]
PAIRS = ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=120", "batches.shuffle_pool=64"]
FAMILIES = {
    "gpt": GPT,
    "lstm-lm": LSTM,
    "transformer": [
        *PAIRS,
        *(f"model.{side}.{part}" for side in ("encoder", "decoder") for part in ("layers=1", "heads=2")),
    ],
    "rnnsearch": [*PAIRS, "model.encoder.dim=8", "model.decoder.dim=16", "model.decoder.attention.dim=8"],
}
SHORT = [
    "train.steps=24",
    "train.eval_every=8",
    "train.save_every=5",
    "train.log_every=3",
    "train.average_checkpoints=0",
]


def files(name: str, text: Path, parallel: list[Path]) -> list[str]:
    return [str(text)] if name in ("gpt", "lstm-lm") else [str(path) for path in parallel]


def fingerprint(folder: Path) -> dict[str, str]:
    """The bits a run ends with: final weights, newest weights and moments, metrics."""
    last = latest(folder / "checkpoints", print)
    parts = [folder / "model.safetensors", folder / "metrics.jsonl"]
    parts += [last.path / f"{name}.safetensors" for name in ("model", "optim", "rank-0")]
    return {str(path.relative_to(folder)): sha256(path) for path in parts}


class Cut(Exception):
    """Stands for the power going off."""


@pytest.mark.parametrize("name", FAMILIES)
def test_a_run_that_is_cut_anywhere_ends_with_the_same_bits(
    name: str, tmp_path: Path, text: Path, parallel: list[Path], monkeypatch
) -> None:
    options, data = [*FAMILIES[name], *SHORT], files(name, text, parallel)
    seqloom.fit(name, *options, data=data, out=tmp_path / "whole", progress=False)
    whole = fingerprint(tmp_path / "whole")
    advance = TrainLoop.train_step
    for cuts in (
        [3],
        [5, 6],
        [17],
        [23, 2],
    ):  # steps after which the power goes off, each counted from the last start
        folder = tmp_path / f"cut-{cuts}"
        for cut in cuts:
            steps = iter(range(cut))

            def failing(self, *arguments, steps=steps):
                if next(steps, None) is None:
                    raise Cut
                return advance(self, *arguments)

            monkeypatch.setattr(TrainLoop, "train_step", failing)
            with pytest.raises(Cut):
                seqloom.fit(name, *options, data=data, out=folder, progress=False)
        monkeypatch.setattr(TrainLoop, "train_step", advance)
        seqloom.fit(name, *options, data=data, out=folder, progress=False)
        assert fingerprint(folder) == whole


def test_the_same_seed_gives_the_same_bits_and_another_does_not(tmp_path: Path, text: Path) -> None:
    prints = []
    for number, seed in enumerate([1, 1, 2]):
        seqloom.fit(
            "gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / str(number), seed=seed, progress=False
        )
        prints.append(fingerprint(tmp_path / str(number)))
    assert prints[0] == prints[1] and prints[0]["model.safetensors"] != prints[2]["model.safetensors"]


def test_accumulating_small_batches_is_one_big_batch(tmp_path: Path, text: Path) -> None:
    still = ["model.stack.dropout=0", "train.optimizer={type: SGD, lr: 0.1}", "train.clip=NoClip"]
    big = seqloom.fit(
        "gpt", *GPT, *SHORT, *still, "batches.batch=6", data=[str(text)], out=tmp_path / "big", progress=False
    )
    small = seqloom.fit(
        "gpt",
        *GPT,
        *SHORT,
        *still,
        "batches.batch=2",
        "train.accumulate=3",
        data=[str(text)],
        out=tmp_path / "small",
        progress=False,
    )
    for ours, theirs in zip(big.model.parameters(), small.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, atol=1e-6)


def poison(monkeypatch, when, value: float) -> None:
    """Put a bad number into the gradient at the given steps."""
    from seqloom.train.options import GlobalNorm

    call, seen = GlobalNorm.__call__, iter(range(10**6))

    def poisoned(self, gradients):
        if next(seen) in when:
            gradients[0].view(-1)[0] = value
        return call(self, gradients)

    monkeypatch.setattr(GlobalNorm, "__call__", poisoned)
    monkeypatch.setattr(RunPlan, "begin", lambda self, elapsed: None)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_gradient_that_is_not_finite_is_skipped_and_said(
    value: float, tmp_path: Path, text: Path, monkeypatch
) -> None:
    poison(monkeypatch, {2, 3, 9}, value)
    run = seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    assert [line["step"] for line in read_metrics(tmp_path / "run") if line.get("event") == "skipped"] == [
        3,
        4,
        10,
    ]
    assert all(parameter.isfinite().all() for parameter in run.model.parameters())


def test_five_bad_steps_in_a_row_end_the_run_with_its_healthy_checkpoint(
    tmp_path: Path, text: Path, monkeypatch
) -> None:
    poison(monkeypatch, range(12, 100), math.nan)
    with pytest.raises(Diverged, match=r"optimizer\.lr"):
        seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    kept = latest(tmp_path / "run" / "checkpoints", print)
    assert kept.step >= 10 and all(tensor.isfinite().all() for tensor in kept.tensors("model").values())


def test_early_stopping_keeps_the_best(tmp_path: Path, text: Path) -> None:
    options = [
        "train.optimizer={type: SGD, lr: 0.5}",
        "train.clip=NoClip",
        "train.patience=2",
        "train.steps=4000",
        "train.eval_every=4",
    ]
    seqloom.fit("gpt", *GPT, *options, data=[str(text)], out=tmp_path / "run", progress=False)
    valid = [
        (line["valid_loss"], line["step"]) for line in read_metrics(tmp_path / "run") if "valid_loss" in line
    ]
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    best, step = min(valid)
    assert results["best_step"] == step and results["steps"] == step + 8 < 4000
    assert results["valid"][0]["value"] == pytest.approx(best, rel=1e-6)


def test_averaging_is_the_mean_of_the_newest_checkpoints(tmp_path: Path, text: Path) -> None:
    options = [*SHORT, "train.average_checkpoints=3"]
    run = seqloom.fit("gpt", *GPT, *options, data=[str(text)], out=tmp_path / "run", progress=False)
    from safetensors.torch import load_file

    kept = [
        load_file(tmp_path / "run" / "checkpoints" / f"step-{step:08d}" / "model.safetensors")
        for step in (24, 20, 15)
    ]
    for name, parameter in run.model.named_parameters():
        assert torch.allclose(parameter, torch.stack([one[name] for one in kept]).mean(0), atol=1e-6)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_saves_and_the_run_goes_on_to_the_same_bits(
    number: int, tmp_path: Path, text: Path, monkeypatch
) -> None:
    seqloom.fit("lstm-lm", *LSTM, *SHORT, data=[str(text)], out=tmp_path / "whole", progress=False)
    advance = TrainLoop.train_step

    def signalled(self, *arguments):
        result = advance(self, *arguments)
        if self.step == 12:
            signal.raise_signal(number)
        return result

    monkeypatch.setattr(TrainLoop, "train_step", signalled)
    with pytest.raises(Stopped) as stopped:
        seqloom.fit("lstm-lm", *LSTM, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    assert stopped.value.code == 128 + number and latest(tmp_path / "run" / "checkpoints", print).step == 13
    monkeypatch.setattr(TrainLoop, "train_step", advance)
    seqloom.fit("lstm-lm", *LSTM, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


def test_a_finished_run_loads_and_predicts_alike(tmp_path: Path, text: Path) -> None:
    run = seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    again = load(tmp_path / "run")
    ids, _ = run.encode(["the old king"])
    assert torch.equal(run.model(ids)[0], again.model(ids)[0])


def test_a_damaged_final_weight_is_named(tmp_path: Path, text: Path) -> None:
    seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    path = tmp_path / "run" / "model.safetensors"
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"model\.safetensors.*damaged"):
        load(tmp_path / "run")


def test_a_damaged_checkpoint_falls_back_and_the_bits_are_the_same(
    tmp_path: Path, text: Path, monkeypatch, caplog
) -> None:
    seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "whole", progress=False)
    advance = TrainLoop.train_step

    def failing(self, *arguments):
        if self.step == 18:
            raise Cut
        return advance(self, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)
    with pytest.raises(Cut):
        seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    monkeypatch.setattr(TrainLoop, "train_step", advance)
    last = latest(tmp_path / "run" / "checkpoints", print)
    path = last.path / "optim.safetensors"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 8
    path.write_bytes(content)
    seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run")
    assert "optim.safetensors" in caplog.text
    assert fingerprint(tmp_path / "run") == fingerprint(tmp_path / "whole")


def test_another_config_or_other_data_is_refused_by_name(tmp_path: Path, text: Path) -> None:
    seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    with pytest.raises(ValueError, match=r"model\.dim: 16 → 32"):
        seqloom.fit(
            "gpt", *GPT, *SHORT, "model.dim=32", data=[str(text)], out=tmp_path / "run", progress=False
        )
    text.write_text(text.read_text().replace("king", "ring"))
    with pytest.raises(ValueError, match="training data is not what the run began with"):
        seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)


@pytest.mark.parametrize("budget, steps", [("train.tokens=2000", 10), ("train.flops={}", 7)])
def test_tokens_and_flops_become_steps(tmp_path: Path, text: Path, budget: str, steps: int) -> None:
    """A step predicts 20 windows of 10 tokens; a token's FLOPs are those that the promise counts."""
    options = [*GPT, "batches.width=10", "batches.batch=20", "train.eval_every=1000"]
    first = seqloom.fit(
        "gpt", *options, "train.steps=1", data=[str(text)], out=tmp_path / "one", progress=False
    ).results
    asked = budget.format(steps * 200.0 * first.flops_per_token * 1.01)
    results = seqloom.fit(
        "gpt", *options, asked, data=[str(text)], out=tmp_path / "run", progress=False
    ).results
    assert first.tokens == 200 and results.steps == steps and results.tokens == 200 * steps
    shown = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert [one["step"] for one in shown if "valid_loss" in one] == list(
        range(1, steps + 1)
    )  # few steps, looked at often: a curve has ten points


def test_two_budgets_are_one_too_many(tmp_path: Path, text: Path) -> None:
    with pytest.raises(ValueError, match=r"several budgets \(minutes, tokens\); give one of steps, minutes"):
        seqloom.fit(
            "gpt",
            *GPT,
            "train.minutes=1",
            "train.tokens=5",
            data=[str(text)],
            out=tmp_path / "run",
            progress=False,
        )


def test_the_promise_counts_parameters_and_flops(tmp_path: Path, text: Path) -> None:
    seqloom.fit("gpt", *GPT, *SHORT, data=[str(text)], out=tmp_path / "run", progress=False)
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    recipe = Config.load(str(tmp_path / "run"))
    model = recipe.model(start.tokenizer_file.load(tmp_path / "run" / "tokenizer.json").get_vocab_size())
    assert (
        results["parameters"]["total"]
        == sum(results["parameters"]["by_part"].values())
        == sum(p.numel() for p in model.parameters())
    )
    matrices = sum(
        p.numel() for name, p in model.named_parameters() if p.dim() == 2 and "position" not in name
    )
    scores = 2 * 16 * 16  # q·k and α·v: width × dim multiply-adds each, for one layer
    assert results["flops_per_token"] == pytest.approx(3 * 2 * (matrices + scores), rel=0.01)
    assert results["promised"]["seconds"] > 0 and results["actual"]["memory"] > 0


def test_threads_hold_for_one_training_only(tmp_path: Path, text: Path) -> None:
    before = torch.get_num_threads()
    options = [*GPT, "train.steps=1", "train.eval_every=1"]
    seqloom.fit("gpt", *options, data=[str(text)], out=tmp_path / "run", threads=before + 1, progress=False)
    state = latest(tmp_path / "run" / "checkpoints", print).metadata
    assert state["threads"] == before + 1
    assert torch.get_num_threads() == before
