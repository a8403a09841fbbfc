"""From a config to a finished run folder: data, model, training, results."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from functools import partial
from os import PathLike
from os.path import realpath
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Unpack

import torch

from seqloom import __version__, evaluation, files, run_files
from seqloom.config_source import Change, is_run, parse_changes, preset_names
from seqloom.data.options import Data
from seqloom.decoding.generation_config import keep_generation_config
from seqloom.errors import ConfigError, OutOfMemory, UserError
from seqloom.measure.number import Number
from seqloom.results import ProgressOption
from seqloom.run import Run, load, named_weights, save_weights
from seqloom.run_config import Config
from seqloom.run_files import (
    ActualCost,
    ParameterCounts,
    PromisedCost,
    Results,
    read_results,
    write_results,
)
from seqloom.threads import thread_count, use_threads
from seqloom.train import budget as costs
from seqloom.train import process
from seqloom.train.budget import refuse_costs
from seqloom.train.loop import TrainLoop
from seqloom.train.options import TrainOptions, TrainResult
from seqloom.train.plan import BUDGETS, Budget, budget_of, resolve_increase, set_budget
from seqloom.train.preparation import PreparedRun, as_run, build_options, make_job, prepare
from seqloom.train.process import ProcessGroup
from seqloom.train.run_folder import (
    OpenedRun,
    default_folder,
    locked_folder,
    open_run,
)

if TYPE_CHECKING:
    from seqloom.train.solvers import Solver

logger = logging.getLogger("seqloom.train")


class Training(NamedTuple):
    """What to train, and where. `resumes` says that a run was named, which may be lengthened."""

    config: Config
    folder: Path
    resumes: bool = False


def plan_training(
    what: str | Config,
    changes: Sequence[Change] = (),
    data: Data | None = None,
    valid: Data | float | None = None,
    base: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    seed: int | None = None,
    parts: Sequence[type[torch.nn.Module]] = (),
    budget: Budget | None = None,
) -> Training:
    """The config and the folder of a training, from what the user asks for."""
    for change in changes:
        if isinstance(change, str) and "=" not in change and Path(change).is_file():
            raise UserError(f"{change}: to train on a file: seqloom train {what} --data {change}")
    run_folder: Path | None = None
    if isinstance(what, Config):
        config = what.change(*changes, *([] if seed is None else [{"seed": seed}])).with_data(data, valid)
        name = config.lines.preset or "run"
    else:
        name = str(what)
        check_name(name)
        run_folder = Path(name) if name not in preset_names() and is_run(name) else None
        config = Config.load(name, changes, data, valid, seed, parts)
    if base is not None:
        from seqloom.train.finetune import from_run

        config = from_run(config, Path(base), changes, parts)
    resumes = (
        run_folder is not None and base is None and (out is None or realpath(out) == realpath(run_folder))
    )
    config = with_budget(config, changes, budget or {}, run_folder if resumes else None)
    folder = run_folder if resumes and run_folder else Path(out) if out else default_folder(name, config)
    return Training(config, folder, resumes)


def check_name(what: str) -> None:
    """Raises for a data file in the place of a preset."""
    path = Path(what)
    if what not in preset_names() and path.is_file() and path.suffix not in (".yaml", ".yml"):
        raise UserError(f"{what}: this is no config; to train on it: seqloom train PRESET --data {what}")


def with_budget(config: Config, changes: Sequence[Change], budget: Budget, run: Path | None) -> Config:
    """The config with the budget that was asked for, by an option or by a change, in place of any other."""
    prefix = "train."
    named = {
        path.removeprefix(prefix): value
        for path, value, _ in parse_changes(changes)
        if path.removeprefix(prefix) in BUDGETS and path.startswith(prefix) and value is not None
    }
    wanted = {**named, **{name: value for name, value in budget.items() if value is not None}}
    if not wanted:
        return config
    if len(wanted) > 1:
        raise ConfigError(f"several budgets ({', '.join(wanted)}); give one of {', '.join(BUDGETS)}")
    if "type" in config.tree.get("train", {}):
        raise ConfigError(
            f"train.{next(iter(wanted))}: a solver fits this model and needs no budget; leave it out"
        )
    present = budget_of(build_options(config)) if not named else {}
    resolved = resolve_increase(wanted, run, present)
    tree = set_budget(config.tree, resolved)
    return Config(tree, config.lines, config.own_parts)


def fit(
    what: str | Config,
    *changes: Change,
    data: Data | None = None,
    valid: Data | float | None = None,
    base: str | PathLike[str] | None = None,
    out: str | PathLike[str] | None = None,
    overwrite: bool = False,
    seed: int | None = None,
    threads: int | None = None,
    parts: Sequence[type[torch.nn.Module]] = (),
    progress: ProgressOption = True,
    **budget: Unpack[Budget],
) -> Run:
    """Trains a preset, a config or a YAML file on your files into a run folder, or goes on with a run, as `seqloom train` does.

    Changes are texts such as "model.dim=64" or dicts such as {"model.dim": 64}. `valid` are files to choose by, or the share of the data
    that is held out, by default a tenth. `base` is a run whose weights the training starts from; `parts` are your own classes that the
    config names. `out` is the folder, by default runs/PRESET-DATA; `overwrite` replaces a run that is there. The budget is one of
    steps, minutes, epochs, tokens and flops; `fit(run_folder, steps="+100")` lengthens a run. `threads` holds for this call only.

    >>> trained = seqloom.fit("lstm-lm", {"model.dim": 8, "model.stack.dim": 8}, data="input.txt", steps=4, progress=False)
    >>> trained.folder.name, trained.results.steps
    ('lstm-lm-input', 4)
    >>> seqloom.fit(str(trained.folder), steps="+2", progress=False).results.steps
    6
    """
    training = plan_training(what, changes, data, valid, base, out, seed, parts, budget)
    return train(*training[:2], threads, progress, training.resumes, overwrite)


def train(
    config: Config,
    folder: Path,
    threads: int | None = None,
    progress: ProgressOption = True,
    may_lengthen: bool = False,
    overwrite: bool = False,
    describes_data: bool = True,
) -> Run:
    """Trains a config into a run folder, or resumes the run that is there, and returns the finished run.

    If the run may be lengthened, the config may have a larger budget than it had. Of several processes under torchrun, the main rank
    reads and writes the folder. `threads` holds for this call only. Without `describes_data` it does not log what the data is.
    """
    if is_run(folder) and not overwrite:
        config = config.continuing(folder)
    is_set = threads is not None or "SEQLOOM_THREADS" in os.environ
    with use_threads(thread_count(threads)) if is_set else nullcontext():
        options = build_options(pinned(config))
        with process.name_lost_process():
            group = process.init()
            prepared = train_as_rank(
                Training(config, folder, may_lengthen),
                options,
                group,
                progress,
                overwrite,
                describes_data,
            )
            process.shutdown()
    if prepared is None:
        return load(folder, parts=config.own_parts)
    return Run(folder, config, prepared.tokenizer, prepared.model.eval(), prepared.labels)


def pinned(config: Config) -> Config:
    """The config with the weights that it begins from fixed by their digest, if it fine-tunes a run."""
    if not config.finetunes:
        return config
    from seqloom.train.finetune import pin_source

    return pin_source(config)


@contextmanager
def on_main_rank(group: ProcessGroup) -> Iterator[bool]:
    """Yields whether this is the main rank; an error there ends all processes, which would else wait for it."""
    error: Exception | None = None
    try:
        yield group.is_main
    except Exception as caught:
        error = caught
    process.agree(group, error)


def train_as_rank(
    training: Training,
    options: TrainOptions | Solver,
    group: ProcessGroup,
    progress: ProgressOption,
    overwrite: bool,
    describes_data: bool,
) -> PreparedRun | None:
    """Trains as one of the processes of a group; None if the run in the folder is finished already."""
    config, folder, _ = training
    with ExitStack() as lock:
        opened = OpenedRun()
        with on_main_rank(group) as is_main:
            if is_main:
                lock.enter_context(locked_folder(folder))
                opened = open_run(*training, options, progress, overwrite, describes_data)
        if any(process.all_sum(group, opened.finished)):
            if group.is_main:
                logger.info("%s", finished_message(folder, options))
            return None
        prepared, saved, manifest = opened.prepared, opened.saved, run_files.read_manifest(folder)
        if prepared is None:
            from seqloom.train.resume import newest_checkpoint

            saved = newest_checkpoint(folder, manifest, logger.debug)
            prepared = prepare(config, folder / "tokenizer.json", is_main=False, resumes=saved is not None)
        if not isinstance(options, TrainOptions):
            if group.is_main:
                solve_run(folder, prepared, options, progress)
            process.barrier(group)
            return prepared
        job = make_job(folder, prepared, group)._replace(
            check_costs=partial(refuse_costs, config, options),
            saved=saved,
            identity=manifest.identity if manifest else None,
        )
        with memory_errors():
            result = TrainLoop(options, job, progress).run()
            numbers: list[Number] = []
            if config.uses_feedback and group.is_main:
                from seqloom.train.feedback import held_out_numbers

                conditions = evaluation.conditions(as_run(folder, prepared), prepared.valid)
                numbers = held_out_numbers(job, options.eval_batches, conditions)
            if config.finetunes:
                from seqloom.nn.lora import merge_lora

                merge_lora(prepared.model)
            if group.is_main:
                finish_run(folder, prepared, result, options.eval_batches, numbers)
        process.barrier(group)
        return prepared


def finished_message(folder: Path, options: TrainOptions | Solver) -> str:
    """What a user may do with a run that has nothing left to train."""
    steps = read_results(folder).steps
    if not isinstance(options, TrainOptions):
        return f"{folder}: finished; train it anew with --overwrite"
    return f"{folder}: finished at step {steps:,}; lengthen it with: seqloom train {folder} --steps +{steps}"


@contextmanager
def memory_errors() -> Iterator[None]:
    """Turns torch's errors about memory into OutOfMemory."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        message = str(error)
        if not isinstance(error, MemoryError | torch.OutOfMemoryError) and not any(
            sign in message for sign in ("not enough memory", "can't allocate memory", "out of memory")
        ):
            raise
        raise OutOfMemory(
            "the memory of this machine is used up; make the batches smaller (batches.batch or batches.batch_tokens) and set "
            "train.accumulate to take as many of them for a step, or make the model smaller"
        ) from error


