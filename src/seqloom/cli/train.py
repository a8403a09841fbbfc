"""The verb train."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from seqloom.cli.app import TRAIN, app, print_result
from seqloom.cli.inputs import load_code
from seqloom.cli.options import (
    MACHINE,
    OUTPUT,
    BudgetOptions,
    CodeFiles,
    Common,
    CommonOptions,
    Files,
    OutPath,
    Threads,
    TrainingBudget,
    What,
)

if TYPE_CHECKING:
    from seqloom.run import Run

# Scores to print after training, the first two that the run has.
HEADLINES = (
    "accuracy",
    "macro_f1",
    "span_f1",
    "exact_match",
    "answer_f1",
    "spearman",
    "bits_per_byte",
    "perplexity",
)


@app.command(group=TRAIN)
def train(
    what: What,
    /,
    *changes: str,
    data: Files = None,
    valid: Files = None,
    base: Annotated[Path | None, Parameter(name="--from")] = None,
    columns: str | None = None,
    code: CodeFiles = (),
    budget: TrainingBudget = BudgetOptions(),
    out: OutPath = None,
    overwrite: Annotated[bool, Parameter(group=OUTPUT)] = False,
    seed: Annotated[int | None, Parameter(group=MACHINE)] = None,
    threads: Annotated[Threads, Parameter(group=MACHINE)] = None,
    common: CommonOptions = Common(),
) -> None:
    """Train a model on your files, or go on with a run.

    Examples:
      seqloom train classifier --data reviews.tsv --minutes 2
      seqloom train gpt model.stack.layers=6 --data input.txt
      seqloom train runs/gpt-input --steps +1000

    Parameters
    ----------
    what
        A preset (see: seqloom presets), a YAML file, or a run folder to go on with or to lengthen.
    changes
        Changes to the config, such as model.stack.layers=4.
    data
        The files to train on; two parallel files for a translator; .gz is read too, - is stdin.
    valid
        Files to choose by, or the share of the data that is held out: 0.1.
    base
        A run to start from: its tokenizer, embedding and stack are loaded, the rest is new.
    columns
        Columns of a table by header name or number, as in text,label; short for corpus.columns.
    code
        A Python file whose part classes the config may name.
    out
        The run folder; default: runs/PRESET-DATA, or below SEQLOOM_RUNS.
    overwrite
        Replace the run that is in the folder.
    seed
        Seed of weights, order and dropout; default: the config's.
    threads
        CPU threads; default: all cores, or SEQLOOM_THREADS.
    """
    from seqloom.train import fit

    all_changes = [*changes, *([f"corpus.columns=[{columns}]"] if columns else [])]
    training = fit.plan_training(
        what,
        all_changes,
        data,
        parse_share(valid),
        base,
        out,
        seed,
        load_code(code),
        fit.Budget(**dataclasses.asdict(budget)),  # type: ignore[typeddict-item]  # the same names
    )
    config, folder, resumes = training
    run = fit.train(config, folder, threads, common.progress, resumes, overwrite)
    if int(os.environ.get("RANK", 0)):
        return
    results = run.results
    lines = [*describe_results(run), f"run: {folder}"]
    print_result({"run": str(training.folder), **results.to_dict()}, lines, common.json)


def parse_share(valid: list[str] | None) -> list[str] | float | None:
    """The value of --valid: files, or the share of the data that is held out."""
    if valid and len(valid) == 1 and not os.path.exists(valid[0]):
        try:
            return float(valid[0])
        except ValueError:
            return valid
    return valid


def describe_results(run: Run) -> Iterator[str]:
    """The scores of a finished training on the held-out data, and what it took, in one line."""
    from seqloom.train.budget import duration, duration_range

    results = run.results
    found = {number.name: number for number in results.valid}
    shown = [found[name] for name in HEADLINES if name in found][:2] or results.valid[:2]
    scores = [
        f"{number.title} {number.value:.{1 if number.value >= 10 else 4}f}"
        + (f" {number.interval}" if number.interval and number is shown[0] else "")
        for number in shown
    ]
    line = ", ".join(scores)
    if shown and shown[0].n:
        line += f" on {shown[0].n:,} held-out {counted_records(run, shown[0].name)}"
    promised, actual = results.promised, results.actual
    if promised and actual:
        expected = duration_range(promised.seconds, promised.low, promised.high)
        line += f"; promised {expected}, took {duration(actual.seconds)}"
    averages = run.config.tree.get("train", {}).get("average_checkpoints", 0) > 1
    if results.best_step and results.best_step < results.steps and not averages:
        line += f"; kept: step {results.best_step:,} of {results.steps:,}, the best on held-out data"
    yield line


def counted_records(run: Run, metric: str) -> str:
    """What a score counts."""
    if metric == "bits_per_byte":
        return "bytes"
    if metric == "preference_accuracy":
        return "pairs"
    if metric == "penalised_reward":
        return "prompts"
    if run.model.task == "reward":
        return "answers"
    if not run.model.predicts_labels:
        return "tokens"
    sources = {"image": "pictures", "audio": "recordings"}
    if run.model.reads in sources:
        return sources[run.model.reads]
    return {"Tagger": "words", "ExtractiveQA": "questions"}.get(type(run.model).__name__, "texts")
