"""The checkpoint from which a run goes on: the newest that is intact and belongs to the run. A training loop is set to its state.

A damaged checkpoint is named and the one before it is used, which leads to the same bits. A checkpoint of another run, or one under the
name of another step, is an error: somebody has changed the folder, and going on would mix two trainings.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import torch

from seqloom import compat, files
from seqloom.errors import RunError
from seqloom.nn.layer import State, with_tensors
from seqloom.run import checkpoint_folder, set_weights
from seqloom.run_files import MANIFEST_FILE, Manifest
from seqloom.train import checkpoint
from seqloom.train.checkpoint import Checkpoint
from seqloom.train.loop import DATA, CarriesTensors
from seqloom.train.plan import PLAN_FILE, Phase, read_plan, write_plan

if TYPE_CHECKING:
    from seqloom.train.loop import TrainLoop

Warn = Callable[[str], None]


def newest_checkpoint(folder: Path, manifest: Manifest | None, warn: Warn) -> Checkpoint | None:
    """The checkpoint from which the run in the folder goes on, or None if it has to begin again."""
    steps = checkpoint.step_folders(folder / "checkpoints")
    if not steps:
        return None
    for _, path in steps:
        check_belongs(path, manifest)
    warn_of_odd_names(folder / "checkpoints", {path.name for _, path in steps}, warn)
    needed = ""
    for step, path in steps:
        try:
            saved = checkpoint.load(path)
        except RunError as error:
            warn(f"{error} Falling back to the checkpoint before it.")
            continue
        if fault := needed_fault(folder, saved, is_newest=path == steps[0][1]):
            needed = f"{fault}; the final weights of a run that goes on from step {step} need it"
            warn(f"{needed}. Falling back to the checkpoint before both.")
            continue
        check_plan(folder, saved, warn)
        return saved
    if needed:
        raise RunError(f"{needed}, and there is none before it; put it back, or train again with --overwrite")
    warn(f"{folder / 'checkpoints'}: none of its {len(steps)} checkpoints can be used; the run begins again.")
    return None


def check_belongs(path: Path, manifest: Manifest | None) -> None:
    """Raises for a checkpoint under the name of another step, or of another run; says nothing about damaged ones."""
    try:
        body = files.check_digest((path / MANIFEST_FILE).read_bytes()) or {}
        step, digest = body["step"], body["files"]["state.json"]["sha256"]
        content = (path / "state.json").read_bytes()
    except (OSError, KeyError, TypeError):
        return
    if checkpoint.folder_name(step) != path.name:
        raise RunError(
            f"{path}: this is the checkpoint of step {step} under another name; "
            f"rename it to {checkpoint.folder_name(step)}, or delete it"
        )
    if files.digest(content) != digest:
        return
    state: dict[str, Any] = json.loads(content)
    if "run" in state and manifest is None:
        raise RunError(
            f"{path.parents[1] / MANIFEST_FILE}: missing, but {path.name} was saved with one; "
            "put it back, or train again with --overwrite"
        )
    if manifest is not None and state.get("run") != manifest.identity:
        raise RunError(
            f"{path}: a checkpoint of another run, not of the one that {MANIFEST_FILE} describes; delete it or move it away"
        )


def warn_of_odd_names(folder: Path, known: set[str], warn: Warn) -> None:
    """Names what is no checkpoint by its name; hidden entries are saves under way."""
    odd = sorted(
        path.name for path in folder.iterdir() if path.name not in known and not path.name.startswith(".")
    )
    if odd:
        warn(f"{folder}: not read, because this is not the name of a checkpoint: {', '.join(odd[:5])}")


def needed_fault(folder: Path, saved: Checkpoint, is_newest: bool) -> str | None:
    """What is wrong with the first of the other checkpoints from which the final weights may be made; None if nothing is.

    One may be missing if there was a newer checkpoint than this: then it was not needed any more.
    """
    for step in saved.metadata.get("needs", ()):
        path = checkpoint_folder(folder, step)
        if path.exists() or is_newest:
            for fault in checkpoint.verify(path):
                return fault.rstrip(".")
    return None


def check_plan(folder: Path, saved: Checkpoint, warn: Warn) -> None:
    """Raises if plan.json is not the plan of the checkpoint, or a longer one; one that is missing is written again."""
    if "plan" not in saved.metadata:  # an older version saved it
        return
    expected = [Phase(**phase) for phase in saved.metadata["plan"]]
    path = folder / PLAN_FILE
    if not path.exists():
        warn(f"{path}: missing; it is written again as {saved.path.name} has it")
        write_plan(folder, expected)
    if read_plan(folder)[: len(expected)] != expected:
        raise RunError(
            f"{path}: changed, it is not the plan of {saved.path.name}; put it back, or train again with --overwrite"
        )


class CarriesState(Protocol):
    """A model whose state continues from one batch to the next; only such models have a state in their checkpoints."""

    def start(self, batch: int) -> State: ...


def restore(loop: TrainLoop, saved: Checkpoint) -> None:
    """Sets a training loop to the state that a checkpoint holds."""
    metadata = compat.upgrade_json("state.json", saved.metadata)
    model = loop.job.model
    set_weights(model, saved.tensors("model"), saved.path / "model.safetensors")
    named = dict(model.named_parameters())
    for name, tensor in saved.tensors("optim").items():
        weight, _, key = name.rpartition(":")
        loop.optimizer.state[named[compat.upgrade_weight(weight, named)]][key] = tensor
    loop.step = metadata["step"]
    loop.cursor = tuple(metadata["cursor"])
    loop.seconds = metadata["seconds"]
    loop.skipped = metadata["skipped"]
    loop.tokens = metadata.get("tokens", 0.0)
    loop.best = math.inf if metadata["best"] is None else metadata["best"]
    loop.best_step = metadata["best_step"]
    loop.evals_since_best = metadata["evals_since_best"]
    loop.best_saved = metadata.get("best_saved", False)
    loop.metrics_bytes = metadata["metrics"]
    loop.metrics_checksums = metadata.get("metrics_checksums")
    loop.plan.resume(metadata)
    warn_if_changed(loop, "processes", metadata["world"], loop.group.size)
    warn_if_changed(loop, "threads", metadata["threads"], torch.get_num_threads())
    same_world = metadata["world"] == loop.group.size
    rank = loop.group.rank if loop.group.rank < metadata["world"] else 0
    tensors = saved.tensors(f"rank-{rank}")
    torch.set_rng_state(tensors.pop("0"))
    carried = {name: tensors.pop(name) for name in list(tensors) if name.startswith(DATA)}
    if isinstance(loop.job.train, CarriesTensors):
        loop.job.train.restore({name.removeprefix(DATA): value for name, value in carried.items()})
    if tensors and same_world:
        batch, _ = next(loop.job.train.batches(loop.cursor, loop.group.rank, loop.group.size))
        ordered = [tensors[str(index)] for index in sorted(map(int, tensors))]
        initial_state = cast(CarriesState, model).start(len(batch.ids))
        loop.state = with_tensors(initial_state, ordered)


def warn_if_changed(loop: TrainLoop, unit: str, before: int, now: int) -> None:
    if before != now:
        loop.warn(f"the run was trained with {before} {unit} and resumes with {now}: the bits will differ")
