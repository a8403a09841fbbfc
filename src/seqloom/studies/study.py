"""A study: which systems are compared, on which data, under which budget. Its folder holds study.json, runs/SYSTEM/seed-N, table.json and
compare.html.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from seqloom import config_tree, files
from seqloom.errors import UserError
from seqloom.run_config import Config
from seqloom.studies.resize import resize
from seqloom.studies.systems import System
from seqloom.text.lines import local_copy
from seqloom.train.budget import duration

BUDGETS = ("minutes", "steps", "epochs", "tokens", "flops")
Valid = tuple[str, ...] | float


class PlannedRun(NamedTuple):
    """One training, or one finished run."""

    system: System
    seed: int
    folder: Path


@dataclass(frozen=True)
class Study:
    """Everything that makes the results comparable.

    `changes` hold for every config. `budget` is one of BUDGETS and its value. With `parameters`, every system is scaled to about that many
    parameters before it is trained. `data` says in words what is held out.
    """

    folder: Path
    task: str
    systems: tuple[System, ...]
    train: tuple[str, ...] = ()
    valid: Valid = 0.1
    test: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    budget: tuple[str, float] = ("minutes", 10.0)
    seeds: int = 3
    parameters: float | None = None
    ensembles: bool = False
    data: str = ""

    @cached_property
    def configs(self) -> dict[tuple[System, int], Config]:
        """The configs that were loaded, by system and seed; a study with other changes or data begins with none."""
        return {}

    def runs_of(self, system: System) -> list[PlannedRun]:
        """The runs of a system, one for each seed; a finished run, or a system without randomness, has one."""
        if system.is_finished:
            return [PlannedRun(system, 0, Path(system.source))]
        seeds = self.seeds if is_random(self.config(system)) else 1
        folder = self.folder / "runs" / system.folder_name
        return [PlannedRun(system, seed, folder / f"seed-{seed}") for seed in range(seeds)]

    def runs(self) -> Iterator[PlannedRun]:
        """Every run: all systems for the first seed, then the next."""
        by_system = [self.runs_of(system) for system in self.systems]
        for seed in range(self.seeds):
            for runs in by_system:
                yield from runs[seed : seed + 1]

    def config(self, system: System, seed: int = 0) -> Config:
        """The config that a system is trained with, without its budget and its size."""
        key = system, seed
        if key not in self.configs:
            valid = self.valid if isinstance(self.valid, float) else list(self.valid)
            changes = [*self.changes, *system.changes]
            data = list(self.train) or None
            self.configs[key] = Config.load(system.source, changes, data, valid if self.train else None, seed)
        return self.configs[key]

    def budget_changes(self, config: Config) -> list[str]:
        """The budget as a change of a config; a solver needs none."""
        unit, value = self.budget
        if is_solved(config):
            return []
        return [
            f"train.{unit}={int(value) if unit in ('steps', 'epochs') and value == int(value) else value}"
        ]

    @property
    def budget_text(self) -> str:
        """The budget of each run in words."""
        return budget_text(*self.budget)

    def conditions(self) -> dict[str, Any]:
        """What all runs of a folder must share, the content of study.json; systems and seeds may be added later."""
        sides = {"train": self.train, "valid": self.valid, "test": self.test}
        return {
            "task": self.task,
            **{side: digests(paths) if isinstance(paths, tuple) else paths for side, paths in sides.items()},
            "budget": list(self.budget),
            "parameters": self.parameters,
        }


def budget_text(unit: str, value: float) -> str:
    """A budget in words."""
    if unit == "minutes":
        return duration(60 * value)
    return f"{value:g} {unit.removesuffix('s') if value == 1 else unit}"


def digests(paths: Sequence[str]) -> list[str]:
    return [files.sha256(local_copy(path))[:12] for path in paths]


def is_solved(config: Config) -> bool:
    """Whether a solver trains the model, in seconds, instead of gradient steps."""
    return "type" in config.tree.get("train", {})


def is_random(config: Config) -> bool:
    """Whether the seed changes the result."""
    features = config.tree["model"].get("features", {})
    trains_vectors = isinstance(features, dict) and features.get("method", "skip-gram") != "ppmi-svd"
    is_mean = isinstance(features, dict) and features.get("type") == "MeanVectors"
    return not is_solved(config) or (is_mean and trains_vectors and features.get("vectors") is None)


def check(study: Study) -> None:
    """Checks everything before anything is trained."""
    unit, value = study.budget
    if unit not in BUDGETS or not value > 0 or study.seeds < 1:
        raise UserError(
            f"a budget of {value:g} {unit} for {study.seeds} seeds: "
            f"give one of {', '.join(BUDGETS)} above 0, and at least one seed"
        )
    for side, paths in {"train": study.train, "valid": study.valid, "test": study.test}.items():
        for path in paths if isinstance(paths, tuple) else ():
            if not Path(path).is_file():
                raise UserError(f"{path}: no such file; give the files of the {side} text")
    for system in study.systems:
        if not system.is_finished:
            config = study.config(system)
            config.change(*study.budget_changes(config))
            if study.parameters is not None:
                resize(config.tree, study.parameters, vocabulary_of(config))


def open_folder(study: Study) -> None:
    """Makes the folder of the study, or checks that the runs in it have the same conditions."""
    file = study.folder / "study.json"
    now = json.loads(json.dumps(study.conditions()))
    before: dict[str, Any] = {}
    if file.exists():
        before = json.loads(file.read_text("utf-8"))
        for key, value in now.items():
            if before.get(key) != value:
                raise UserError(
                    f"{study.folder}: its runs have {difference(key, before.get(key), value)}; "
                    f"choose another --out, such as --out {files.free_name(study.folder)}"
                )
    refuse_other_folder(study.folder)
    study.folder.mkdir(parents=True, exist_ok=True)
    systems = {system["title"]: system for system in before.get("systems", [])}
    for system in study.systems:
        present = json.loads(json.dumps(system._asdict()))
        if systems.setdefault(system.title, present) != present:
            old = " ".join([systems[system.title]["source"], *systems[system.title]["changes"]])
            raise UserError(f"{study.folder}: its {system.title} is {old}; choose another --out")
    content = {**now, "systems": [*systems.values()], "seeds": max(study.seeds, before.get("seeds", 1))}
    files.write_atomic(file, json.dumps(content, indent=1, ensure_ascii=False))


def refuse_other_folder(folder: Path) -> None:
    """Raises if the folder exists and is not that of a study."""
    if not folder.exists() or (folder / "study.json").exists():
        return
    if not folder.is_dir() or {path.name for path in folder.iterdir()} - {"data"}:
        raise UserError(f"{folder}: exists and is not the folder of a study; choose another --out")


def difference(key: str, before: Any, now: Any) -> str:
    """What differs between the conditions of two studies, in words."""
    titles = {"train": "training data", "valid": "data to choose by", "test": "test data"}
    if key in titles:
        return f"other {titles[key]}"
    if key == "budget":
        before, now = (budget_text(*value) if value else "none" for value in (before, now))
    return f"another {key} ({before}, not {now})"


def vocabulary_of(config: Config) -> int:
    """The size of the vocabulary that the config's tokenizer will have; it is trained if its size follows from the text."""
    size = config.tree["tokenizer"].get("size")
    return int(size) if size else config.tokenizer().get_vocab_size()


def source_of(study: Study, system: System) -> tuple[str, list[str]]:
    """What `seqloom train` takes: the source and its changes, or a file with the resized config."""
    config = study.config(system)
    changes = [*study.changes, *system.changes]
    if study.parameters is not None and not is_solved(config):
        path = study.folder / "systems" / f"{system.folder_name}.yaml"
        path.parent.mkdir(exist_ok=True)
        tree = resize(config.tree, study.parameters, vocabulary_of(config))
        tree = {key: value for key, value in tree.items() if key not in ("files", "seed")}
        files.write_atomic(path, config_tree.write(tree))
        return str(path), study.budget_changes(config)
    return system.source, [*changes, *study.budget_changes(config)]
