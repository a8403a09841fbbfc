"""A study: which systems are compared, on which data, under which budget.

Each run has its own process and folder, so that its memory and time are measured separately. Finished runs are reused;
interrupted runs resume.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqloom import config, files
from seqloom.run import Config, find_config
from seqloom.studies.resize import resize

BUDGETS = ("minutes", "tokens", "flops", "steps")


class Study(NamedTuple):
    """Everything that makes the results comparable.

    `budget` is one of minutes, tokens, flops, steps, and its value. With `parameters`, every system is scaled to about
    that many parameters before it is trained.
    """

    folder: Path
    systems: tuple[str, ...]
    train: tuple[str, ...]
    valid: tuple[str, ...]
    test: tuple[str, ...]
    budget: tuple[str, float]
    seeds: int = 1
    beam: int = 5
    penalty: float = 0.6
    parameters: float | None = None
    ensembles: bool = False

    def runs(self) -> Iterator[tuple[str, int, Path]]:
        """System, seed and folder of every run: all systems for the first seed, then the next."""
        for seed in range(self.seeds):
            for system in self.systems:
                yield system, seed, self.folder / name(system) / f"seed-{seed}"

    def texts(self) -> dict[str, tuple[str, ...]]:
        """The files of each side of the data."""
        return {"train": self.train, "valid": self.valid, "test": self.test}

    def conditions(self) -> dict[str, Any]:
        """What all runs of a folder must share, the content of study.json; systems and seeds may be added later."""
        digests = {
            side: [files.sha256(Path(path))[:12] for path in paths] for side, paths in self.texts().items()
        }
        return {
            **digests,
            "budget": list(self.budget),
            "search": [self.beam, self.penalty],
            "parameters": self.parameters,
        }


def name(system: str) -> str:
    """The name of a preset or a YAML file."""
    return Path(system).stem


def prepare(study: Study) -> None:
    """Checks everything before anything is trained, and that earlier runs of the folder have the same conditions."""
    unit, value = study.budget
    if unit not in BUDGETS or value <= 0 or study.seeds < 1:
        raise ValueError(
            f"a budget of {value} {unit} for {study.seeds} seeds: "
            f"give one of {', '.join(BUDGETS)} above 0, and at least one seed"
        )
    names = [name(system) for system in study.systems]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the systems are {', '.join(names) or 'none'}: give at least one, each once")
    for system in study.systems:
        Config.load(system, (), study.train, study.valid)
        if study.parameters is not None:
            resize(find_config(system)[0], study.parameters)
    for side, paths in study.texts().items():
        for path in paths:
            if not Path(path).is_file():
                raise ValueError(f"{path}: no such file; give the files of the {side} text")
    file = study.folder / "study.json"
    if file.exists():
        check_conditions(study, json.loads(file.read_text("utf-8")))
        return
    if study.folder.exists() and (not study.folder.is_dir() or any(study.folder.iterdir())):
        raise ValueError(f"{study.folder}: exists and is not the folder of a study; choose another --out")
    study.folder.mkdir(parents=True, exist_ok=True)
    files.write_atomic(file, json.dumps(study.conditions(), indent=1))


def check_conditions(study: Study, before: dict[str, Any]) -> None:
    """Raises if the study's conditions are not those under which the folder's runs were trained."""
    for key, value in json.loads(json.dumps(study.conditions())).items():
        if before.get(key) != value:
            raise ValueError(
                f"{study.folder}: its runs have another {key} ({before.get(key)}, not {value}); "
                "choose another --out"
            )


def write_resized_config(study: Study, system: str, parameters: float) -> Path:
    """Writes the system's config, scaled to so many parameters, beside the runs."""
    path = study.folder / "systems" / f"{name(system)}.yaml"
    path.parent.mkdir(exist_ok=True)
    files.write_atomic(path, config.write(resize(find_config(system)[0], parameters)))
    return path


def train_command(study: Study, system: str, seed: int, folder: Path, threads: int | None) -> list[str]:
    """The command that trains one run."""
    unit, value = study.budget
    if study.parameters is not None:
        system = str(write_resized_config(study, system, study.parameters))
    budget = f"train.{unit}={int(value) if unit == 'steps' else value}"
    command = [sys.executable, "-m", "seqloom", "train", system, budget]
    command += ["--data", *study.train, "--valid", *study.valid, "--out", str(folder), "--seed", str(seed)]
    return [*command, "--threads", str(threads)] if threads else command


def run_all(study: Study, log: Callable[[str], None], threads: int | None = None) -> list[str]:
    """Trains the runs that are not finished; returns a message for each run that failed."""
    failures = []
    runs = list(study.runs())
    for index, (system, seed, folder) in enumerate(runs, 1):
        if (folder / "results.json").exists():
            continue
        log(f"[{index}/{len(runs)}] {name(system)}, seed {seed}")
        command = train_command(study, system, seed, folder, threads)
        finished = subprocess.run(command, stdout=subprocess.DEVNULL, check=False)
        if finished.returncode in (130, 143, -signal.SIGINT, -signal.SIGTERM):
            raise KeyboardInterrupt
        if finished.returncode:
            failures.append(
                f"{name(system)}, seed {seed}: training ended with exit code {finished.returncode}; "
                "see the line above"
            )
    return failures