def solve_run(folder: Path, prepared: PreparedRun, solver: Solver, progress: ProgressOption) -> None:
    """Fits the model by a solver and writes its weights and results.json."""
    from seqloom.train.solve import solve

    result, numbers = solve(folder, prepared, solver, progress)
    save_weights(folder, prepared.model, named_weights(prepared.model), prepared.tokenizer)
    write_results(folder, replace(results(folder, prepared, result, numbers), promised=None))


def finish_run(
    folder: Path, prepared: PreparedRun, result: TrainResult, eval_batches: int, numbers: list[Number]
) -> None:
    """Writes the final weights, and results.json with the given scores, or else those of at most `eval_batches` held-out batches.

    results.json is written before the evaluation too, so that the run can be opened if the evaluation fails.
    """
    save_weights(folder, prepared.model, named_weights(prepared.model), prepared.tokenizer)
    if prepared.model.generates:
        keep_generation_config(folder, folder, not prepared.model.continues)
    write_results(folder, results(folder, prepared, result, []))
    numbers = numbers or evaluation.held_out(as_run(folder, prepared), prepared.valid, eval_batches)
    write_results(folder, results(folder, prepared, result, numbers))


def results(folder: Path, prepared: PreparedRun, result: TrainResult, numbers: list[Number]) -> Results:
    """The content of results.json: estimated and actual costs, and the scores on the held-out data."""
    estimate = result.estimate
    counts = estimate.parameters if estimate else costs.parameters(prepared.model)
    return Results(
        steps=result.step,
        best_step=result.best_step,
        tokens=result.tokens,
        valid=numbers,
        parameters=ParameterCounts(sum(counts.values()), counts),
        flops_per_token=estimate.flops_per_token if estimate else None,
        promised=PromisedCost(estimate.seconds, estimate.memory, estimate.steps, estimate.low, estimate.high)
        if estimate
        else None,
        actual=ActualCost(result.seconds, costs.peak_memory(), "cpu", torch.get_num_threads()),
        base=prepared.init_report._asdict() if prepared.init_report else None,
        versions={"seqloom": __version__, "torch": torch.__version__},
        weights_sha256=files.sha256(folder / "model.safetensors"),
    )
