"""Replay: some steps of a run are taken again from a checkpoint, and their bits compared with what the run recorded.

Equal config, data, threads, versions and processor give equal bits; where one of them differs, a replay is refused with the reason. It
writes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from seqloom import compat, run_files
from seqloom.config_source import config_of
from seqloom.errors import RunError
from seqloom.results import ProgressOption, Result
from seqloom.run_config import Config
from seqloom.run_files import METRICS_FILE, json_line
from seqloom.threads import use_threads
from seqloom.train import checkpoint
from seqloom.train.checkpoint import Checkpoint
from seqloom.train.loop import TrainLoop, checkpoint_tensors
from seqloom.train.metrics import Metrics
from seqloom.train.options import TrainJob, TrainOptions
from seqloom.train.preparation import build_options, make_job, prepare
from seqloom.train.process import fingerprint
from seqloom.train.resume import check_belongs
from seqloom.train.run_folder import check_data

logger = logging.getLogger("seqloom.train")


@dataclass(frozen=True)
class BitDifference(Result):
    """The first difference between a run and its replay: at which step, in which file, and in which tensor or line."""

    step: int
    file: str
    name: str
    recorded: str
    replayed: str


@dataclass(frozen=True)
class Replay(Result):
    """What a replay compared: the steps taken again, the checkpoints, their tensors, and lines of metrics.jsonl."""

    run: Path
    from_step: int
    to_step: int
    same: bool
    checkpoints: tuple[int, ...]
    tensors: int
    lines: int
    difference: BitDifference | None = None


def replay_run(
    folder: Path,
    from_step: int | None = None,
    steps: int | None = None,
    threads: int | None = None,
    parts: Sequence[type[torch.nn.Module]] = (),
    progress: ProgressOption = True,
) -> Replay:
    """Takes `steps` steps again from the checkpoint of `from_step` and compares."""
    manifest = run_files.check_manifest(folder)
    config = Config(*config_of(folder), parts)
    options = build_options(config)
    if not isinstance(options, TrainOptions):
        raise RunError(f"{folder}: a solver trained this run in one go; there are no steps to replay")
    recorded = recorded_steps(folder, manifest)
    start, end = choose_steps(folder, sorted(recorded), from_step, steps)
    conditions = checkpoint.load(recorded[start if start else min(recorded)]).metadata
    check_conditions(folder, compat.upgrade_json("state.json", conditions), threads)
    with use_threads(conditions["threads"]):
        saved = checkpoint.load(recorded[start]) if start else None
        prepared = prepare(
            config, folder / "tokenizer.json", progress, describes_data=False, resumes=saved is not None
        )
        check_data(folder, prepared)
        job = make_job(folder, prepared)._replace(saved=saved)
        loop = ReplayLoop(options, job, progress, end, recorded)
        loop.run()
    return Replay(
        folder,
        start,
        loop.step,
        loop.difference is None,
        tuple(loop.compared),
        loop.num_tensors,
        loop.recorded_lines.num_compared,
        loop.difference,
    )


def recorded_steps(folder: Path, manifest: run_files.Manifest | None) -> dict[int, Path]:
    """The checkpoints of the run by step; raises if there are none, or if one is not of this run."""
    found = dict(checkpoint.step_folders(folder / "checkpoints"))
    if not found:
        raise RunError(f"{folder}: the run has no checkpoint, so there is nothing to compare a replay with")
    for path in found.values():
        check_belongs(path, manifest)
    return found


def choose_steps(
    folder: Path, recorded: Sequence[int], from_step: int | None, steps: int | None
) -> tuple[int, int]:
    """The first and the last step of a replay: by default from the last checkpoint but one to the last."""
    starts = [0, *recorded]
    if from_step is None:
        from_step = starts[-2]
    if from_step not in starts:
        listed = ", ".join(map(str, starts))
        raise RunError(f"{folder}: the run has no checkpoint of step {from_step}; choose one of {listed}")
    if steps is not None and steps < 1:
        raise RunError(f"--steps {steps}: a replay takes at least 1 step")
    later = [step for step in recorded if step > from_step]
    if not later:
        raise RunError(
            f"{folder}: nothing is recorded after step {from_step}; begin earlier, as in --from-step {starts[-2]}"
        )
    end = from_step + steps if steps else later[0]
    if end > recorded[-1]:
        raise RunError(
            f"{folder}: the last checkpoint is of step {recorded[-1]}; give --steps {recorded[-1] - from_step} or fewer"
        )
    return from_step, end


def check_conditions(folder: Path, state: Mapping[str, Any], threads: int | None) -> None:
    """Raises if the bits cannot be the same: other threads, processes, versions, or another processor."""
    here = fingerprint()
    before = state.get("machine") or {"torch": state["torch"]}
    differences = [
        f"{name}: {value} then, {here.get(name)} now"
        for name, value in before.items()
        if value != here.get(name)
    ]
    if state["world"] != 1:
        differences.append(f"processes: {state['world']} then, 1 now")
    if threads is not None and threads != state["threads"]:
        differences.append(f"threads: {state['threads']} then, {threads} now")
    if differences:
        raise RunError(f"{folder}: a replay would not have the same bits here: {'; '.join(differences)}")
    if "machine" not in state:
        logger.warning("%s: an older version trained it, which did not store the processor", folder)


class RecordedLines(Metrics):
    """Compares lines of measurements with those of the run instead of writing them."""

    def __init__(self, folder: Path, num_bytes: int):
        self.checksums = ""
        content = (folder / METRICS_FILE).read_bytes()
        self.lines = content[num_bytes:].splitlines(keepends=True)
        self.num_compared = 0
        self.difference: BitDifference | None = None

    def add(self, numbers: dict[str, Any]) -> None:
        if self.difference or self.num_compared >= len(self.lines):
            return
        expected, actual = self.lines[self.num_compared], json_line(numbers)
        self.num_compared += 1
        if expected != actual:
            texts = [line.decode("utf-8", "replace").strip() for line in (expected, actual)]
            name = next((key for key, value in numbers.items() if f'"{key}": {value}' not in texts[0]), "")
            self.difference = BitDifference(numbers["step"], METRICS_FILE, name, *texts)

    def add_time(self, step: int, seconds: float) -> None:
        """Times are not compared."""

    def close(self) -> None:
        """There is no file to close."""


class ReplayLoop(TrainLoop):
    """A training loop that compares where another would write."""

    def __init__(
        self,
        options: TrainOptions,
        job: TrainJob,
        progress: ProgressOption,
        end: int,
        recorded: Mapping[int, Path],
    ):
        super().__init__(options, job, progress)
        self.end = end
        self.recorded = recorded
        self.compared: list[int] = []
        self.num_tensors = 0
        self.difference: BitDifference | None = None
        self.recorded_lines: RecordedLines

    def begin(self) -> None:
        torch.manual_seed(self.job.seed)

    def open_metrics(self) -> Metrics:
        self.recorded_lines = RecordedLines(self.job.folder, self.metrics_bytes)
        return self.recorded_lines

    def has_steps_left(self) -> bool:
        self.difference = self.difference or self.recorded_lines.difference
        return super().has_steps_left() and self.step < self.end and self.difference is None

    def is_time_to_save(self) -> bool:
        return self.step in self.recorded

    def save_checkpoint(self) -> None:
        """Compares the state with the checkpoint of this step."""
        self.difference = self.difference or self.recorded_lines.difference
        if self.difference or self.step not in self.recorded:
            return
        before = checkpoint.load(self.recorded[self.step])
        self.compared.append(self.step)
        for name, tensors in checkpoint_tensors(self).items():
            self.num_tensors += len(tensors)
            if self.difference is None:
                self.difference = first_difference(self.step, name, before, tensors)

    def set_final_weights(self) -> None:
        """A replay makes no weights to use."""


def first_difference(
    step: int, file: str, before: Checkpoint, tensors: Mapping[str, Tensor]
) -> BitDifference | None:
    """The first tensor of a file whose bits are not those of the checkpoint."""
    recorded = before.tensors(file)
    if file == "model":
        recorded = compat.upgrade_weights(recorded, tensors)
    elif file == "optim":
        recorded = {upgrade_moment(name, tensors): tensor for name, tensor in recorded.items()}
    name_of_file = f"{file}.safetensors"
    for name in [*tensors, *(name for name in recorded if name not in tensors)]:
        a, b = recorded.get(name), tensors.get(name)
        if a is None or b is None:
            return BitDifference(step, name_of_file, name, describe(a), describe(b))
        if not same_bits(a, b.detach().cpu()):
            return BitDifference(step, name_of_file, name, *describe_both(a, b.detach().cpu()))
    return None


def upgrade_moment(name: str, present: Mapping[str, Tensor]) -> str:
    """The present name of a moment of the optimizer, as WEIGHT:MOMENT."""
    weight, _, key = name.rpartition(":")
    return f"{compat.upgrade_weight(weight, {other.rpartition(':')[0] for other in present})}:{key}"


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are equal to the bit: NaN equals NaN, and 0 does not equal -0."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    first, second = (tensor.contiguous().reshape(-1).view(torch.uint8) for tensor in (a, b))
    return torch.equal(first, second)


def describe(tensor: Tensor | None) -> str:
    return "missing" if tensor is None else f"{tensor.dtype} {tuple(tensor.shape)}".removeprefix("torch.")


def describe_both(a: Tensor, b: Tensor) -> tuple[str, str]:
    """The first element that differs, in both tensors, and how many differ; their shapes if those differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return describe(a), describe(b)
    flat_a, flat_b = a.reshape(-1), b.reshape(-1)
    different = (flat_a != flat_b).nonzero().reshape(-1)
    index = int(different[0]) if len(different) else 0
    count = f" ({len(different):,} of {len(flat_a):,} elements differ)"
    return f"[{index}] {flat_a[index].item()!r}", f"[{index}] {flat_b[index].item()!r}{count}"
