"""Budgets become steps once, resumed runs keep them, and a finished run can be lengthened."""

from __future__ import annotations

import json
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

import seqloom
from seqloom import evaluation, results
from seqloom.cli import main
from seqloom.config_source import config_of
from seqloom.errors import ConfigError, RunError
from seqloom.files import sha256
from seqloom.run_config import Config
from seqloom.run_files import read_metrics, read_results
from seqloom.train import budget, loop, plan
from seqloom.train.checkpoint import latest
from seqloom.train.loop import TrainLoop
from seqloom.train.options import Constant, Cosine, InverseSquareRoot, TrainOptions
from seqloom.train.plan import Pace, Phase, StepTimer, read_plan, steps_in_time
from seqloom.train.run_folder import budget_value

GPT = [
    "model.dim=16",
    "model.stack.layers=1",
    "model.stack.heads=2",
    "batches.width=16",
    "model.stack.position.length=16",
    "train.log_every=3",
    "train.eval_every=8",
]
SMALL = {"model.dim": 8, "model.stack.dim": 8, "batches.width": 8, "batches.batch": 4}
PAIRS = ["tokenizer.size=300", "model.dim=16", "batches.batch_tokens=120", "batches.shuffle_pool=64"]


class Cut(Exception):
    """Stands for a process that is killed."""


