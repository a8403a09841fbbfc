"""Run folders: a list of those in a folder, the facts of one, and the removal of checkpoints that nothing needs.

    for run in seqloom.runs.list("runs", sort="valid_loss"):
        print(run.name, run.state, run.valid_loss)

The functions are named as the verbs of `seqloom runs`; so this module does not use the built-in `list`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom import compat, config_tree, files, models, run_files
from seqloom.config_source import config_of, is_run
from seqloom.errors import RunError, UserError
from seqloom.results import Result
from seqloom.run import RunLike, as_folder, best_step, checkpoint_folder, checkpoint_steps, default_folder
from seqloom.run_files import Results, read_metrics, read_results
from seqloom.train import checkpoint

if TYPE_CHECKING:
    from torch.nn import Module

    from seqloom.results import ProgressOption
    from seqloom.train.replay import Replay

__all__ = ["Cleaned", "RunFacts", "RunSummary", "clean", "list", "replay", "show"]

# Columns that are sorted from the lowest value on, since the lowest is the best or the first.
ASCENDING = (
    *("name", "task", "state", "preset", "path", "parameters", "size"),
    *(
        "valid_loss",
        "nats_per_token",
        "perplexity",
        "bits_per_byte",
        "per",
        "wer",
        "rmse",
        "calibration_error",
    ),
)


@dataclass(frozen=True)
class RunSummary(Result):
    """One run in a list. `numbers` are its held-out scores; `valid_loss` is the lowest of the training; `size` is in bytes. `measured_on` are
    the digests of the held-out data and the tokenizer: numbers with different ones cannot be compared.

    `state` is finished, training, stopped, new or damaged.
    """

    name: str
    path: Path
    task: str
    preset: str | None
    state: str
    step: int
    steps: int | None
    valid_loss: float | None
    parameters: int | None
    size: int
    modified: float
    numbers: dict[str, float] = field(default_factory=dict)
    measured_on: str = ""

    def column(self, name: str) -> Any:
        """The value of a column or of a score; None if the run has none."""
        if name in COLUMNS:
            return self.to_dict()[name]
        return self.numbers.get(name)


COLUMNS = tuple(entry.name for entry in fields(RunSummary) if entry.name not in ("numbers", "measured_on"))


@dataclass(frozen=True)
class RunFacts(Result):
    """All that is known about one run. Sizes are in bytes; `config` is the tree of the YAML file."""

    run: RunSummary
    config: dict[str, Any]
    results: dict[str, Any] | None
    checkpoints: dict[int, int]
    files: dict[str, int]


@dataclass(frozen=True)
class Cleaned(Result):
    """The checkpoints that were removed from a run, those that stay, and the bytes that are free again."""

    run: Path
    removed: tuple[int, ...]
    kept: tuple[int, ...]
    freed: int


def list(
    folder: str | os.PathLike[str] | None = None, *, task: str | None = None, sort: str = "name"
) -> Sequence[RunSummary]:
    """The runs in a folder and below it, those of studies included; the best first if sorted by a score.

    >>> [(found.name, found.state) for found in seqloom.runs.list(run.folder)]
    [('gru', 'finished')]
    """
    root = default_folder() if folder is None else Path(folder)
    if not root.is_dir():
        raise RunError(f"{root}: no such folder; runs are made by: seqloom train PRESET --data FILE")
    found = [summarize(path) for path in find_runs(root)]
    names = shortest_names([run.path for run in found])
    found = [replace(run, name=name) for run, name in zip(found, names, strict=True)]
    tasks = sorted({run.task for run in found})
    if task is not None and task not in tasks:
        raise UserError(f"{task}: no run in {root} has this task; {config_tree.suggest(task, tasks)}")
    chosen = [run for run in found if task in (None, run.task)]
    columns = [*COLUMNS, *sorted({name for run in chosen for name in run.numbers})]
    if sort not in columns:
        raise UserError(f"{sort}: no such column; {config_tree.suggest(sort, columns)}")
    chosen.sort(key=lambda run: run.name)
    present = [run for run in chosen if run.column(sort) is not None]
    present.sort(key=lambda run: run.column(sort), reverse=sort not in ASCENDING)
    return [*present, *(run for run in chosen if run.column(sort) is None)]


def find_runs(folder: Path) -> Iterator[Path]:
    """The run folders at and below a folder; nothing inside a run is looked at."""
    if is_run(folder):
        yield folder
        return
    try:
        inner = sorted(path for path in folder.iterdir() if path.is_dir() and not path.name.startswith("."))
    except OSError:
        return
    for path in inner:
        if not path.is_symlink():
            yield from find_runs(path)


def shortest_names(paths: Sequence[Path]) -> Sequence[str]:
    """Each path by the shortest part of its end that no other has."""
    names = []
    for path in paths:
        for length in range(1, len(path.parts) + 1):
            name = str(Path(*path.parts[-length:]))
            if sum(other.parts[-length:] == path.parts[-length:] for other in paths) == 1:
                break
        names.append(name)
    return names


def summarize(folder: Path) -> RunSummary:
    """What a list says about a run; a damaged file makes its state `damaged`."""
    size = sum(files_of(folder).values())
    summary = RunSummary(
        folder.name, folder, "", None, "damaged", 0, None, None, None, size, folder.stat().st_mtime
    )
    try:
        tree, lines = config_of(folder)
        measured = [row for row in read_metrics(folder)] if (folder / "metrics.jsonl").exists() else []
        results = read_results(folder) if (folder / "results.json").exists() else None
        state = newest_state(folder)
        conditions = measured_on(folder, results)
    except (UserError, OSError, ValueError):
        return summary
    losses = [row["valid_loss"] for row in measured if row.get("valid_loss") is not None]
    finished = results is not None and (folder / "model.safetensors").exists()
    step = results.steps if results is not None and finished else state.get("step", 0)
    estimate = state.get("estimate") or {}
    counted = sum((estimate.get("parameters") or {}).values()) or None
    return replace(
        summary,
        task=task_of(tree),
        preset=lines.preset,
        state="finished"
        if finished
        else "training"
        if files.is_locked(folder)
        else "stopped"
        if step
        else "new",
        step=step,
        steps=step if finished else state.get("steps"),
        valid_loss=min(losses, default=None),
        parameters=results.parameters.total if results is not None else counted,
        numbers={number.name: number.value for number in results.valid} if results is not None else {},
        measured_on=conditions,
    )


def measured_on(folder: Path, results: Results | None) -> str:
    """The digests of the held-out data and the tokenizer, as `data:…|tokenizer:…`; empty if they are unknown."""
    digests = run_files.data_digests(folder) or {}
    if "held-out data" in digests and "tokenizer" in digests:
        return f"data:{digests['held-out data'][:12]}|tokenizer:{digests['tokenizer']}"
    for number in results.valid if results is not None else ():
        parts = [part for part in number.signature.split("|") if part.startswith(("data:", "tokenizer:"))]
        if len(parts) == 2:
            return "|".join(parts)
    return ""


def task_of(tree: config_tree.Tree) -> str:
    """The task of the model that a config names; empty if it is not a model of seqloom."""
    model = tree.get("model")
    name = str(model.get("type") if isinstance(model, dict) else model)
    return config_tree.find(models.NAMES, name).task if name in models.NAMES else ""


def newest_state(folder: Path) -> dict[str, Any]:
    """The state.json of the newest checkpoint; empty if there is none."""
    steps = checkpoint_steps(folder)
    if not steps:
        return {}
    text = (checkpoint_folder(folder, steps[-1]) / "state.json").read_text("utf-8")
    return compat.upgrade_json("state.json", json.loads(text))


def files_of(folder: Path) -> dict[str, int]:
    """The size of each file below a folder, by its path inside it."""
    return {
        str(path.relative_to(folder)): path.stat().st_size
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not path.is_symlink()
    }


def show(run: RunLike) -> RunFacts:
    """The facts of one run: state, scores, costs, config, checkpoints and files.

    >>> seqloom.runs.show(run).run.parameters
    284
    """
    folder = as_folder(run)
    sizes = files_of(folder)
    inside = "checkpoints/step-{:08d}/"
    steps = {
        step: sum(size for name, size in sizes.items() if name.startswith(inside.format(step)))
        for step in checkpoint_steps(folder)
    }
    results = read_results(folder).to_dict() if (folder / "results.json").exists() else None
    top = {name: size for name, size in sizes.items() if not name.startswith("checkpoints/")}
    return RunFacts(summarize(folder), config_of(folder)[0], results, steps, top)


def replay(
    run: RunLike,
    *,
    from_step: int | None = None,
    steps: int | None = None,
    threads: int | None = None,
    parts: Sequence[type[Module]] = (),
    progress: ProgressOption = True,
) -> Replay:
    """Takes steps of a run again from a checkpoint and compares the bits of weights, optimizer and metrics with what it recorded.

    By default from the last checkpoint but one to the last; 0 is the beginning. Raises where the bits cannot be the same: other threads,
    versions or another processor.

    >>> trained = seqloom.fit("lstm-lm", {"model.dim": 8, "model.stack.dim": 8}, data="input.txt", steps=4, progress=False)
    >>> seqloom.runs.replay(trained, from_step=0, progress=False).same
    True
    """
    from seqloom.train.replay import replay_run

    return replay_run(as_folder(run), from_step, steps, threads, parts, progress)


def clean(*runs: RunLike, dry_run: bool = False) -> Sequence[Cleaned]:
    """Removes the checkpoints of runs but the newest, which going on needs, and the best; `dry_run` only says which.

    >>> seqloom.runs.clean(run, dry_run=True)[0].freed
    0
    """
    return [clean_run(as_folder(run), dry_run) for run in runs]


def clean_run(folder: Path, dry_run: bool) -> Cleaned:
    """Removes the checkpoints of one run that nothing needs. An unfinished run keeps those that it would average."""
    steps = checkpoint_steps(folder)
    if not steps:
        return Cleaned(folder, (), (), 0)
    with files.exclusive(folder, "training"):
        keep = 1
        if not (folder / "model.safetensors").exists():
            keep = max(1, config_of(folder)[0].get("train", {}).get("average_checkpoints", 0))
        best = best_step(folder, steps)
        intact = [step for step in reversed(steps) if not checkpoint.verify(checkpoint_folder(folder, step))]
        kept = sorted({*intact[:keep], *(step for step in steps if step == best)}) if intact else steps
        removed = [step for step in steps if step not in kept]
        sizes = files_of(folder / "checkpoints")
        freed = sum(
            size for name, size in sizes.items() if int(Path(name).parts[0].removeprefix("step-")) in removed
        )
        if not dry_run and removed:
            checkpoint.rotate(folder / "checkpoints", keep, [best])
    return Cleaned(folder, tuple(removed), tuple(kept), freed)
