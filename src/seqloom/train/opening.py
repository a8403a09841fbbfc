"""Opens the folder of a training: what is there is checked, what is new is created, and the training gets its job."""

from __future__ import annotations

import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from seqloom import evaluation
from seqloom.models.base import Model
from seqloom.progress import ProgressOption
from seqloom.run import Run
from seqloom.run_config import Config, is_run
from seqloom.train.checkpoint import Checkpoint
from seqloom.train.options import TrainJob, TrainOptions
from seqloom.train.preparation import PreparedRun, make_data, prepare
from seqloom.train.process import ProcessGroup
from seqloom.train.resume import newest_checkpoint
from seqloom.train.run_folder import (
    check_folder,
    clear_folder,
    finished_results,
    lengthen_if_asked,
    open_folder,
    require_replaceable,
)

if TYPE_CHECKING:
    from seqloom.train.solvers import Solver

logger = logging.getLogger("seqloom.train")


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
    if finished and may_lengthen:  # a run that is named needs no data to be finished
        return OpenedRun(True)
    saved = None if finished else newest_checkpoint(folder, manifest, logger.warning)
    if is_run(folder) and saved is None and not finished and isinstance(options, TrainOptions):
        logger.info("%s: the run has no checkpoint to go on from; it begins again", folder)
    prepared = prepare(
        config,
        folder / "tokenizer.json",
        progress,
        describes_data=describes_data,
        resumes=finished or saved is not None,
    )
    open_folder(folder, prepared)
    if not finished and isinstance(options, TrainOptions):
        batches = config.data(prepared.train).epoch_batches
        lengthen_if_asked(folder, config, options, batches, saved is not None)
    return OpenedRun(finished, prepared, saved)


def make_job(folder: Path, prepared: PreparedRun, group: ProcessGroup = ProcessGroup()) -> TrainJob:
    """The job of a training that begins."""
    config, model = prepared.config, prepared.model
    data = make_data(config, model, prepared.tokenizer, group)
    return TrainJob(
        folder,
        model,
        config.objective,
        data(prepared.train),
        data(prepared.valid),
        group,
        config.seed,
        lr_factors(model, config),
        partial(count_bytes, folder, prepared),
    )


def lr_factors(model: Model, config: Config) -> dict[str, float]:
    """Factors of the learning rate by parameter, if the config fine-tunes a run."""
    if not config.finetunes:
        return {}
    from seqloom.train import finetune

    return finetune.lr_factors(model, config)


def count_bytes(folder: Path, prepared: PreparedRun, count: int) -> int:
    """The UTF-8 bytes of the held-out text if `count` tokens are all of it, else 0."""
    if not prepared.model.predicts_tokens:
        return 0
    return evaluation.utf8_bytes(as_run(folder, prepared), prepared.valid, count)


def as_run(folder: Path, prepared: PreparedRun) -> Run:
    return Run(folder, prepared.config, prepared.tokenizer, prepared.model, prepared.labels)