class Clock:
    """A clock that runs only while training steps are taken, in place of the machine's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, seconds: float):
        self.now, self.seconds = 0.0, seconds
        monkeypatch.setattr(time, "perf_counter", lambda: self.now)
        step = TrainLoop.train_step

        def timed(loop_: TrainLoop, *arguments):
            self.now += self.seconds
            return step(loop_, *arguments)

        monkeypatch.setattr(TrainLoop, "train_step", timed)
        # The rehearsal believes that steps are twice as slow as they are.
        monkeypatch.setattr(budget, "seconds_per_step", lambda *_: 2 * seconds)


def bits(folder: Path) -> dict[str, str]:
    last = latest(folder / "checkpoints", print)
    paths = [folder / "model.safetensors", folder / "metrics.jsonl", folder / "plan.json"]
    paths += [last.path / f"{name}.safetensors" for name in ("model", "optim", "rank-0")]
    return {str(path.relative_to(folder)): sha256(path) for path in paths}


def cut_after(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Kills a training after so many steps; afterwards, trainings go on as always."""
    step, left = TrainLoop.train_step, iter(range(steps))

    def failing(self, *arguments):
        if next(left, None) is None:
            monkeypatch.setattr(TrainLoop, "train_step", step)
            raise Cut
        return step(self, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", failing)


def fit(text: Path, out: Path, *changes: str, **budget_) -> seqloom.Run:
    return seqloom.fit("gpt", *GPT, *changes, data=text, out=out, progress=False, **budget_)


def test_the_steps_of_a_budget_in_minutes_come_from_the_steps_themselves(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, 0.1)
    run = fit(text, tmp_path / "run", "train.eval_every=1000", minutes=0.5)
    assert run.results.steps == pytest.approx(300, abs=2)  # of 0.1 s; the rehearsal alone would say 150
    assert run.results.actual.seconds == pytest.approx(30, rel=0.02)
    assert read_plan(run.folder) == [
        Phase(0, {"minutes": 0.5}, run.results.steps, read_plan(run.folder)[0].eval_every)
    ]


@pytest.mark.parametrize("steps", [8, 40])
def test_a_resumed_run_keeps_the_steps_of_its_budget_though_the_machine_is_slower(
    steps: int, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is killed before its first checkpoint, or after it."""
    changes = ["train.eval_every=1000", "train.save_every=20", "train.schedule.warmup=30"]
    with monkeypatch.context() as patched:
        Clock(patched, 0.1)
        fit(text, tmp_path / "whole", *changes, minutes=0.1)
    with monkeypatch.context() as patched:
        Clock(patched, 0.1)
        cut_after(patched, steps)
        with pytest.raises(Cut):
            fit(text, tmp_path / "run", *changes, minutes=0.1)
    with monkeypatch.context() as patched:
        Clock(patched, 0.9)
        fit(text, tmp_path / "run", *changes, minutes=0.1)
    assert bits(tmp_path / "run") == bits(tmp_path / "whole")


@pytest.mark.parametrize("share", [0.3, 1.0])
def test_a_budget_in_minutes_is_kept_though_other_programs_have_come_since_the_rehearsal(
    share: float,
    tmp_path: Path,
    text: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = Clock(monkeypatch, 1.0)
    monkeypatch.setattr(
        budget, "seconds_per_step", lambda *_: 0.05
    )  # so a fifth of the steps would take 120 s
    monkeypatch.setattr(time, "thread_time", lambda: share * clock.now)
    run = fit(text, tmp_path / "run", "train.eval_every=1000", minutes=0.5)
    assert run.results.actual.seconds == pytest.approx(30, rel=0.05)
    busy = [message for message in caplog.messages if "gets 30 % of its time" in message]
    assert len(busy) == (share == 0.3)


@pytest.mark.parametrize("late", [False, True])
def test_a_budget_in_minutes_has_room_for_evaluations_at_the_speed_they_have_in_training(
    late: bool, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every held-out batch takes 0.02 s; what the rehearsal measured before, ten times too much, does not count."""
    clock = Clock(monkeypatch, 0.1)
    evaluate, steps = evaluation.sum_numbers, iter(range(10**6))

    def timed(model, objective, batches, *arguments):
        batches = list(batches)
        factor = 10 if late and next(steps) < 3 else 1  # the three calls of the rehearsal
        clock.now += 0.02 * factor * len(batches)
        return evaluate(model, objective, batches, *arguments)

    monkeypatch.setattr(evaluation, "sum_numbers", timed)
    monkeypatch.setattr(loop, "sum_numbers", timed)
    run = fit(text, tmp_path / "run", "train.eval_every=1000", minutes=0.5)
    batches = sum(1 for _ in run.config.data(run.config.stores(run.tokenizer)[1]).sequential())
    assert 0.02 * batches > 0.1
    assert run.results.actual.seconds == pytest.approx(30, rel=0.02)


def test_steps_in_time_leaves_room_for_evaluations() -> None:
    steps, eval_every = steps_in_time(100, Pace(10, 5.0, 0.1, 0.5), 250)
    evaluations = -(-steps // eval_every)
    assert evaluations == 10 or evaluations == 11
    assert 5 + (steps - 10) * 0.1 + evaluations * 0.5 == pytest.approx(100, abs=0.6)


@pytest.mark.parametrize(
    "schedule, expected",
    [(lambda: Cosine(30), 30), (lambda: Constant(30), 200), (lambda: InverseSquareRoot(5), 200)],
)
def test_only_steps_that_do_not_depend_on_the_end_are_timed(schedule, expected: int) -> None:
    options = TrainOptions(minutes=1, schedule=schedule)
    assert StepTimer.for_budget(options, 1000).stop == expected
    assert StepTimer.for_budget(TrainOptions(minutes=1, schedule=lambda: Cosine(0)), 1000) is None


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("name", ["gpt", "lstm-lm", "transformer", "bert-small"])
def test_an_epoch_is_one_pass_over_the_data(
    name: str, accumulate: int, tmp_path: Path, text: Path, parallel: list[Path]
) -> None:
    small = {
        "gpt": GPT,
        "lstm-lm": ["model.dim=8", "model.stack.dim=8", "batches.width=9"],
        "transformer": PAIRS,
        "bert-small": ["tokenizer.size=300", "model.dim=8", "model.stack.layers=1", "batches.width=16"],
    }
    data = parallel if name == "transformer" else text
    config = Config.load(name, small[name], [str(path) for path in ([data] if data is text else data)])
    train, _ = config.stores(config.tokenizer())
    batches = config.data(train)
    epochs = [
        cursor[0]
        for _, (_, cursor) in zip(range(batches.epoch_batches() + 1), batches.batches(), strict=False)
    ]
    assert set(epochs[:-1]) == {0} and epochs[-1] == 1
    run = seqloom.fit(
        name,
        *small[name],
        f"train.accumulate={accumulate}",
        data=data,
        out=tmp_path / "run",
        epochs=0.5,
        progress=False,
    )
    assert run.results.steps == -(-batches.epoch_batches() // (2 * accumulate)) or (
        run.results.steps - 1 < batches.epoch_batches() / (2 * accumulate) <= run.results.steps
    )


def test_a_finished_run_says_so_and_stays(tmp_path: Path, text: Path, capsys: pytest.CaptureFixture) -> None:
    folder = fit(text, tmp_path / "run", steps=16).folder
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    text.unlink()  # nothing is left to train, so no data is needed
    main(["train", str(folder), "--threads", "1"])
    output = capsys.readouterr()
    advice = f"{folder}: finished at step 16; lengthen it with: seqloom train {folder} --steps +16"
    assert advice in output.err.splitlines() and output.err.count("lengthen") == 1
    assert "lengthen" not in output.out and f"run: {folder}" in output.out  # stdout has results only
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before


def test_a_solved_run_is_not_told_to_take_more_steps(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "seqloom")
    table = tmp_path / "table.tsv"
    table.write_text("".join(f"good day {i}\tyes\nbad day {i}\tno\n" for i in range(20)), "utf-8")
    for _ in range(2):
        seqloom.fit("naive-bayes", data=table, out=tmp_path / "run", progress=False)
    assert caplog.messages[-1] == f"{tmp_path / 'run'}: finished; train it anew with --overwrite"


def test_a_budget_is_written_as_the_command_line_takes_it() -> None:
    values = {"minutes": (1 / 3, 2.0), "tokens": (1234567.0,), "steps": (32,)}
    written = [budget_value(name, value) for name, several in values.items() for value in several]
    assert written == ["20s", "2", "1234567", "32"]


def test_a_lengthened_run_goes_on_and_a_kill_changes_nothing(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "seqloom")
    for name in ("whole", "run"):
        fit(text, tmp_path / name, steps=16)
    first = read_metrics(tmp_path / "run")
    seqloom.fit(str(tmp_path / "whole"), steps="+16", progress=False)
    assert "lengthened to 32 steps in all (--steps +N adds N): the run now ends at step 32" in caplog.text
    assert any(line.startswith("goes on after step 16 of 32, about ") for line in caplog.messages)
    for cut in (3, 11):  # before and after the first checkpoint of the new steps
        cut_after(monkeypatch, cut)
        with pytest.raises(Cut):
            seqloom.fit(str(tmp_path / "run"), progress=False, **({"steps": "+16"} if cut == 3 else {}))
        assert config_of(tmp_path / "run")[0]["train"]["steps"] == 32
    run = seqloom.fit(str(tmp_path / "run"), progress=False)
    assert bits(tmp_path / "run") == bits(tmp_path / "whole")
    assert run.results.steps == 32 and read_metrics(tmp_path / "run")[: len(first)] == first
    assert [phase.start for phase in read_plan(run.folder)] == [0, 16]


def test_the_schedule_ends_where_the_lengthened_run_ends(tmp_path: Path, text: Path) -> None:
    fit(
        text, tmp_path / "run", "train.schedule={type: LinearDecay, warmup: 0}", "train.log_every=1", steps=10
    )
    seqloom.fit(str(tmp_path / "run"), steps=20, progress=False)
    rates = {line["step"]: line["lr"] for line in read_metrics(tmp_path / "run") if "lr" in line}
    lr = rates[1]
    for step in range(10):
        assert rates[step + 1] == pytest.approx(lr * (1 - step / 10))
        assert rates[step + 11] == pytest.approx(lr * (1 - (step + 10) / 20))


@pytest.mark.parametrize(
    "budget_, steps", [({"epochs": 4}, None), ({"tokens": 32 * 12 * 16}, 32), ({"minutes": "+1"}, None)]
)
def test_a_larger_budget_of_another_kind_lengthens_too(
    budget_, steps, tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(monkeypatch, 1.0)
    before = {"minutes": 0.5} if "minutes" in budget_ else {"steps": 16}
    run = fit(text, tmp_path / "run", "batches.batch=12", **before)
    longer = seqloom.fit(str(run.folder), progress=False, **budget_)
    batches = run.config.data(run.config.stores(run.tokenizer)[0])
    if "minutes" in budget_:
        assert longer.results.steps == pytest.approx(90, rel=0.05)
        assert config_of(run.folder)[0]["train"]["minutes"] == 1.5
        assert longer.results.promised.seconds == pytest.approx(90, rel=0.1)  # not those of the first phase
    else:
        assert longer.results.steps == (steps or 4 * batches.epoch_batches())


def test_an_unfinished_run_is_lengthened(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after(monkeypatch, 10)
    with pytest.raises(Cut):
        fit(text, tmp_path / "run", steps=16)
    run = seqloom.fit(str(tmp_path / "run"), steps="+4", progress=False)
    assert run.results.steps == 20 and read_plan(run.folder)[-1] == Phase(8, {"steps": 20}, 20, 8)


def test_early_stopping_counts_anew_in_a_lengthened_run(tmp_path: Path, text: Path) -> None:
    changes = [
        "train.optimizer={type: SGD, lr: 0.5}",
        "train.clip=NoClip",
        "train.patience=2",
        "train.eval_every=4",
    ]
    run = fit(text, tmp_path / "run", *changes, steps=4000)
    stopped = run.results.steps
    assert stopped < 4000
    longer = seqloom.fit(str(run.folder), steps=stopped + 8, progress=False)
    assert stopped < longer.results.steps <= stopped + 8


def test_what_cannot_be_lengthened_is_refused(
    tmp_path: Path, text: Path, capsys: pytest.CaptureFixture
) -> None:
    run = fit(text, tmp_path / "run", steps=16)
    config = (run.folder / "config.yaml").read_text()
    with pytest.raises(
        ConfigError, match="the run has 16 steps, and this budget allows 8; give a larger one"
    ):
        seqloom.fit(str(run.folder), steps=8, progress=False)
    with pytest.raises(ConfigError, match=r"budget of .*run is 16 steps; lengthen it by steps"):
        seqloom.fit(str(run.folder), minutes="+1", progress=False)
    with pytest.raises(ConfigError, match="a run is lengthened in its own folder"):
        fit(text, tmp_path / "other", steps="+5")
    with pytest.raises(
        ConfigError, match=rf"steps: 16 → 32\); lengthen it with: seqloom train {run.folder} --steps 32"
    ):
        fit(text, run.folder, steps=32)
    with pytest.raises(ConfigError, match=r"steps: 16 → 8\); choose another name"):  # not: lengthen it
        fit(text, run.folder, steps=8)
    for budgets in ({"steps": 32, "minutes": 1}, {"steps": 32, "epochs": 2}):
        with pytest.raises(ConfigError, match=r"several budgets \(steps, (minutes|epochs)\); give one"):
            fit(text, tmp_path / "other", **budgets)
    assert (run.folder / "config.yaml").read_text() == config
    for path in (run.folder / "checkpoints").iterdir():
        for file in path.iterdir():
            file.unlink()
        path.rmdir()
    with pytest.raises(RunError, match=r"no checkpoint, so it cannot go on; .* --from"):
        seqloom.fit(str(run.folder), steps="+8", progress=False)


def test_a_run_of_an_older_version_is_lengthened(tmp_path: Path, text: Path) -> None:
    """Without plan.json, its last checkpoint says how many steps it had."""
    for name in ("new", "old"):
        fit(text, tmp_path / name, steps=16)
    (tmp_path / "old" / "plan.json").unlink()
    for name in ("new", "old"):
        seqloom.fit(str(tmp_path / name), steps="+8", progress=False)
    assert bits(tmp_path / "old") == bits(tmp_path / "new")


def test_times_are_kept_apart_and_go_on(tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cut_after(monkeypatch, 14)
    with pytest.raises(Cut):
        fit(text, tmp_path / "run", steps=16)
    run = fit(text, tmp_path / "run", steps=16)
    lines = [json.loads(line) for line in (run.folder / "times.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == [3, 6, 9, 12, 15, 16]
    seconds = [line["seconds"] for line in lines]
    assert seconds == sorted(seconds) and all(line["memory"] > 2**20 for line in lines)
    assert not any("seconds" in line for line in read_metrics(run.folder))


def test_a_promise_has_a_range_that_grows_with_the_load() -> None:
    quiet, busy = (budget.promise_range(10.0, 100.0, share) for share in (1.0, 0.5))
    assert quiet == (97.5, 135.0) and busy == (53.75, 210.0)
    assert budget.promise_range(10.0, 0.0, 0.3) == (10.0, 10.0)
    assert budget.promise_range(0.0, 1.0, 7.0) == budget.promise_range(0.0, 1.0, 1.0)
    assert budget.duration_range(126, 114, 204) == "2.1 min (1.9–3.4)"
    assert budget.duration_range(20.2, 15, 30) == "20 s (15–30)"
    assert budget.duration_range(0.1, 0.1, 0.2) == "0 s" and budget.duration_range(60, None, None) == "60 s"


def test_the_promise_and_its_range_are_stored_and_shown(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    costs = budget.Costs(2.0, 1.0, 1.0, 1.0, 1.0, 1.0, {"stack": 5}, 0.0, cpu_share=0.5)
    monkeypatch.setattr(plan, "measure_costs", lambda *_: costs)
    run = seqloom.fit("lstm-lm", SMALL, data=text, steps=20, out=tmp_path / "run", progress=False)
    promised = run.results.promised
    assert promised is not None and promised.steps == 20 and promised.seconds > 40
    assert promised.low < 0.6 * promised.seconds and promised.high > 1.9 * promised.seconds
    shown = budget.duration_range(promised.seconds, promised.low, promised.high)
    assert f"20 steps in {shown} on cpu" in caplog.text
    record = json.loads((run.folder / "results.json").read_text("utf-8"))
    for name in ("low", "high"):  # as an older version wrote it
        del record["promised"][name]
    (run.folder / "results.json").write_text(json.dumps(record), "utf-8")
    assert read_results(run.folder).promised.low is None  # type: ignore[union-attr]


def test_a_training_that_takes_longer_than_promised_says_so_once(
    tmp_path: Path, text: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch, 0.5)
    monkeypatch.setattr(results, "time", SimpleNamespace(perf_counter=lambda: clock.now))
    step = TrainLoop.train_step

    def slower(loop_: TrainLoop, *arguments):
        clock.seconds = 0.5 if loop_.step < 40 else 5.0
        return step(loop_, *arguments)

    monkeypatch.setattr(TrainLoop, "train_step", slower)
    seqloom.fit(
        "lstm-lm", {**SMALL, "train.log_every": 5}, data=text, steps=100, out=tmp_path / "run", progress=False
    )
    late = [record.getMessage() for record in caplog.records if "at the pace of late" in record.getMessage()]
    assert len(late) == 1 and "promised were" in late[0]


@pytest.mark.parametrize(("first", "later", "count"), [(36.0, 0.5, 5), (12.0, 9.0, 2), (0.125, 0.25, 9)])
def test_the_step_that_compiles_is_not_timed(
    first: float, later: float, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A first step that compiles kernels on a busy machine takes much longer than those after it, and says nothing of them."""
    now, steps = 0.0, []

    def step(index: int) -> None:
        nonlocal now
        now += later if steps else first
        steps.append(index)

    monkeypatch.setattr(time, "perf_counter", lambda: now)
    assert budget.seconds_per_step(step) == pytest.approx(later)
    assert len(steps) == count and steps == sorted(steps)
