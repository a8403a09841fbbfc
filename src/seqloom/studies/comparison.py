"""compare: trains systems of one task on the same data under one budget, measures them on the same test data, and ranks them."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple, TypedDict, Unpack

from seqloom import files
from seqloom.data.options import Data, notes_once, resolve_data
from seqloom.data.viewing import open_reader
from seqloom.errors import RunError, UserError
from seqloom.inference.training_overlap import log_leaks, training_leaks
from seqloom.results import ProgressOption, Result
from seqloom.run_config import Config
from seqloom.studies import report
from seqloom.studies.cautions import cautions
from seqloom.studies.held_out import divide
from seqloom.studies.study import Study, check, is_random, is_solved, open_folder, refuse_other_folder
from seqloom.studies.systems import CHANGE, System, no_system, parse_systems
from seqloom.studies.table import ResultRow, rows
from seqloom.studies.training import Failure, train_all
from seqloom.threads import thread_count, use_threads
from seqloom.train.budget import duration

logger = logging.getLogger("seqloom.studies")
MINUTES = 10.0  # of training of each run, if no budget is given
CHEAPER = 2.0  # a tie is worth a mention if it costs less than the best by this factor


class StudyBudget(TypedDict, total=False):
    """The budget of each run: one of them."""

    minutes: float | None
    steps: int | None
    epochs: float | None
    tokens: float | None
    flops: float | None


class StudyOptions(NamedTuple):
    """How a comparison is made, besides its systems and its data."""

    seeds: int = 3
    parameters: float | None = None
    quick: bool = False
    ensembles: bool = False


@dataclass(frozen=True)
class Comparison(Result):
    """The table of a comparison, best system first; which to use; the trainings that failed; the page; why ranks may mislead."""

    task: str
    rows: tuple[ResultRow, ...]
    recommended: str | None
    failed: tuple[Failure, ...]
    page: Path | None
    folder: Path
    signature: str = ""
    warnings: tuple[str, ...] = ()
    html: str = field(default="", repr=False, metadata={"json": False})

    def lines(self) -> list[str]:
        """The table as text."""
        lines = report.lines(self.task, self.rows)
        if shared := report.shared_leaks(self.rows):
            lines.append(shared)
        if advice := cheaper_tie(self.rows):
            lines.append(advice)
        lines += [f"failed: {one.system}, seed {one.seed}: {one.reason}" for one in self.failed]
        return [*lines, *([f"page: {self.page}"] if self.page else [])]

    def _repr_html_(self) -> str:
        return report.result_table(self.task, self.rows) if self.rows else "no finished run"


def compare(
    *systems: str,
    data: Data | None = None,
    valid: Data | float = 0.1,
    test: Data | float = 0.1,
    seeds: int | None = None,
    parameters: float | None = None,
    out: str | os.PathLike[str] | None = None,
    quick: bool = False,
    ensembles: bool = False,
    threads: int | None = None,
    progress: ProgressOption = True,
    **budget: Unpack[StudyBudget],
) -> Comparison:
    """Compares presets, YAML files, finished runs, or the systems of a study (table2, classical), all of one task.

    A change such as "model.dim=64" belongs to the system before it, or to all if it comes first. Systems are trained `seeds` times, by default 3, on
    `data` under the same budget; finished runs are only measured. Without test files a share of the data is held out for the test. `quick`
    means one seed and a tenth of the budget. The same call goes on where an earlier one stopped.

    >>> comparison = compare("naive-bayes", "logistic", data="reviews.tsv", seeds=1, progress=False)
    >>> sorted(row.system for row in comparison.rows)
    ['logistic', 'naive-bayes']
    >>> comparison.page
    PosixPath('runs/compare-naive-bayes-logistic-reviews/compare.html')
    """
    if quick and seeds not in (None, 1):
        raise UserError(f"quick is one seed, and seeds is {seeds}: drop one of them")
    options = StudyOptions(3 if seeds is None else seeds, parameters, quick, ensembles)
    with notes_once():
        return run_study(systems, data, valid, test, options, out, threads, progress, budget)


def run_study(
    systems: Sequence[str],
    data: Data | None,
    valid: Data | float,
    test: Data | float,
    options: StudyOptions,
    out: str | os.PathLike[str] | None,
    threads: int | None,
    progress: ProgressOption,
    budget: StudyBudget,
) -> Comparison:
    """Plans, trains and measures a study."""
    if data is not None and not systems:
        paths = [data] if isinstance(data, str | os.PathLike) else list(data)
        raise UserError(no_system(open_reader(data).kinds, " ".join(str(path) for path in paths)))
    parsed = parse_systems(systems)
    study = plan(
        parsed, data, valid, test, options, {key: value for key, value in budget.items() if value is not None}
    )
    folder = Path(out) if out is not None else default_folder(systems, study)
    study = replace(study, folder=folder)
    check(study)
    share = None if study.test else share_of(test)
    if share is not None:
        trained = next((system for system in study.systems if not system.is_finished), None)
        if trained is None or any(system.is_finished for system in study.systems):
            raise UserError("finished runs are measured on test files: give them with --test")
        refuse_other_folder(folder)
        parts = divide(study.config(trained), share, folder / "data")
        study = replace(
            study,
            train=parts.train,
            test=parts.test,
            changes=(*study.changes, *parts.changes),
            data=parts.described,
        )
        check(study)
    open_folder(study)
    with use_threads(thread_count(threads)):
        logger.info("%s", reused(study) or describe(study, threads))
        log_training_leaks(study)
        failed = train_all(study, threads, progress)
        found = rows(study, progress)
    return finish(study, found, failed)


def log_training_leaks(study: Study) -> None:
    """Says which test records are in the data that the systems will learn from, before anything is trained."""
    trained = next((system for system in study.systems if not system.is_finished), None)
    if trained is not None:
        config = study.config(trained)
        test = config.reader(list(study.test))
        log_leaks(training_leaks(config, test, config.kinds(), test.digest()), config)


def plan(
    systems: Sequence[System],
    data: Data | None,
    valid: Data | float,
    test: Data | float,
    options: StudyOptions,
    budget: dict[str, Any],
) -> Study:
    """The study, without its folder; the systems must be of one task."""
    if len(budget) > 1:
        raise UserError(f"several budgets ({', '.join(budget)}): a fair comparison has one")
    configs = {system.title: open_config(system) for system in systems}
    tasks = {title: config.meta_model().task for title, config in configs.items()}
    if len(set(tasks.values())) > 1:
        listed = ", ".join(f"{title} is for {task}" for title, task in tasks.items())
        raise UserError(f"{listed}: compare systems of one task")
    if options.ensembles and "translation" not in tasks.values():
        raise UserError("--ensembles is for translators; drop it")
    kinds = next(iter(configs.values())).kinds()
    trains = not all(system.is_finished for system in systems)
    paths: tuple[str, ...] = ()
    valid_paths: tuple[str, ...] | float = share_of(valid) or ()
    test_paths: tuple[str, ...] = ()
    if trains:
        uses_world = data is None or data in ("world", ["world"])
        paths = tuple(resolve_data("world" if data is None else data, kinds, "train"))
        if uses_world:
            valid_paths = tuple(resolve_data("world", kinds, "valid"))
            test_paths = tuple(resolve_data("world", kinds, "test"))
    if not isinstance(valid_paths, float) and share_of(valid) is None:
        valid_paths = tuple(resolve_data(valid, kinds, "valid"))  # type: ignore[arg-type]  # not a share
    if share_of(test) is None:
        test_paths = tuple(resolve_data(test, kinds, "test"))  # type: ignore[arg-type]  # not a share
    unit, value = next(iter(budget.items()), ("minutes", MINUTES))
    value = float(value) / 10 if options.quick else float(value)
    if unit in ("steps", "epochs"):
        value = max(1.0, value)
    return Study(
        Path(),
        next(iter(tasks.values())),
        tuple(systems),
        paths,
        valid_paths,
        test_paths,
        budget=(unit, value),
        seeds=1 if options.quick else options.seeds,
        parameters=options.parameters,
        ensembles=options.ensembles,
    )


def open_config(system: System) -> Config:
    """The config of a system, before its data is known."""
    if system.is_finished and not (Path(system.source) / "model.safetensors").exists():
        raise RunError(
            f"{system.source}: the run is not finished; finish it with: seqloom train {system.source}"
        )
    source = str(Path(system.source).absolute()) if system.is_finished else system.source
    return Config.load(source, list(system.changes))


def share_of(value: Data | float) -> float | None:
    """A share of the data, as a number or as a text; None if the value names files."""
    only = value[0] if isinstance(value, list | tuple) and len(value) == 1 else value
    try:
        return float(only)  # type: ignore[arg-type]  # the except is for what is not a number
    except (TypeError, ValueError):
        return None


def default_folder(words: Sequence[str], study: Study) -> Path:
    """runs/compare-SYSTEMS-DATA."""
    runs = {system.source: system.folder_name for system in study.systems if system.is_finished}
    systems = [word for word in words if not CHANGE.fullmatch(word)]
    names = [runs.get(str(Path(word))) or Path(word).stem for word in systems]
    name = "-".join(names) if len(names) <= 4 else f"{len(names)}-systems"
    first = Path((study.train or study.test or ("",))[0])
    while first.suffix in (".gz", ".zst"):
        first = first.with_suffix("")
    stem = "world" if "world" in first.parts[-2:-1] or first.parent.name.startswith("world") else first.stem
    return Path(os.environ.get("SEQLOOM_RUNS") or "runs") / "-".join(filter(None, ["compare", name, stem]))


def describe(study: Study, threads: int | None) -> str:
    """What will be done and how long it takes at most."""
    import torch

    planned = [run for run in study.runs() if not run.system.is_finished]
    gradient = [run for run in planned if not is_solved(study.config(run.system))]
    random = any(is_random(study.config(run.system)) for run in planned)
    seeds = f" × {study.seeds} seeds" if random and study.seeds > 1 else ", 1 seed" if planned else ""
    unit, value = study.budget
    budget = ""
    if gradient:
        budget = f", {study.budget_text} each"
    time = f": {duration(60 * value * len(gradient))}" if gradient and unit == "minutes" else ""
    count = "1 system" if len(study.systems) == 1 else f"{len(study.systems)} systems"
    number = threads or torch.get_num_threads()
    machine = f" on cpu, {number} {'thread' if number == 1 else 'threads'}" if planned else ""
    return f"{study.task}, {count}{seeds}{budget}{time}{machine}" + (f"; {study.data}" if study.data else "")


def reused(study: Study) -> str:
    """That the study is finished, and what to do for another; empty if there is something to train, or there never was."""
    results = [run.folder / "results.json" for run in study.runs() if not run.system.is_finished]
    if not results or not all(path.exists() for path in results):
        return ""
    when = datetime.fromtimestamp(max(path.stat().st_mtime for path in results)).strftime("%Y-%m-%d %H:%M")
    runs = "its run" if len(results) == 1 else f"its {len(results)} runs"
    return (
        f"{study.folder}: the study is finished; the table is that of {runs} of {when}. To train anew, delete the folder or choose another "
        "--out"
    )


def finish(study: Study, found: list[ResultRow], failed: list[Failure]) -> Comparison:
    """Writes the table and the page."""
    page = study.folder / "compare.html" if found else None
    warnings = tuple(cautions(study, found))
    for warning in warnings:
        logger.warning("%s", warning)
    comparison = Comparison(
        study.task,
        tuple(found),
        found[0].system if found and found[0].rank else None,
        tuple(failed),
        page,
        study.folder,
        found[0].signature if found else "",
        warnings,
    )
    text = json.dumps(comparison.to_dict(), indent=1, ensure_ascii=False, allow_nan=False)
    files.write_atomic(study.folder / "table.json", text)
    if page:
        files.write_atomic(page, report.render(study, found, failed, warnings))
    return comparison


def cheaper_tie(found: Sequence[ResultRow]) -> str:
    """The advice of a comparison whose best system ties with a much cheaper one; else empty."""
    if not found or not found[0].seconds:
        return ""
    best = found[0]
    tied = [
        row
        for row in found[1:]
        if row.rank == 1 and row.seconds and row.seconds * CHEAPER < (best.seconds or 0)
    ]
    if not tied:
        return ""
    cheapest = min(tied, key=lambda row: row.seconds or 0)
    factor = (best.seconds or 0) / max(cheapest.seconds or 0, 1e-9)
    return f"recommended: {best.system}; {cheapest.system} ties at 1/{factor:,.0f} of the cost"
