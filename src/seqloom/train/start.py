"""From a recipe to a finished run folder: tokenizer, stores, model, training, results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch

from seqloom import config, evaluate, files, layouts, tasks
from seqloom.measure import Number
from seqloom.nn import lora
from seqloom.run import Recipe, Run, config_of, is_run, keep, weights
from seqloom.text import kinds, labels, tokenizer
from seqloom.text.store import Store
from seqloom.train import begin, budget, distributed, vectors
from seqloom.train.loop import Job, Outcome, Trainer
from seqloom.train.optim import SGD, AdamW, ByValue, GlobalNorm, NoClip, PerTensor
from seqloom.train.progress import Reading, say
from seqloom.train.schedule import Constant, Cosine, InverseSquareRoot, Linear

NAMES: config.Names = {
    part.__name__: part
    for part in (
        AdamW,
        SGD,
        GlobalNorm,
        PerTensor,
        ByValue,
        NoClip,
        Constant,
        Linear,
        Cosine,
        InverseSquareRoot,
    )
}


def trainer(recipe: Recipe) -> Trainer:
    """The trainer that a recipe's `train` section describes."""
    return config.options(Trainer, recipe.tree.get("train", {}), NAMES, "train", recipe.lines)()


class Prepared(NamedTuple):
    """A recipe with its data at hand."""

    recipe: Recipe
    tokenizer: Any
    train: Store
    valid: Store
    model: torch.nn.Module
    begun: begin.Begun | None
    labels: Sequence[str] = ()


def prepare(recipe: Recipe, saved: Path | None = None, quiet: bool = True) -> Prepared:
    """Tokenizer, stores and model; the tokenizer is the saved one where there is one. Sizes that do not fit are found before the data
    is read, and those that do not fit the data before anything is written."""
    sketch = recipe.sketch()
    given = tokenizer.load(saved) if saved and saved.exists() else begin.source_tokenizer(recipe)
    learnt = given or layouts.framed(sketch, recipe.tokenizer())
    known = (
        labels.load(saved.with_name("labels.json"))
        if saved and saved.with_name("labels.json").exists()
        else recipe.labels()
    )
    train, valid = recipe.stores(learnt, None if quiet else Reading(), known)
    model = recipe.model(learnt.get_vocab_size(), known)
    if hasattr(model, "unk"):
        model.unk = train.specials.unk
    if not saved or not any(
        (saved.parent / "checkpoints").glob("step-*")
    ):  # which hold the table as it was learnt on
        vectors.begin(model, learnt, None if quiet else say)
        tasks.begin(model, train, known)
    begun = begin.begin(model, recipe, saved and saved.parent)
    for line in begun.lines(model) if begun and not quiet else ():
        say(line)
    batch, _ = next(recipe.data(train).batches())
    with torch.no_grad():
        recipe.objective(model, batch, None)
    return Prepared(recipe, learnt, train, valid, model, begun, known)


def check_folder(folder: Path, recipe: Recipe) -> None:
    """A run goes on only with the config it began with; a new one needs a folder of its own that can be written."""
    if is_run(folder):
        old, _ = config_of(folder)
        ours, theirs = (
            {key: value for key, value in tree.items() if key != "files"} for tree in (recipe.tree, old)
        )
        if found := config.difference(theirs, ours):
            raise ValueError(
                f"{folder}: the run there has another config ({'; '.join(found[:3])}); choose another --out or the same options"
            )
        with files.alone(folder, "training"):
            return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ValueError(f"{folder}: exists and is no run folder; choose another --out")


def open_folder(folder: Path, ready: Prepared) -> None:
    """Make the run folder with its config and tokenizer; where it is there, see that the data is what the run began with."""
    if not is_run(folder):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ValueError(
                f"{folder}: cannot make the run folder ({(error.strerror or str(error)).lower()}); choose another --out"
            ) from None
        tokenizer.save(ready.tokenizer, folder / "tokenizer.json")
        if kinds.labelled(ready.recipe.kinds()):
            labels.save(ready.labels, folder / "labels.json")
        files.write_whole(folder / "data.json", json.dumps(digests(ready), indent=1))
        if ready.begun:
            files.write_whole(folder / "begin.json", json.dumps(ready.begun._asdict(), indent=1))
        files.write_whole(
            folder / "config.yaml", config.write(ready.recipe.tree)
        )  # last: with it the folder is a run
        return
    try:
        before = json.loads((folder / "data.json").read_text("utf-8"))
    except (OSError, ValueError):
        raise ValueError(f"{folder / 'data.json'}: missing or damaged; choose another --out") from None
    for name, now in digests(ready).items():
        if before.get(name) != now:
            raise ValueError(
                f"{folder}: the {name} is not what the run began with; give the same files, or choose another --out"
            )


def digests(ready: Prepared) -> dict[str, str]:
    """What a run is trained on, by content."""
    signature = tokenizer.signature(ready.tokenizer)
    named = {"labels": labels.signature(ready.labels)} if ready.labels else {}
    return {
        "training data": ready.train.digest,
        "held-out data": ready.valid.digest,
        "tokenizer": signature,
        **named,
    }


def train(recipe: Recipe, folder: Path, threads: int | None = None, quiet: bool = False) -> Run:
    """Train a recipe into a run folder, or go on with what is there, and give back the finished run. The first rank reads and writes,
    the others follow."""
    if threads:
        torch.set_num_threads(threads)
    options = trainer(begin.pinned(recipe))
    world = distributed.join()
    try:
        if world.first:
            check_folder(folder, recipe)
        else:
            distributed.wait(world)
        ready = prepare(recipe, folder / "tokenizer.json", quiet or not world.first)
        if world.first:
            open_folder(folder, ready)
            distributed.wait(world)
        job = Job(folder, ready.model, recipe.objective, recipe.data(ready.train), recipe.data(ready.valid), world, recipe.seed,
                  begin.factors(ready.model, recipe))  # fmt: skip
        with files.alone(folder, "training") if world.first else nullcontext():
            outcome = options.fit(job, quiet)
            lora.merge(ready.model)
            if world.first:
                finish(folder, ready, outcome, options.valid)
        distributed.wait(world)
    finally:
        distributed.leave()
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
    recipe = Recipe.of(what, overrides, data, valid, seed, parts)
    return train(
        recipe if base is None else begin.based(recipe, base, overrides, parts), Path(out), threads, quiet
    )


def finish(folder: Path, ready: Prepared, outcome: Outcome, most: int) -> None:
    """Write the final weights, and results.json with what was promised, what it took, and the numbers of at most `most` held-out batches.
    Whatever becomes of the numbers, the run can be opened."""
    keep(folder, ready.model, weights(ready.model), ready.tokenizer)
    conclude(folder, ready, outcome, [])
    numbers = evaluate.held_out(
        Run(folder, ready.recipe, ready.tokenizer, ready.model, ready.labels), ready.valid, most
    )
    conclude(folder, ready, outcome, numbers)


def conclude(folder: Path, ready: Prepared, outcome: Outcome, numbers: list[Number]) -> None:
    """Write results.json."""
    begun = {"begun": ready.begun._asdict()} if ready.begun else {}
    files.write_whole(
        folder / "results.json", json.dumps({**summary(folder, outcome, numbers), **begun}, indent=1)
    )


def summary(folder: Path, outcome: Outcome, numbers: list[Number]) -> dict[str, Any]:
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
