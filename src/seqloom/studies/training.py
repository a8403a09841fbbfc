"""Trains the runs of a study. Each has a process of its own, so that its memory and time are measured separately; a solver, which takes
seconds, works in this process. Finished runs are reused and interrupted runs resume.
"""

from __future__ import annotations

import logging
import signal
import subprocess
from dataclasses import dataclass

from seqloom.errors import Error, TrainingError
from seqloom.python_process import python_command, python_environment
from seqloom.results import ProgressOption, Reporter, Result
from seqloom.studies.study import PlannedRun, Study, is_solved, source_of
from seqloom.train.fit import train

logger = logging.getLogger("seqloom.studies")
STOPPED = (130, 143, -signal.SIGINT, -signal.SIGTERM)
STOP_SECONDS = 120  # that a training may take to save its checkpoint


@dataclass(frozen=True)
class Failure(Result):
    """A training that failed, and why."""

    system: str
    seed: int
    reason: str


def train_all(study: Study, threads: int | None = None, progress: ProgressOption = True) -> list[Failure]:
    """Trains the runs that are not finished; those that failed."""
    failures: list[Failure] = []
    shown: set[str] = set()  # what was logged about the data
    runs = [run for run in study.runs() if not run.system.is_finished]
    with Reporter("runs", len(runs), progress) as report:
        for index, run in enumerate(runs, 1):
            if not (run.folder / "results.json").exists():
                logger.info("[%d/%d] %s, seed %d", index, len(runs), run.system.title, run.seed)
                # All runs learn from the same data: the first describes it.
                if reason := train_one(study, run, threads, index == 1, shown):
                    failures.append(Failure(run.system.title, run.seed, reason))
                    logger.warning("%s, seed %d failed: %s", run.system.title, run.seed, reason)
            report.advance()
    return failures


def train_one(
    study: Study,
    run: PlannedRun,
    threads: int | None,
    describes_data: bool = True,
    shown: set[str] | None = None,
) -> str:
    """Trains one run; the reason if it fails, else an empty text. What the data is, is logged only if it shall, and if it was not `shown`."""
    config = study.config(run.system, run.seed)
    if is_solved(config):
        try:
            train(config, run.folder, threads, False, describes_data=describes_data)
        except Error as error:
            return str(error)
        return ""
    code, last_line = run_process(train_command(study, run, threads), shown)
    if code in STOPPED:
        raise KeyboardInterrupt
    return "" if code == 0 else last_line.removeprefix("seqloom: ") or f"exit code {code}"


def train_command(study: Study, run: PlannedRun, threads: int | None) -> list[str]:
    """The command that trains one run."""
    source, changes = source_of(study, run.system)
    valid = [str(study.valid)] if isinstance(study.valid, float) else [*study.valid]
    command = python_command("seqloom", "train", source, *changes)
    command += ["--data", *study.train, "--valid", *valid, "--out", str(run.folder), "--seed", str(run.seed)]
    return [*command, "--threads", str(threads)] if threads else command


def run_process(command: list[str], shown: set[str] | None = None) -> tuple[int, str]:
    """Runs a command whose stderr goes to the log; its exit code and its last line on stderr. If this process is interrupted, the other
    one gets time to save its checkpoint. Of the lines before the training, those that were `shown` are left out, and the others join them."""
    process = subprocess.Popen(
        command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env=python_environment()
    )
    last_line = ""
    try:
        if process.stderr is None:
            raise TrainingError("the training has no stderr")
        for line in process.stderr:
            if line.strip():
                last_line = line.strip()
                if last_line.startswith("promise:"):
                    shown = None
                if shown is None or last_line not in shown:
                    logger.info("  %s", last_line)
                if shown is not None:
                    shown.add(last_line)
        return process.wait(), last_line
    except BaseException:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
        raise
