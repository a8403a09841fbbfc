"""Verbs: train a model, evaluate a run, check a config."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from seqloom.cli.app import Count, Files, Kind, Threads, app, open_run, print_result, recipe

if TYPE_CHECKING:
    from seqloom.measure.number import Number


@app.command
def train(
    what: str,
    /,
    *overrides: str,
    data: Files = None,
    valid: Files = None,
    out: Path | None = None,
    base: Annotated[Path | None, Parameter(name="--from")] = None,
    seed: int | None = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Train a preset, a config file or an unfinished run; an existing run folder is resumed.

    Parameters
    ----------
    what
        A preset (language models: gpt, lstm-lm, gpt2, gpt3, llama, gpt-moe, elmo; by words: lstm-words, transformer-words; masked:
        bert, bert-small; with labels: tagger, tagger-transformer, classifier, nli, similarity, qa; translators: seq2seq, encdec,
        rnnsearch, bytenet, deep-att, gnmt, convs2s, moe, transformer, world, gnmt-rl; those at the sizes of their papers:
        seq2seq-paper, rnnsearch-paper, deep-att-paper, gnmt-paper, bytenet-paper, convs2s-paper, moe-paper, transformer-base,
        transformer-big; pronunciation: g2p), a YAML file, or a run folder to resume.
    overrides
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on: one file, or two parallel files for a translator; .gz is read too, - is stdin.
    valid
        Held-out text in the same form; without it the last tenth of the data is held out.
    out
        The run folder; default: runs/NAME.
    base
        A run to start from: its tokenizer, embedding and stack are loaded, the rest is new.
    seed
        Seed of weights, order and dropout.
    threads
        CPU threads; default: all cores.
    json
        Print the results as JSON.
    """
    from seqloom.run import is_run
    from seqloom.train import budget
    from seqloom.train.fit import train as train_config

    config = recipe(what, overrides, data, valid, seed, base)
    folder = out or (Path(what) if is_run(what) else Path("runs") / Path(what).stem)
    finished = train_config(config, folder, threads)
    if int(os.environ.get("RANK", 0)):
        return
    results = finished.results()
    held = {number["name"]: number["value"] for number in results["held out"]}
    lines = [
        f"held out: {held['nats per token']:.4f} nats per token, perplexity {held['perplexity']:.2f}"
        if "perplexity" in held
        else "held out: " + ", ".join(f"{name} {value:.2f}" for name, value in held.items())
    ]
    if "bits per byte" in held:
        lines[0] += f", {held['bits per byte']:.4f} bits per byte"
    if results["promised"]:
        took, memory = results["actual"]["seconds"], results["actual"]["memory"]
        lines.append(
            f"promised {budget.duration(results['promised']['seconds'])} and {results['promised']['memory'] / 2**20:,.0f} MiB, "
            f"took {budget.duration(took)} and {memory / 2**20:,.0f} MiB"
        )
    lines.append(f"run: {folder}")
    print_result({"run": str(folder), **results}, lines, json)


@app.command
def evaluate(
    run: Path,
    /,
    *data: str,
    beam: Count = 1,
    penalty: float = 0.6,
    window: Count | None = None,
    stride: Count | None = None,
    pseudo: bool = False,
    confusion: bool = False,
    quantize: Kind | None = None,
    threads: Threads = None,
    json: bool = False,
) -> None:
    """Measure a run on text: likelihood for every model, BLEU and chrF for translators.

    Parameters
    ----------
    run
        The run folder.
    data
        The text to measure on, in the form the run was trained on.
    beam
        Width of the beam search for translations; 1 is greedy.
    penalty
        Length penalty of the beam.
    window
        Tokens that a language model reads at once; default: as in training.
    stride
        Tokens from one window to the next; below the window, each token has at least window - stride tokens before it. Each counts once.
    pseudo
        Also the pseudo-perplexity of a masked model: every token of every line masked by itself, one pass each.
    confusion
        Also the confusion matrix of a run that predicts labels.
    quantize
        int8: also measure with one byte per weight, and compare with float32.
    threads
        CPU threads.
    json
        Print numbers and signatures as JSON.
    """
    from seqloom.evaluation import evaluate as measure

    loaded = open_run(run, threads)
    if not data:
        raise ValueError("no data: give the text to measure on, as in: seqloom evaluate RUN FILE")
    numbers = measure(loaded, list(data), beam, penalty, window=window, stride=stride)
    if pseudo:
        from seqloom.inference.mask_filling import pseudo_perplexity

        numbers.append(pseudo_perplexity(loaded, list(data)))
    lines = [f"{number.name:17} {number.value:10.4f}   {number.signature}" for number in numbers]
    report: dict[str, Any] = {"run": str(run), "numbers": [number.json() for number in numbers]}
    if quantize:
        from seqloom.inference.generation import quantize as quantize_run

        not_quantised = quantize_run(loaded, quantize)
        quantised = measure(loaded, list(data), beam, penalty, window=window, stride=stride)
        report[quantize] = [number.json() for number in quantised]
        report["not quantised"] = not_quantised
        pairs = zip(numbers, quantised, strict=False)
        lines += ["", *(format_change(number, other, quantize) for number, other in pairs)]
        if not_quantised:
            lines.append(f"not quantised: {', '.join(not_quantised)}")
    if confusion:
        from seqloom.evaluation import confusion_matrix

        matrix = confusion_matrix(loaded, list(data))
        report["confusion"] = matrix.json()
        lines += ["", *matrix.lines()]
    print_result(report, lines, json)


def format_change(number: Number, quantised: Number, dtype: str) -> str:
    """A number in float32 and with quantised weights."""
    change = f" ({100 * (quantised.value / number.value - 1):+.2f} %)" if number.value else ""
    return f"{number.name:17} {number.value:10.4f} fp32, {quantised.value:.4f} {dtype}{change}"


@app.command
def check(
    what: str,
    /,
    *overrides: str,
    data: Files = None,
    valid: Files = None,
    seed: int | None = None,
    json: bool = False,
) -> None:
    """Build everything a config describes, read a little data, and report sizes without training.

    Parameters
    ----------
    what
        A preset, a YAML file or a run folder.
    overrides
        Changes to the config, such as model.stack.layers=4.
    data
        The text to train on.
    valid
        Held-out text.
    seed
        Seed of the weights.
    json
        Print the report as JSON.
    """
    from seqloom.train.preflight import check_recipe

    report = check_recipe(recipe(what, overrides, data, valid, seed))
    lines = [
        f"{name:24}{value:,}" if isinstance(value, int) else f"{name:24}{value}"
        for name, value in report.items()
    ]
    print_result(report, lines, json)
