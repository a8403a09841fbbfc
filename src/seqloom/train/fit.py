"""From a config to a finished run folder: tokenizer, stores, model, training, results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tokenizers import Tokenizer

from seqloom import config, evaluation, files, layouts
from seqloom.measure.number import Number
from seqloom.models import Model
from seqloom.nn import lora
from seqloom.nn.embedding import Embedding
from seqloom.run import Config, Run, config_of, is_run, named_weights, save_weights
from seqloom.text import fields, labels, tokenizer, tokenizer_file
from seqloom.text.store import Store
from seqloom.threads import use_threads
from seqloom.train import budget, finetune, initialize, process
from seqloom.train.loop import TrainLoop
from seqloom.train.process import World
from seqloom.train.progress import TokenizeProgress, log
from seqloom.train.trainer import (
    SGD,
    AdamW,
    ByValue,
    Constant,
    Cosine,
    GlobalNorm,
    InverseSquareRoot,
    LinearDecay,
    NoClip,
    PerTensor,
    Trainer,
    TrainJob,
    TrainResult,
)

OPTIMIZERS = (AdamW, SGD)
CLIPS = (GlobalNorm, PerTensor, ByValue, NoClip)
SCHEDULES = (Constant, LinearDecay, Cosine, InverseSquareRoot)
TRAIN_PARTS: config.Names = {part.__name__: part for part in (*OPTIMIZERS, *CLIPS, *SCHEDULES)}


def build_trainer(recipe: Config) -> Trainer:
    """The options in the `train` section of a config."""
    section = recipe.tree.get("train", {})
    return config.options(Trainer, section, TRAIN_PARTS, "train", recipe.lines)()


class PreparedRun(NamedTuple):
    """A config with its tokenizer, data and initial model."""

    recipe: Config
    tokenizer: Tokenizer
    train: Store
    valid: Store
    model: Model
    init_report: finetune.InitReport | None
    labels: Sequence[str] = ()


def prepare(recipe: Config, saved: Path | None = None, quiet: bool = True) -> PreparedRun:
    """Builds the tokenizer, the stores and the model; reads the tokenizer and the labels of a run folder if it has them.

    `saved` is the path of the run's tokenizer.json. Sizes that do not fit each other raise before any data is read,
    and sizes that do not fit the data raise before anything is written.
    """
    meta_model = recipe.meta_model()
    if saved and saved.exists():
        trained_tokenizer = tokenizer_file.load(saved)
    else:
        source_tokenizer = finetune.source_tokenizer(recipe) if recipe.finetunes else None
        trained_tokenizer = source_tokenizer or layouts.with_family_template(meta_model, recipe.tokenizer())
    if saved and saved.with_name("labels.json").exists():
        label_names: Sequence[str] = labels.load(saved.with_name("labels.json"))
    else:
        label_names = recipe.labels()
    progress = None if quiet else TokenizeProgress()
    train, valid = recipe.stores(trained_tokenizer, progress, label_names)
    model = recipe.model(trained_tokenizer.get_vocab_size(), label_names)
    if model.predicts_labels:
        model.set_unk_id(train.specials.unk)
    # A checkpoint holds these weights as they were after training, so a resumed run does not set them again.
    if not saved or not any((saved.parent / "checkpoints").glob("step-*")):
        if any(isinstance(part, Embedding) and part.vectors is not None for part in model.modules()):
            initialize.load_word_vectors(model, trained_tokenizer, None if quiet else log)
        if model.predicts_labels:
            initialize.initialize_from_data(model, train, label_names)
    init_report = finetune.initialize(model, recipe, saved and saved.parent) if recipe.finetunes else None
    if init_report and not quiet:
        for line in init_report.lines(model):
            log(line)
    batch, _ = next(recipe.data(train).batches())
    with torch.no_grad():
        recipe.objective(model, batch, None)
    return PreparedRun(recipe, trained_tokenizer, train, valid, model, init_report, label_names)


def check_folder(folder: Path, recipe: Config) -> None:
    """Raises unless the folder is new, empty, or holds a run with the same config."""
    if is_run(folder):
        old_tree, _ = config_of(folder)
        old, new = (
            {key: value for key, value in tree.items() if key != "files"} for tree in (old_tree, recipe.tree)
        )
        if changes := config.diff(old, new):
            raise ValueError(
                f"{folder}: the run there has another config ({'; '.join(changes[:3])}); "
                "choose another --out or the same options"
            )
        with files.exclusive(folder, "training"):
            return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is not a run folder; choose another --out")


def open_folder(folder: Path, prepared: PreparedRun) -> None:
    """Creates the run folder with its config and tokenizer; for an existing run, checks that the data is the same."""
    if not is_run(folder):
        create_folder(folder, prepared)
        return
    try:
        before = json.loads((folder / "data.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{folder / 'data.json'}: missing or damaged; choose another --out") from None
    for name, digest in data_digests(prepared).items():
        if before.get(name) != digest:
            raise ValueError(
                f"{folder}: the {name} is not what the run began with; "
                "give the same files, or choose another --out"
            )


def create_folder(folder: Path, prepared: PreparedRun) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise ValueError(f"{folder}: cannot create the run folder ({reason}); choose another --out") from None
    tokenizer.save(prepared.tokenizer, folder / "tokenizer.json")
    if fields.has_labels(prepared.recipe.kinds()):
        labels.save(prepared.labels, folder / "labels.json")
    files.write_atomic(folder / "data.json", json.dumps(data_digests(prepared), indent=1))
    if prepared.init_report:
        report = json.dumps(prepared.init_report._asdict(), indent=1)
        files.write_atomic(folder / finetune.REPORT_FILE, report)
    # The config comes last: with it the folder is a run.
    files.write_atomic(folder / "config.yaml", config.write(prepared.recipe.tree))


def data_digests(prepared: PreparedRun) -> dict[str, str]:
    """Digests of the data that a run is trained on."""
    digests = {
        "training data": prepared.train.digest,
        "held-out data": prepared.valid.digest,
        "tokenizer": tokenizer.signature(prepared.tokenizer),
    }
    if prepared.labels:
        digests["labels"] = labels.signature(prepared.labels)
    return digests


def train(recipe: Config, folder: Path, threads: int | None = None, quiet: bool = False) -> Run:
    """Trains a config into a run folder, or resumes the run that is there, and returns the finished run.

    Of several processes under torchrun, the main rank reads and writes the folder. `threads` holds for this call only.
    """
    with use_threads(threads) if threads else nullcontext():
        options = build_trainer(finetune.pin_source(recipe) if recipe.finetunes else recipe)
        world = process.init()
        try:
            prepared = train_in_world(recipe, folder, options, world, quiet)
        finally:
            process.shutdown()
    return Run(folder, recipe, prepared.tokenizer, prepared.model.eval(), prepared.labels)


def train_in_world(recipe: Config, folder: Path, options: Trainer, world: World, quiet: bool) -> PreparedRun:
    """Trains as one of the processes of a world."""
    if world.is_main:
        check_folder(folder, recipe)
    else:
        process.barrier(world)
    prepared = prepare(recipe, folder / "tokenizer.json", quiet or not world.is_main)
    if world.is_main:
        open_folder(folder, prepared)
        process.barrier(world)
    model = prepared.model
    job = TrainJob(
        folder,
        model,
        recipe.objective,
        recipe.data(prepared.train),
        recipe.data(prepared.valid),
        world,
        recipe.seed,
        finetune.lr_factors(model, recipe) if recipe.finetunes else {},
    )
    with files.exclusive(folder, "training") if world.is_main else nullcontext():
        result = TrainLoop(options, job, quiet).run()
        if recipe.finetunes:
            lora.merge_lora(model)
        if world.is_main:
            finish_run(folder, prepared, result, options.eval_batches)
    process.barrier(world)
    return prepared


def fit(
    what: str,
    *overrides: str,
    data: Sequence[str] | None = None,
    valid: Sequence[str] | None = None,
    out: str | Path = "runs/latest",
    seed: int | None = None,
    threads: int | None = None,
    quiet: bool = False,
    parts: Sequence[type[torch.nn.Module]] = (),
    base: str | Path | None = None,
) -> Run:
    """Trains a preset or a config file on your files into a run folder, as `seqloom train` does.

    `parts` are your own classes that the config names; `base` is a run whose weights the training starts from.
    """
    recipe = Config.load(what, overrides, data, valid, seed, parts)
    if base is not None:
        recipe = finetune.from_run(recipe, base, overrides, parts)
    return train(recipe, Path(out), threads, quiet)


def finish_run(folder: Path, prepared: PreparedRun, result: TrainResult, eval_batches: int) -> None:
    """Writes the final weights, and results.json with the scores of at most `eval_batches` held-out batches.

    results.json is written before the evaluation too, so that the run can be opened if the evaluation fails.
    """
    save_weights(folder, prepared.model, named_weights(prepared.model), prepared.tokenizer)
    write_results(folder, prepared, result, [])
    run = Run(folder, prepared.recipe, prepared.tokenizer, prepared.model, prepared.labels)
    numbers = evaluation.held_out(run, prepared.valid, eval_batches)
    write_results(folder, prepared, result, numbers)


def write_results(folder: Path, prepared: PreparedRun, result: TrainResult, numbers: list[Number]) -> None:
    """Writes results.json."""
    content = results(folder, result, numbers)
    if prepared.init_report:
        content["begun"] = prepared.init_report.to_results()
    files.write_atomic(folder / "results.json", json.dumps(content, indent=1))


def results(folder: Path, result: TrainResult, numbers: list[Number]) -> dict[str, Any]:
    """The content of results.json: estimated and actual costs, and the scores on the held-out data."""
    estimate = result.estimate
    return {
        "steps": result.step,
        "best step": result.best_step,
        "tokens": result.tokens,
        "held out": [number.json() for number in numbers],
        "parameters": estimate.parameters if estimate else {},
        "FLOPs per token": estimate.flops_per_token if estimate else None,
        "promised": {"seconds": estimate.seconds, "memory": estimate.memory} if estimate else None,
        "actual": {"seconds": result.seconds, "memory": budget.peak_memory()},
        "weights": {"sha256": files.sha256(folder / "model.safetensors")},
    }
