"""The folder that a training writes into: its name, whether it may be used, and what it holds before the first step."""

from __future__ import annotations

import json
import logging
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from seqloom import config_tree, files
from seqloom.errors import ConfigError, RunError
from seqloom.run_config import Config, config_of, is_run
from seqloom.run_files import Results, read_results
from seqloom.text import fields, labels, tokenizer
from seqloom.text.chat_template import TEMPLATE_FILE, template_source
from seqloom.train.data_report import language_profiles
from seqloom.train.options import TrainOptions
from seqloom.train.plan import (
    LengthUnits,
    final_results,
    lengthen,
    read_plan,
    without_budget,
    write_plan,
)
from seqloom.train.preparation import PreparedRun, build_options, data_digests, read_options

if TYPE_CHECKING:
    from seqloom.train.solvers import Solver

COMPRESSED = (".gz", ".zst")
logger = logging.getLogger("seqloom.train")


def default_folder(what: str, config: Config) -> Path:
    """runs/PRESET-DATA: the name of the preset or file, and of the first data file without its ending."""
    name = Path(what).stem
    if config.files.train:
        first = Path(config.files.train[0])
        if first.suffix in COMPRESSED:
            first = first.with_suffix("")
        name += f"-{'stdin' if first.name == '-' else first.stem}"
    return Path(os.environ.get("SEQLOOM_RUNS") or "runs") / name


def free_name(folder: Path) -> Path:
    """The folder's name with the first number that no other folder has."""
    number = 2
    while (other := folder.with_name(f"{folder.name}-{number}")).exists():
        number += 1
    return other


def clear_folder(folder: Path) -> None:
    """Deletes a run, to make room for another; refuses to delete anything else, and a run that is being trained."""
    if not folder.exists():
        return
    if not is_run(folder):
        raise ConfigError(
            f"{folder}: this is not a run folder, so it is not overwritten; choose another --out"
        )
    with files.exclusive(folder, "training"):
        doomed = folder.with_name(f".{folder.name}-overwritten")
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(folder, doomed)
        shutil.rmtree(doomed)


def check_folder(folder: Path, config: Config, may_lengthen: bool = False) -> None:
    """Raises unless the folder is new, empty, or holds a run with the same config; its budget may be another if the run is lengthened."""
    if is_run(folder):
        check_same_config(folder, config, may_lengthen)
        check_not_imported(folder)
        with files.exclusive(folder, "training"):
            return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"{folder}: exists and is not a run folder; choose another --out")


def check_same_config(folder: Path, config: Config, may_lengthen: bool) -> None:
    """Raises if the run in the folder has another config, whatever its files are called."""
    trees = [{**tree, "files": None} for tree in (config_of(folder)[0], config.tree)]
    if may_lengthen:
        trees = [without_budget(tree) for tree in trees]
    changes = config_tree.diff(trees[0], trees[1])
    if not changes:
        return
    remedy = f"choose another name, such as --out {free_name(folder)}, or replace the run with --overwrite"
    if not config_tree.diff(without_budget(trees[0]), without_budget(trees[1])):
        name, value = next(iter(budget_of(build_options(config)).items()), ("steps", 0))
        remedy = f"lengthen it with: seqloom train {folder} --{name} {value:g}; or {remedy}"
    raise ConfigError(f"{folder}: the run there has another config ({'; '.join(changes[:3])}); {remedy}")


def check_not_imported(folder: Path) -> None:
    """Raises for a run that another program has trained: its state is not known."""
    try:
        results = read_results(folder)
    except RunError:
        return
    if results.base and "format" in results.base:
        raise RunError(
            f"{folder}: an imported run has no state to go on from; train from its weights with: seqloom train PRESET --from {folder}"
        )


def finished_results(folder: Path, options: TrainOptions | Solver) -> Results | None:
    """The results of a run that is finished, its weights intact, and has this budget already; else None."""
    weights = folder / "model.safetensors"
    if not is_run(folder) or not weights.exists():
        return None
    phases = read_plan(folder)
    results = final_results(folder, phases)
    if results is None or not results.steps:
        return None
    budget = phases[-1].budget if phases else budget_of(read_options(*config_of(folder)))
    if budget != budget_of(options) or files.sha256(weights) != results.weights_sha256:
        return None
    return results


def open_folder(folder: Path, prepared: PreparedRun) -> None:
    """Creates the run folder with its config and tokenizer; for an existing run, checks that the data is the same."""
    if not is_run(folder):
        create_folder(folder, prepared)
        return
    try:
        before = json.loads((folder / "data.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise ConfigError(f"{folder / 'data.json'}: missing or damaged; choose another --out") from None
    for name, digest in data_digests(prepared).items():
        if before.get(name) != digest:
            raise ConfigError(
                f"{folder}: the {name} is not what the run began with; "
                "give the same files, or choose another --out"
            )


def create_folder(folder: Path, prepared: PreparedRun) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{folder}: cannot create the run folder ({reason}); choose another --out"
        ) from None
    tokenizer.save(prepared.tokenizer, folder / "tokenizer.json")
    if (template := prepared.config.template) is not None:
        files.write_atomic(folder / TEMPLATE_FILE, template_source(template))
    if fields.has_labels(prepared.config.kinds()):
        labels.save(prepared.labels, folder / "labels.json")
    files.write_atomic(folder / "data.json", json.dumps(data_digests(prepared), indent=1))
    if profiles := language_profiles(prepared.config):
        from seqloom.inference.language_check import PROFILE_FILE

        files.write_atomic(folder / PROFILE_FILE, json.dumps(profiles, ensure_ascii=False))
    if prepared.init_report:
        report = json.dumps(prepared.init_report._asdict(), indent=1)
        from seqloom.train.finetune import REPORT_FILE

        files.write_atomic(folder / REPORT_FILE, report)
    # The config comes last: with it the folder is a run.
    files.write_atomic(folder / "config.yaml", prepared.config.to_yaml())


def lengthen_if_asked(
    folder: Path, config: Config, options: TrainOptions, epoch_batches: Callable[[], int]
) -> None:
    """Lengthens the run in a folder if the config has another budget than its plan.

    The config is written before the plan: if the process dies between, the next one finds the difference again.
    """
    before = budget_of(read_options(*config_of(folder)))
    phases = read_plan(folder)
    if options.budget == (phases[-1].budget if phases else before):
        return
    if not phases and not any((folder / "checkpoints").glob("step-*")):
        # No step is fixed or saved yet: the run just begins again.
        files.write_atomic(folder / "config.yaml", config.to_yaml())
        return
    epoch_steps = epoch_batches() / options.accumulate if "epochs" in options.budget else 0.0
    phase = lengthen(folder, before, options.budget, LengthUnits(epoch_steps, options.eval_every))
    files.write_atomic(folder / "config.yaml", config.to_yaml())
    phases = read_plan(folder)
    write_plan(folder, [*phases, phase])
    logger.info(
        "lengthened: the run now ends at step %s instead of %s, and so does its schedule; "
        "after an interruption, go on with: seqloom train %s",
        f"{phase.steps:,}",
        f"{phases[-1].steps:,}",
        folder,
    )


def budget_of(options: TrainOptions | Solver) -> dict[str, float]:
    """The budget of a training; empty for a solver, which ends by itself."""
    return options.budget if isinstance(options, TrainOptions) else {}
