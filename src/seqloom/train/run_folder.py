"""The folder that a training writes into: its name, whether it may be used, what it holds before the first step, and whether the run in
it goes on."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seqloom import config_tree, files, run_files
from seqloom.config_source import config_of, is_run
from seqloom.errors import ConfigError, RunError
from seqloom.results import ProgressOption
from seqloom.run_config import Config
from seqloom.run_files import GRADIENTS_FILE, METRICS_FILE, RESULTS_FILE, TIMES_FILE, Results, read_results
from seqloom.text import labels, records, tokenizer
from seqloom.train.checkpoint import Checkpoint, remove_stale
from seqloom.train.options import TrainOptions
from seqloom.train.plan import (
    BUDGETS,
    PLAN_FILE,
    budget_of,
    final_results,
    read_plan,
    without_budget,
)
from seqloom.train.preparation import (
    PreparedRun,
    build_options,
    data_digests,
    language_profiles,
    prepare,
    read_options,
)

if TYPE_CHECKING:
    from seqloom.train.solvers import Solver

COMPRESSED = (".gz", ".zst")
INTERVALS = ("eval_every", "save_every", "log_every", "keep_checkpoints")
UNFINISHED = ".unfinished"  # the mark of a folder whose run is being created or deleted
# What a training writes into a run folder.
OWN_NAMES = {
    *run_files.FIXED_FILES,
    *(
        run_files.MANIFEST_FILE,
        run_files.OLD_DATA_FILE,
        PLAN_FILE,
        METRICS_FILE,
        TIMES_FILE,
        GRADIENTS_FILE,
        RESULTS_FILE,
    ),
    *("model.safetensors", "config.json", "tokenizer_config.json", "generation_config.json"),
    *("checkpoints", "reports", "tensorboard"),
}
logger = logging.getLogger("seqloom.train")


def default_folder(what: str, config: Config) -> Path:
    """runs/PRESET-DATA: the name of the preset or file, and of the first data file without its ending."""
    name = Path(what).stem
    if config.files.train:
        first = Path(config.files.train[0])
        if first.suffix in COMPRESSED:
            first = first.with_suffix("")
        name += f"-{'stdin' if first.name == '-' else 'world' if is_world(first) else first.stem}"
    return Path(os.environ.get("SEQLOOM_RUNS") or "runs") / name


def is_world(path: Path) -> bool:
    """Whether a file is one of those that `--data world` stands for."""
    cache = Path(os.path.realpath(files.cache_folder()))
    return path.is_relative_to(cache) and path.relative_to(cache).parts[0].startswith("world")


@contextmanager
def locked_folder(folder: Path) -> Iterator[None]:
    """Creates the folder of a training and locks it; other trainings are refused until the process ends. A folder that is still
    empty at the end is removed."""
    created = [path for path in (folder, *folder.parents) if not path.exists()]
    try:
        for path in reversed(created):
            path.mkdir(exist_ok=True)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise files.disk_error(error, folder, "the run") from error
        reason = (error.strerror or str(error)).lower()
        raise ConfigError(
            f"{folder}: cannot create the run folder ({reason}); choose another --out"
        ) from None
    if not folder.is_dir():
        raise ConfigError(f"{folder}: exists and is not a run folder; choose another --out")
    try:
        with files.exclusive(folder, "training"):
            yield
    finally:
        for path in created:
            with suppress(OSError):  # not empty
                path.rmdir()


def require_replaceable(folder: Path) -> None:
    """Raises unless a new run may take the place of what is in the folder: nothing, a run, or what remains of one."""
    if is_run(folder) or is_unfinished(folder) or run_files.is_listed(folder) or not any(folder.iterdir()):
        return
    raise ConfigError(f"{folder}: this is not a run folder, so it is not overwritten; choose another --out")


def clear_folder(folder: Path) -> None:
    """Deletes a run, to make room for another. If the process dies meanwhile, the rest is recognised as unfinished."""
    require_replaceable(folder)
    if not any(folder.iterdir()):
        return
    mark_unfinished(folder)
    (folder / run_files.CONFIG_FILE).unlink(missing_ok=True)
    for path in folder.iterdir():
        if path.name != UNFINISHED:
            remove(path)


def remove(path: Path) -> None:
    """Deletes a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def mark_unfinished(folder: Path) -> None:
    """Marks a folder whose run is not complete yet: if the process dies, the next training begins again there."""
    if not is_unfinished(folder):
        files.write_new(folder / UNFINISHED, b"")
        files.fsync_folder(folder)


