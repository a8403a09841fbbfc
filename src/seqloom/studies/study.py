"""A study: which systems, on what, under which budget. Each run is a process and a folder of its own, so that its memory and time are
its own too; a run that is there is not made again, and one that was cut goes on."""

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
    """Everything that makes figures comparable. `budget` is one of minutes, tokens, flops, steps and its value;
    with `parameters` every system is made about that large before it is trained."""

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

    def facts(self) -> dict[str, Any]:
        """What all runs of a folder must share; systems and seeds may be added."""
        content = {
            side: [files.sha256(Path(path))[:12] for path in getattr(self, side)]
            for side in ("train", "valid", "test")
        }
        return {
            **content,
            "budget": list(self.budget),
            "search": [self.beam, self.penalty],
            "parameters": self.parameters,
        }


def name(system: str) -> str:
    """The name of a preset or a YAML file."""
    return Path(system).stem


def prepare(study: Study) -> None:
    """Check everything before anything is trained, and see that the folder's earlier runs were made under the same terms."""
    kind, value = study.budget
    if kind not in BUDGETS or value <= 0 or study.seeds < 1:
        raise ValueError(
            f"a budget of {value} {kind} for {study.seeds} seeds: give one of {', '.join(BUDGETS)} above 0, and a seed at least"
        )
    names = [name(system) for system in study.systems]
    if not names or len(set(names)) < len(names):
        raise ValueError(f"the systems are {', '.join(names) or 'none'}: give at least one, each once")
    for system in study.systems:
        Config.load(system, (), study.train, study.valid)
        if study.parameters is not None:
            resize(find_config(system)[0], study.parameters)
    for side in ("train", "valid", "test"):
        for path in getattr(study, side):
            if not Path(path).is_file():
                raise ValueError(f"{path}: no such file; say where the {side} text is")
    place = study.folder / "study.json"
    if place.exists():
        before, now = json.loads(place.read_text("utf-8")), json.loads(json.dumps(study.facts()))
        for key, value in now.items():
            if before.get(key) != value:
                raise ValueError(
                    f"{study.folder}: its runs have another {key} ({before.get(key)}, not {value}); choose another --out"
                )
        return
    if study.folder.exists() and (not study.folder.is_dir() or any(study.folder.iterdir())):
        raise ValueError(f"{study.folder}: exists and holds no study; choose another --out")
    study.folder.mkdir(parents=True, exist_ok=True)
    files.write_atomic(place, json.dumps(study.facts(), indent=1))


def write_resized_config(study: Study, system: str) -> Path:
    """The system's config at the study's size, written beside the runs."""
    place = study.folder / "systems" / f"{name(system)}.yaml"
    place.parent.mkdir(exist_ok=True)
    files.write_atomic(place, config.write(resize(find_config(system)[0], study.parameters)))
    return place


def run_all(study: Study, say: Callable[[str], None], threads: int | None = None) -> list[str]:
    """Train what is not trained yet; a sentence for each run that failed."""
    failed = []
    every = list(study.runs())
    for number, (system, seed, folder) in enumerate(every, 1):
        if (folder / "results.json").exists():
            continue
        say(f"[{number}/{len(every)}] {name(system)}, seed {seed}")
        kind, value = study.budget
        if study.parameters is not None:
            system = str(write_resized_config(study, system))
        command = [
            sys.executable,
            "-m",
            "seqloom",
            "train",
            system,
            f"train.{kind}={value if kind != 'steps' else int(value)}",
        ]
        command += [
            "--data",
            *study.train,
            "--valid",
            *study.valid,
            "--out",
            str(folder),
            "--seed",
            str(seed),
        ]
        done = subprocess.run(
            [*command, *(["--threads", str(threads)] if threads else [])],
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode in (130, 143, -signal.SIGINT, -signal.SIGTERM):
            raise KeyboardInterrupt
        if done.returncode:
            failed.append(
                f"{name(system)}, seed {seed}: training ended with exit code {done.returncode}; the line above says why"
            )
    return failed
