"""From a recipe to a finished run folder: tokenizer, stores, model, training, results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seqloom import config, evaluation, files, layouts
from seqloom.measure import Number
from seqloom.models import Model
from seqloom.nn import lora
from seqloom.run import Config, Run, config_of, is_run, named_weights, save_weights
from seqloom.text import fields, labels, tokenizer, tokenizer_file
from seqloom.text.store import Store
from seqloom.threads import use_threads
from seqloom.train import budget, distributed, finetune, initialize
from seqloom.train.loop import Trainer, TrainJob, TrainResult
from seqloom.train.optim import SGD, AdamW, ByValue, GlobalNorm, NoClip, PerTensor
from seqloom.train.progress import TokenizeProgress, log
from seqloom.train.schedule import Constant, Cosine, InverseSquareRoot, LinearDecay

TRAIN_PARTS: config.Names = {
    part.__name__: part
    for part in (
        AdamW,
        SGD,
        GlobalNorm,
        PerTensor,
        ByValue,
        NoClip,
        Constant,
        LinearDecay,
        Cosine,
        InverseSquareRoot,
    )
}


def build_trainer(recipe: Config) -> Trainer:
    """The trainer that a recipe's `train` section describes."""
    return config.options(Trainer, recipe.tree.get("train", {}), TRAIN_PARTS, "train", recipe.lines)()


class PreparedRun(NamedTuple):
    """A recipe with its data at hand."""

    recipe: Config
    tokenizer: Any
    train: Store
    valid: Store
    model: Model
    begun: finetune.InitReport | None
    labels: Sequence[str] = ()


def prepare(recipe: Config, saved: Path | None = None, quiet: bool = True) -> PreparedRun:
    """Tokenizer, stores and model; the tokenizer is the saved one where there is one. Sizes that do not fit are found before the data
    is read, and those that do not fit the data before anything is written."""
    sketch = recipe.sketch()
    given = tokenizer_file.load(saved) if saved and saved.exists() else finetune.source_tokenizer(recipe)
    learnt = given or layouts.with_family_template(sketch, recipe.tokenizer())
    known = (
        labels.load(saved.with_name("labels.json"))
        if saved and saved.with_name("labels.json").exists()
        else recipe.labels()
    )
    train, valid = recipe.stores(learnt, None if quiet else TokenizeProgress(), known)
    model = recipe.model(learnt.get_vocab_size(), known)
    model.set_unk_id(train.specials.unk)
    if not saved or not any(
        (saved.parent / "checkpoints").glob("step-*")
    ):  # which hold the table as it was learnt on
        initialize.load_word_vectors(model, learnt, None if quiet else log)
        initialize.initialize_from_data(model, train, known)
    begun = finetune.initialize(model, recipe, saved and saved.parent)
    for line in begun.lines(model) if begun and not quiet else ():
        log(line)
    batch, _ = next(recipe.data(train).batches())
    with torch.no_grad():
        recipe.objective(model, batch, None)
    return PreparedRun(recipe, learnt, train, valid, model, begun, known)


def check_folder(folder: Path, recipe: Config) -> None:
    """A run goes on only with the config it began with; a new one needs a folder of its own that can be written."""
    if is_run(folder):
        old, _ = config_of(folder)
        ours, theirs = (
            {key: value for key, value in tree.items() if key != "files"} for tree in (recipe.tree, old)
        )
        if found := config.diff(theirs, ours):
            raise ValueError(
                f"{folder}: the run there has another config ({'; '.join(found[:3])}); choose another --out or the same options"
            )
        with files.exclusive(folder, "training"):
            return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is no run folder; choose another --out")