def is_unfinished(folder: Path) -> bool:
    """Whether the creation of a run began in the folder and did not end."""
    return (folder / UNFINISHED).is_file()


def clear_unfinished(folder: Path) -> None:
    """Deletes what an interrupted creation has left; the mark goes last. Files of other names stay."""
    for path in folder.iterdir():
        if path.name in OWN_NAMES or files.is_draft(path):
            remove(path)
    (folder / UNFINISHED).unlink(missing_ok=True)


def check_folder(folder: Path, config: Config, may_lengthen: bool = False) -> run_files.Manifest | None:
    """The manifest of the run in the folder. Raises unless the folder is new, empty, unfinished, or holds a run with the same config, all
    its files intact; its budget may be another if the run is lengthened."""
    files.sweep_drafts(folder)
    if is_run(folder):
        check_same_config(folder, config, may_lengthen)
        check_not_imported(folder)
        manifest = run_files.check_manifest(folder)
        remove_stale(folder / "checkpoints")
        (folder / UNFINISHED).unlink(missing_ok=True)
        return manifest
    if is_unfinished(folder):
        logger.info("%s: an earlier training ended before its run was complete; it begins again", folder)
        clear_unfinished(folder)
        return None
    run_files.check_lost_config(folder)
    if any(folder.iterdir()):
        raise ConfigError(f"{folder}: exists and is not a run folder; choose another --out")
    return None


def check_same_config(folder: Path, config: Config, may_lengthen: bool) -> None:
    """Raises if the run in the folder has another config, whatever its files are called."""
    trees = [{**tree, "files": None} for tree in (config_of(folder)[0], config.tree)]
    if may_lengthen:
        trees = [without_budget(tree) for tree in trees]
    if not config_tree.diff(trees[0], trees[1]):
        return
    changes = differences(config_of(folder)[0], config.tree, may_lengthen)
    remedy = (
        f"choose another name, such as --out {files.free_name(folder)}, or replace the run with --overwrite"
    )
    same_options = without_budget(trees[0]) == without_budget(trees[1])
    if same_options and not changes[0].startswith("data: "):
        name, value = next(iter(budget_of(build_options(config)).items()), ("steps", 0))
        phases = read_plan(folder)
        shorter = name == "steps" and phases and value <= phases[-1].steps
        remedy = (
            remedy
            if shorter
            else f"lengthen it with: seqloom train {folder} --{name} {budget_value(name, value)}; or {remedy}"
        )
    raise ConfigError(f"{folder}: the run there has another config ({'; '.join(changes[:4])}); {remedy}")


def differences(old: config_tree.Tree, new: config_tree.Tree, may_lengthen: bool) -> list[str]:
    """What differs between the configs of two runs: the names of their data, their options, their budgets."""
    data = [
        " ".join(map(os.path.relpath, (tree.get("files") or {}).get("train") or [])) for tree in (old, new)
    ]
    found = [] if data[0] == data[1] else [f"data: {data[0]} → {data[1]}"]
    found += config_tree.diff({**without_budget(old), "files": None}, {**without_budget(new), "files": None})
    budgets = [
        {name: value for name, value in tree.get("train", {}).items() if name in BUDGETS}
        for tree in (old, new)
    ]
    if not may_lengthen and budgets[0] != budgets[1]:
        (name, before), (other, after) = ([*budget.items(), ("steps", None)][0] for budget in budgets)
        found.append(f"train.{name}: {before} → {'' if other == name else f'train.{other}: '}{after}")
    return found


def budget_value(name: str, value: float) -> str:
    """The value of a budget as the command line takes it; a time that is not in whole minutes in seconds."""
    if name == "minutes" and value != int(value):
        return f"{60 * value:.10g}s"
    return f"{value:.15g}"


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
    """Creates the files of a new run; for an existing run, checks that the data is the same."""
    if not is_run(folder):
        create_run(folder, prepared)
        return
    check_data(folder, prepared)


def check_data(folder: Path, prepared: PreparedRun) -> None:
    """Raises if the data is not what the run began with."""
    before = run_files.data_digests(folder)
    if before is None:
        raise ConfigError(f"{folder / run_files.MANIFEST_FILE}: missing; choose another --out")
    for name, digest in data_digests(prepared).items():
        if before.get(name) != digest:
            raise ConfigError(
                f"{folder}: the {name} is not what the run began with; "
                "give the same files, or choose another --out"
            )


def create_run(folder: Path, prepared: PreparedRun) -> None:
    """Writes the files that a run has before its first step. The config comes last: with it the folder is a run."""
    try:
        mark_unfinished(folder)
    except OSError as error:
        raise files.disk_error(error, folder, "the run") from error
    try:
        tokenizer.save(prepared.tokenizer, folder / "tokenizer.json")
        if (template := prepared.config.template) is not None:
            from seqloom.text.chat_template import TEMPLATE_FILE, template_source

            files.write_atomic(folder / TEMPLATE_FILE, template_source(template))
        if records.has_labels(prepared.config.kinds()):
            labels.save(prepared.labels, folder / "labels.json")
        if profiles := language_profiles(prepared.config):
            from seqloom.inference.language_check import PROFILE_FILE

            files.write_atomic(folder / PROFILE_FILE, json.dumps(profiles, ensure_ascii=False))
        if prepared.init_report:
            report = json.dumps(prepared.init_report._asdict(), indent=1)
            from seqloom.train.finetune import REPORT_FILE

            files.write_atomic(folder / REPORT_FILE, report)
        text = prepared.config.to_yaml()
        digest = lasting_digest(prepared.config.tree)
        run_files.write_manifest(
            folder, run_files.make_manifest(folder, text, digest, data_digests(prepared))
        )
        files.write_atomic(folder / run_files.CONFIG_FILE, text)
    except Exception:
        with suppress(OSError):
            clear_unfinished(folder)
        raise
    (folder / UNFINISHED).unlink(missing_ok=True)


def lasting_digest(tree: config_tree.Tree) -> str:
    """The digest of what stays of a config when the run is lengthened: all but its budget, its intervals and the names of its files."""
    train = {name: value for name, value in without_budget(tree)["train"].items() if name not in INTERVALS}
    lasting = {**tree, "train": train, "files": None}
    return files.digest(json.dumps(lasting, sort_keys=True, default=str).encode())


class OpenedRun(NamedTuple):
    """What the main rank finds in the folder: whether the run is finished, and else its data and the checkpoint to go on from."""

    finished: bool = False
    prepared: PreparedRun | None = None
    saved: Checkpoint | None = None


def open_run(
    config: Config,
    folder: Path,
    may_lengthen: bool,
    options: TrainOptions | Solver,
    progress: ProgressOption,
    overwrite: bool,
    describes_data: bool,
) -> OpenedRun:
    """Checks the folder, which is locked, and reads the data; creates the run, or finds out where it goes on."""
    if overwrite:
        require_replaceable(folder)
        prepared = prepare(config, None, progress, describes_data=describes_data)
        clear_folder(folder)
        open_folder(folder, prepared)
        return OpenedRun(prepared=prepared)
    manifest = check_folder(folder, config, may_lengthen)
    finished = finished_results(folder, options) is not None
    has_its_files = config.tree.get("files") == config_of(folder)[0].get("files") if finished else False
    if finished and may_lengthen and has_its_files:  # a run that is named needs no data to be finished
        return OpenedRun(True)
    is_new, saved = not is_run(folder), None
    if not is_new and not finished:
        from seqloom.train.resume import newest_checkpoint

        saved = newest_checkpoint(folder, manifest, logger.warning)
        if saved is None and isinstance(options, TrainOptions):
            logger.info("%s: the run has no checkpoint to go on from; it begins again", folder)
    prepared = prepare(
        config,
        folder / "tokenizer.json",
        progress,
        describes_data=describes_data,
        resumes=finished or saved is not None,
    )
    open_folder(folder, prepared)
    if not is_new and not finished and isinstance(options, TrainOptions):
        from seqloom.train.lengthen import lengthen_if_asked

        batches = config.data(prepared.train).epoch_batches
        lengthen_if_asked(folder, config, options, batches, saved is not None)
    return OpenedRun(finished, prepared, saved)