def open_folder(folder: Path, ready: PreparedRun) -> None:
    """Make the run folder with its config and tokenizer; where it is there, see that the data is what the run began with."""
    if not is_run(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{folder}: cannot make the run folder ({(error.strerror or str(error)).lower()}); choose another --out"
            ) from None
        tokenizer.save(ready.tokenizer, folder / "tokenizer.json")
        if fields.has_labels(ready.recipe.kinds()):
            labels.save(ready.labels, folder / "labels.json")
        files.write_atomic(folder / "data.json", json.dumps(data_digests(ready), indent=1))
        if ready.begun:
            files.write_atomic(folder / "begin.json", json.dumps(ready.begun._asdict(), indent=1))
        files.write_atomic(
            folder / "config.yaml", config.write(ready.recipe.tree)
        )  # last: with it the folder is a run
        return
    try:
        before = json.loads((folder / "data.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{folder / 'data.json'}: missing or damaged; choose another --out") from None
    for name, now in data_digests(ready).items():
        if before.get(name) != now:
            raise ValueError(
                f"{folder}: the {name} is not what the run began with; give the same files, or choose another --out"
            )


def data_digests(ready: PreparedRun) -> dict[str, str]:
    """What a run is trained on, by content."""
    signature = tokenizer.signature(ready.tokenizer)
    named = {"labels": labels.signature(ready.labels)} if ready.labels else {}
    return {
        "training data": ready.train.digest,
        "held-out data": ready.valid.digest,
        "tokenizer": signature,
        **named,
    }


def train(recipe: Config, folder: Path, threads: int | None = None, quiet: bool = False) -> Run:
    """Trains a config into a run folder, or resumes the run in it, and returns the finished run.

    `threads` is the number of CPU threads during the call; None keeps torch's. Rank 0 reads and writes, the others follow.
    """
    with use_threads(threads or None):
        return _train(recipe, folder, quiet)


def _train(recipe: Config, folder: Path, quiet: bool) -> Run:
    options = build_trainer(finetune.pin_source(recipe))
    world = distributed.init()
    try:
        if world.first:
            check_folder(folder, recipe)
        else:
            distributed.barrier(world)
        ready = prepare(recipe, folder / "tokenizer.json", quiet or not world.first)
        if world.first:
            open_folder(folder, ready)
            distributed.barrier(world)
        job = TrainJob(folder, ready.model, recipe.objective, recipe.data(ready.train), recipe.data(ready.valid), world, recipe.seed,
                  finetune.lr_factors(ready.model, recipe))  # fmt: skip
        with files.exclusive(folder, "training") if world.first else nullcontext():
            outcome = options.fit(job, quiet)
            lora.merge_lora(ready.model)
            if world.first:
                finish_run(folder, ready, outcome, options.eval_batches)
        distributed.barrier(world)
    finally:
        distributed.shutdown()
    return Run(folder, recipe, ready.tokenizer, ready.model.eval(), ready.labels)


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
    """Train a preset or config file on your files into a run folder: what `seqloom train` does. `parts` are classes of your own that the
    config may name, `base` is a run to begin from."""
    recipe = Config.of(what, overrides, data, valid, seed, parts)
    return train(
        recipe if base is None else finetune.from_run(recipe, base, overrides, parts),
        Path(out),
        threads,
        quiet,
    )


def finish_run(folder: Path, ready: PreparedRun, outcome: TrainResult, most: int) -> None:
    """Write the final weights, and results.json with what was promised, what it took, and the numbers of at most `most` held-out batches.
    Whatever becomes of the numbers, the run can be opened."""
    save_weights(folder, ready.model, named_weights(ready.model), ready.tokenizer)
    write_results(folder, ready, outcome, [])
    numbers = evaluation.held_out(
        Run(folder, ready.recipe, ready.tokenizer, ready.model, ready.labels), ready.valid, most
    )
    write_results(folder, ready, outcome, numbers)


def write_results(folder: Path, ready: PreparedRun, outcome: TrainResult, numbers: list[Number]) -> None:
    """Write results.json."""
    begun = {"begun": ready.begun._asdict()} if ready.begun else {}
    files.write_atomic(
        folder / "results.json", json.dumps({**results(folder, outcome, numbers), **begun}, indent=1)
    )


def results(folder: Path, outcome: TrainResult, numbers: list[Number]) -> dict[str, Any]:
    promise = outcome.promise
    return {
        "steps": outcome.step,
        "best step": outcome.best_step,
        "tokens": outcome.tokens,
        "held out": [number.json() for number in numbers],
        "parameters": promise.parameters if promise else {},
        "FLOPs per token": promise.flops_per_token if promise else None,
        "promised": {"seconds": promise.seconds, "memory": promise.memory} if promise else None,
        "actual": {"seconds": outcome.seconds, "memory": budget.peak_memory()},
        "weights": {"sha256": files.sha256(folder / "model.safetensors")},
    }
